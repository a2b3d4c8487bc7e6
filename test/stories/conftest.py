"""The stage stories are told on: every backend in turn, each with banlieue at work on it."""

from collections.abc import Iterator

import pytest

from test.kit.controlplane import ControlPlane
from test.kit.story import Story, told_on
from test.kit.targets import KINDS, new_target
from test.kit.transcripts import recorded


@pytest.fixture(scope="module", params=KINDS)
def stage(
    request: pytest.FixtureRequest,
    control_plane: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Story]:
    """One stage for the stories of a module; each leaves it as it was."""
    directory = tmp_path_factory.mktemp(f"{request.param}-stage")
    with (
        new_target(request.param, directory) as target,
        told_on(target, control_plane, directory) as story,
    ):
        yield story


@pytest.fixture
def story(stage: Story, request: pytest.FixtureRequest) -> Iterator[Story]:
    """A story on an empty stage; what is said in it is compared with the other backend's."""
    try:
        with recorded(stage.watched.status, stage.registered.target.backend.name, request):
            yield stage
    finally:
        stage.ended()
