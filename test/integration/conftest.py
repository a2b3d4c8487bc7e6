"""What the tests with real processes share: a backend to run on, and banlieue installed on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from banlieue.sdk.testing.conformance_target import ConformanceTarget
from test.kit.controlplane import ControlPlane
from test.kit.installed import Registered
from test.kit.running import Running
from test.kit.targets import KINDS, new_target
from test.kit.watched import AtWork, Watched, watched


@pytest.fixture(params=KINDS)
def backend_kind(request: pytest.FixtureRequest) -> str:
    """The backend a test runs on."""
    kind: str = request.param
    return kind


@pytest.fixture
def backend_target(backend_kind: str, tmp_path: Path) -> Iterator[ConformanceTarget]:
    """A fresh backend of each kind, in a process of its own."""
    with new_target(backend_kind, tmp_path) as target:
        yield target


@pytest.fixture
def second_target(backend_kind: str, tmp_path: Path) -> Iterator[ConformanceTarget]:
    """Another fresh backend of the same kind."""
    with new_target(backend_kind, tmp_path) as target:
        yield target


@pytest.fixture
def watched_install(
    control_plane: ControlPlane, tmp_path: Path, backend_target: ConformanceTarget
) -> Iterator[Watched]:
    """banlieue installed, with the backend registered as a Provider; no role runs yet.

    Checkers run beside the test; what they find fails it in the end.
    """
    with watched(control_plane, tmp_path, backend_target) as found:
        yield found


@pytest.fixture
def registered(watched_install: Watched) -> Registered:
    """The same without a view of the checkers."""
    return watched_install.registered


@pytest.fixture
def running(registered: Registered) -> Running:
    """The same with controller and provider at work."""
    return Running.start(registered)


@pytest.fixture(scope="module", params=KINDS)
def at_work(
    request: pytest.FixtureRequest,
    control_plane: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[AtWork]:
    """banlieue at work on each kind of backend, for tests that leave nothing behind."""
    directory = tmp_path_factory.mktemp(f"{request.param}-at-work")
    with (
        new_target(request.param, directory) as target,
        watched(control_plane, directory, target) as found,
    ):
        yield AtWork(found, Running.start(found.registered))
