"""Three vCenters in one process: one says nothing, one is slow, and the third does not notice."""

import contextlib
from collections.abc import Iterator

import pytest

from test.kit.vcenterfleet import Fleet
from test.kit.vsphere_target import VSphereTarget, vsphere_target

pytestmark = pytest.mark.slow

EACH = 4


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, VSphereTarget]]:
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(vsphere_target(tmp_path_factory.mktemp(name)))
            for name in ("dead", "slow", "well")
        }


async def test_a_healthy_vcenter_waits_for_no_other(targets: dict[str, VSphereTarget]) -> None:
    async with Fleet(targets) as fleet:
        await fleet.providers_ready(*targets)
        targets["dead"].proxy.black_hole()
        targets["slow"].vcenter.set_delay("*", 2.0)
        for name in ("dead", "slow"):
            fleet.make(name, [f"{name}-{number}" for number in range(20)])
        healthy = [f"well-{number}" for number in range(EACH)]
        fleet.make("well", healthy)
        times = await fleet.times(healthy, timeout=25.0)
        assert times[-1] < 25.0
        assert not any(fleet.is_ready(f"dead-{number}") for number in range(20))
        targets["slow"].vcenter.clear_delays()


async def test_a_vcenter_that_never_answered_keeps_nobody_waiting(
    targets: dict[str, VSphereTarget],
) -> None:
    targets["dead"].proxy.black_hole()
    async with Fleet(targets) as fleet:
        await fleet.providers_ready("slow", "well")
        fleet.make("dead", [f"lost-{number}" for number in range(20)])
        healthy = [f"fine-{number}" for number in range(EACH)]
        fleet.make("well", healthy)
        await fleet.times(healthy, timeout=25.0)
