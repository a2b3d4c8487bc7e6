"""Zones: replicas are kept apart where that was asked for, and told where it cannot be."""

from collections.abc import Iterator

import pytest

from test.kit.controlplane import ControlPlane
from test.kit.story import Story, told_on
from test.kit.targets import KINDS, new_target
from test.kit.transcripts import recorded

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
    """Story 11: HA or an admin broke an anti-affinity."""
    for name in ("db-1", "db-2"):
        story.given(REPLICA.format(name=name, app="db", mode="required"))
    story.ready("db-1", "db-2")
    one, two = story.backend_vm("db-1"), story.backend_vm("db-2")

    story.admin.move_beside(one.id, two.id)

    where = story.status("db-2")["observedFailureDomain"]
    story.sees("db-1", lambda vm: vm["status"]["observedFailureDomain"] == where, told="moved")
    message = story.condition("db-1", "PlacementValid", "False", "AntiAffinityUnsatisfied")
    assert "stays where it is" in message
    story.ready("db-1", "db-2")
    assert {vm.id for vm in story.backend_vms()} == {one.id, two.id}
