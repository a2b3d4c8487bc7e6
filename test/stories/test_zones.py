"""Zones: replicas are kept apart where that was asked for, and told where it cannot be."""

from collections.abc import Iterator

import pytest

from test.kit.controlplane import ControlPlane
from test.kit.installed import READY_SECONDS
from test.kit.story import Story, told_on
from test.kit.targets import KINDS, new_target
from test.kit.transcripts import recorded
from test.kit.vsphere_target import VSphereTarget
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

REPLICA = """
    apiVersion: banlieue.io/v1alpha1
    kind: VirtualMachine
    metadata:
      name: {name}
      namespace: team-a
      labels: {{app: {app}}}
    spec:
      classRef: {{name: small}}
      imageRef: {{name: ubuntu}}
      placement:
        antiAffinity:
        - topologyKey: banlieue.io/failure-domain
          labelSelector: {{matchLabels: {{app: {app}}}}}
          mode: {mode}
"""


@pytest.fixture(params=KINDS)
def story(
    request: pytest.FixtureRequest,
    control_plane: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Story]:
    """A stage with three failure domains."""
    directory = tmp_path_factory.mktemp(f"{request.param}-zones")
    with (
        new_target(request.param, directory, zones=3) as target,
        told_on(target, control_plane, directory) as story,
        recorded(story.watched.status, request.param, request),
    ):
        yield story


def test_replicas_that_must_not_share_a_zone_land_apart(story: Story) -> None:
    """Story 12: zones and anti-affinity."""
    for name in ("db-1", "db-2", "db-3"):
        story.given(REPLICA.format(name=name, app="db", mode="required"))

    story.ready("db-1", "db-2", "db-3")
    zones = {story.status(name)["observedFailureDomain"] for name in ("db-1", "db-2", "db-3")}
    assert len(zones) == 3

    story.given(REPLICA.format(name="db-4", app="db", mode="required"))
    message = story.condition("db-4", "Scheduled", "False", "AntiAffinityUnsatisfied")
    assert "antiAffinity" in message
    assert story.registered.vms_of("db-4") == []

    caches = [f"cache-{number}" for number in range(1, 5)]
    for name in caches:
        story.given(REPLICA.format(name=name, app="cache", mode="preferred"))
    story.ready(*caches)
    assert len({story.status(name)["observedFailureDomain"] for name in caches}) == 3

    story.registered.delete("db-1")
    story.condition("db-4", "Scheduled", "True", "Scheduled")
    story.ready("db-4")


def test_replicas_that_were_brought_together_are_told_of_and_left_alone(story: Story) -> None:
    """Story 11: HA or an admin broke an anti-affinity, or took a VM to another zone."""
    for name in ("db-1", "db-2"):
        story.given(REPLICA.format(name=name, app="db", mode="required"))
    story.given(REPLICA.format(name="web", app="web", mode="preferred"))
    story.ready("db-1", "db-2", "web")
    one, two, web = (story.backend_vm(name) for name in ("db-1", "db-2", "web"))

    home = _zone(story, "web")
    there, beside = next(
        (it, vm) for it, vm in (("db-1", one), ("db-2", two)) if _zone(story, it) != home
    )
    story.admin.move_beside(web.id, beside.id)
    message = story.condition("web", "PlacementValid", "True", "MovedByBackend")
    assert _zone(story, there) in message
    assert story.status("web")["scheduled"]["failureDomain"] == home
    story.hears("web", "MovedByBackend")

    story.admin.move_beside(one.id, two.id)
    where = _zone(story, "db-2")
    story.sees("db-1", lambda vm: vm["status"]["observedFailureDomain"] == where, told="moved")
    message = story.condition("db-1", "PlacementValid", "False", "AntiAffinityUnsatisfied")
    assert "stays where it is" in message
    story.ready("db-1", "db-2", "web")
    if isinstance(story.registered.target, VSphereTarget):
        _lose_sight(story, story.registered.target, two.id)
    story.ready("db-1", "db-2", "web")
    assert {vm.id for vm in story.backend_vms()} == {one.id, two.id, web.id}


def _zone(story: Story, name: str) -> str:
    return str(story.status(name)["observedFailureDomain"])


def _lose_sight(story: Story, target: VSphereTarget, vm: str) -> None:
    """The account may not see the cluster of a VM any more: told, and nothing is let go."""
    where = _zone(story, "db-2")
    (host,) = {it.host for it in target.vcenter.vms() if it.mo_ref == vm}
    target.vcenter.hide(target.account, f"/DC0/host/{host.rpartition('_')[0]}")
    # A process that begins now has never seen it.
    story.running.provider.kill9()
    story.running.provider.start()
    told = f"failure domain {where} may not be read any more"

    def ready_says() -> object:
        found = story.provider()["status"]["conditions"]
        return [it["message"] for it in found if it["type"] == "Ready" and told in it["message"]]

    wait_until(ready_says, READY_SECONDS, told)
    domains = {it["name"]: it for it in story.provider()["status"]["failureDomains"]}
    assert domains[where]["schedulable"] is False
    for name in ("db-1", "db-2"):
        story.running.poke(name)
        assert _zone(story, name) == where
    target.vcenter.clear_permissions()
