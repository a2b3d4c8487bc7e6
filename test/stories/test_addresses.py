"""Addresses that are neither chosen nor leased: a pool gives them."""

from collections.abc import Callable, Iterator

import pytest

from test.kit.barekinds import bare_kind
from test.kit.controlplane import ControlPlane
from test.kit.installed import GONE_SECONDS, READY_SECONDS
from test.kit.playedpool import CLAIMS, GROUP, SUBNET, PlayedPool
from test.kit.stack import condition, is_ready
from test.kit.story import NETWORK, Story
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

POOLED = [{"name": "eth0", "ipam": [{"family": "IPv4", "source": "pool"}]}]
VMS = "virtualmachines"


@pytest.fixture(scope="module", autouse=True)
def ipam(control_plane: ControlPlane) -> Iterator[None]:
    """The kinds that come with Cluster API's core, before anybody of ours looks for them."""
    kinds = [("IPAddressClaim", "ipaddressclaims"), ("IPAddress", "ipaddresses")]
    definitions = [bare_kind(GROUP, *kind) for kind in kinds]
    control_plane.install_crds(definitions)
    control_plane.kube.resources()
    yield
    for definition in definitions:
        name = definition["metadata"]["name"]
        control_plane.kube.delete("customresourcedefinitions", name)
        control_plane.kube.wait_gone("customresourcedefinitions", name)


def test_an_address_comes_from_a_pool_and_goes_back_to_it(story: Story) -> None:
    """Story 18: a static address from a pool, bound before the VM is made and kept as long."""
    pool = PlayedPool(story.kube, story.team, ["10.0.0.77"])
    classes = story.provider()["spec"]["capabilities"]["networkClasses"]
    pooled = [{**it, "subnets": [SUBNET]} if it["name"] == NETWORK else it for it in classes]
    story.edit_provider(capabilities={"networkClasses": pooled})

    story.vm("web", networkInterfaces=POOLED)
    _meanwhile(pool, lambda: _is_ready(story, "web"), "web has its address")
    assert _address(story, "web") == "10.0.0.77"
    made = story.backend_vm("web")

    # The pool is empty, which is told, and nothing is made.
    story.vm("late", networkInterfaces=POOLED)
    told = ("False", "AddressPoolExhausted")
    _meanwhile(pool, lambda: _says(story, "late") == told, "late is told")
    assert story.registered.vms_of("late") == []

    # A machine object that is lost is made again, and finds VM and address.
    machines = story.registered.plural
    before = story.kube.get(machines, "web", story.team)["metadata"]["uid"]
    story.kube.delete(machines, "web", story.team)
    _meanwhile(pool, lambda: _is_anew(story, "web", before), "web has a machine object again")
    _meanwhile(pool, lambda: _address(story, "web"), "it has an address")
    assert _address(story, "web") == "10.0.0.77"
    story.ready("web")
    assert story.backend_vm("web").uuid == made.uuid

    # What is deleted gives the address back, and the next one has it.
    story.kube.delete(VMS, "web", story.team)
    _meanwhile(pool, lambda: _is_ready(story, "late"), "late has the address")
    assert _address(story, "late") == "10.0.0.77"
    story.kube.delete(VMS, "late", story.team)
    story.kube.wait_gone(VMS, "late", story.team, timeout=GONE_SECONDS)
    assert story.kube.list(CLAIMS, story.team) == []
    story.edit_provider(capabilities={"networkClasses": classes})


def _meanwhile(pool: PlayedPool, until: Callable[[], object], what: str) -> None:
    """Wait, and have the pool do its part."""

    def look() -> object:
        pool.step()
        return until()

    wait_until(look, 2 * READY_SECONDS, what)


def _is_ready(story: Story, name: str) -> bool:
    return is_ready(story.kube.get(VMS, name, story.team))


def _says(story: Story, name: str) -> tuple[str, str]:
    return condition(story.kube.get(VMS, name, story.team), "AddressesAvailable")


def _is_anew(story: Story, name: str, before: str) -> bool:
    found = story.kube.find(story.registered.plural, name, story.team)
    return found is not None and found["metadata"]["uid"] != before


def _address(story: Story, name: str) -> str:
    machine = story.kube.get(story.registered.plural, name, story.team)
    address: str = machine["spec"]["networkInterfaces"][0]["ipam"][0].get("address", "")
    return address
