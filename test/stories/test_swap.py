"""A VM changes its backend: from a vCenter to another hypervisor, and back.

Both backends are served at once, so this story is told on one stage of its own. The same pair runs
the other way round when the machine is rolled back.
"""

from collections.abc import Iterator

import pytest

from banlieue.sdk.testing.conformance_target import RawVm
from test.kit.backend_admin import BackendAdmin, admin_of
from test.kit.controlplane import ControlPlane
from test.kit.installed import Registered
from test.kit.running import VMS
from test.kit.stack import Object, condition
from test.kit.story import Story, joined_by, told_on
from test.kit.targets import SIMULATED, VSPHERE, new_target
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

OTHER = "other"
MINUTES = 180.0


class Swap:
    """A stage with two backends; the VM of a story is pinned to one of them."""

    def __init__(self, story: Story, other: Registered) -> None:
        self.story = story
        self.other = other
        self.admin: BackendAdmin = admin_of(other.target)

    @property
    def home(self) -> Registered:
        """Where VMs begin."""
        return self.story.registered

    def pin(self, name: str, to: Registered) -> None:
        """The user repoints the VM."""
        pin = {"name": to.provider, "namespace": to.stack.namespace}
        self.story.edit(name, providerRef=pin)

    def given_vm(self, name: str) -> RawVm:
        """A VM that is Ready at home."""
        pin = {"name": self.home.provider, "namespace": self.home.stack.namespace}
        self.story.vm(name, providerRef=pin)
        self.story.ready(name)
        return self.story.backend_vm(name)

    def arrives(self, name: str, at: Registered) -> Object:
        """Wait until the VM is there, Ready, and what it left is off."""

        def there(vm: Object) -> bool:
            status = vm["status"]
            return (
                status["scheduled"]["providerName"] == at.provider
                and "incomingRef" not in status
                and condition(vm, "Ready")[0] == "True"
            )

        return self.story.sees(name, there, MINUTES, told=f"Ready on {at.provider}")

    def power(self, name: str, at: Registered) -> str | None:
        """The power state of the VM's machine on a backend as observed, None when it is gone."""
        found = [
            it["status"].get("powerState")
            for it in at.kube.list(at.plural, at.namespace)
            if it["spec"]["virtualMachineRef"]["name"] == name
        ]
        return found[0] if found else None

    def stops(self, name: str, at: Registered) -> None:
        """Wait until the VM is off there."""
        off = f"{name} to be off on {at.provider}"
        wait_until(lambda: self.power(name, at) == "PoweredOff", MINUTES, off)


@pytest.fixture(scope="module")
def swap(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swap]:
    """Two backends, each with a provider process of its own, and one controller."""
    directory = tmp_path_factory.mktemp("swap-stage")
    with (
        new_target(VSPHERE, directory) as target,
        new_target(SIMULATED, directory) as second,
        told_on(target, control_plane, directory) as story,
    ):
        yield Swap(story, joined_by(story, second, OTHER))


def test_a_vm_swaps_its_backend_and_comes_back(swap: Swap) -> None:
    """Story 15: swap backend. The new VM is Ready before the old one stops, which is kept."""
    story = swap.story
    old = swap.given_vm("web")
    before = story.status("web")["providerID"]

    swap.pin("web", swap.other)

    story.hears("web", "MigrationStarted")
    moved = swap.arrives("web", swap.other)
    (new,) = swap.other.vms_of("web")
    story.hears("web", "MigrationCompleted")
    assert moved["status"]["providerID"] != before
    assert moved["status"]["previous"]["infrastructureRef"]["kind"] == swap.home.kind
    swap.stops("web", swap.home)
    assert swap.power("web", swap.other) == "PoweredOn"

    swap.pin("web", swap.home)

    back = swap.arrives("web", swap.home)
    assert back["status"]["providerID"] == before
    assert [vm.id for vm in swap.home.vms_of("web")] == [old.id]
    swap.stops("web", swap.other)
    assert [vm.id for vm in swap.other.vms_of("web")] == [new.id]

    story.kube.patch(
        VMS,
        "web",
        {"metadata": {"annotations": {"banlieue.io/release-previous": "true"}}},
        story.team,
    )

    story.sees("web", lambda vm: "previous" not in vm["status"], MINUTES, told="released")
    assert swap.other.vms_of("web") == []
    assert swap.power("web", swap.home) == "PoweredOn"
    story.ended()


def test_a_swap_that_does_not_get_ready_leaves_the_old_vm_running(swap: Swap) -> None:
    """Story 15: failure leaves the old VM running, and the pin set back gives the swap up."""
    story = swap.story
    old = swap.given_vm("api")
    swap.admin.slow_guests(3600)

    swap.pin("api", swap.other)

    story.sees("api", lambda vm: vm["status"]["phase"] == "Migrating", told="being moved")
    wait_until(lambda: swap.other.vms_of("api"), MINUTES, "the new VM to be made")
    assert swap.power("api", swap.home) == "PoweredOn"
    story.ready("api")

    swap.pin("api", swap.home)

    story.sees("api", lambda vm: "incomingRef" not in vm["status"], MINUTES, told="given up")
    assert swap.other.vms_of("api") == []
    assert [vm.id for vm in swap.home.vms_of("api")] == [old.id]
    assert swap.power("api", swap.home) == "PoweredOn"
    story.ready("api")
    swap.admin.slow_guests(0)
    story.ended()
