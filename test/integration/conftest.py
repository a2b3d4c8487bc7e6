"""What the tests with real processes share: a backend to run on, and banlieue installed on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from banlieue.sdk.simulated.backend import BACKEND
from banlieue.sdk.testing.conformance_target import ConformanceTarget
from banlieue.sdk.testing.simulated_target import SimulatedTarget
from test.kit.controlplane import ControlPlane
from test.kit.installed import Registered
from test.kit.simulated import PLANTED_PASSWORD, WorldProcess
from test.kit.stack import Stack


@pytest.fixture(params=["simulated"])
def backend_target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConformanceTarget]:
    """A fresh backend of each kind, in a process of its own."""
    assert request.param == "simulated"
    world = WorldProcess(tmp_path)
    world.start()
    yield SimulatedTarget(BACKEND, world.endpoint, world.port, PLANTED_PASSWORD)
    world.process.kill9()


@pytest.fixture
def registered(
    control_plane: ControlPlane, tmp_path: Path, backend_target: ConformanceTarget
) -> Iterator[Registered]:
    """banlieue installed, with the backend registered as a Provider; no role runs yet."""
    with Stack(control_plane, tmp_path) as stack:
        stack.install()
        registered = Registered(stack, backend_target)
        registered.register()
        yield registered
        stack.purge()
