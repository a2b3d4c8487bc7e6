"""The simulated backend keeps the promises of the seam, in this process and out of it."""

from collections.abc import Iterator

import pytest

from banlieue.sdk.testing.conformance import ConformanceTarget, DriverConformance
from test.kit.simulated import WorldProcess, memory_target


class TestInMemory(DriverConformance):
    @pytest.fixture
    def target(self) -> ConformanceTarget:
        return memory_target("conformance")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorldProcess]:
    world = WorldProcess(tmp_path_factory.mktemp("world"))
    world.start()
    with world.process:
        yield world


@pytest.mark.slow
class TestOutOfProcess(DriverConformance):
    @pytest.fixture
    def target(self, world: WorldProcess) -> ConformanceTarget:
        return world.target()
