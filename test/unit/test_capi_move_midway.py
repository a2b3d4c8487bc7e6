"""A machine of Cluster API that is moved to another management cluster while it is being made.

The pause of the mover lands at every write of the machine object and every call that changes a
backend, one after the other, in the middle of whatever pass is under way.
"""

from dataclasses import dataclass, field

import pytest

from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.capimover import Copied, move_away, move_back
from test.kit.capiworld import CapiWorld

pytestmark = pytest.mark.slow

CREATE = 5.0
WRITES = frozenset({"create", "apply", "json_patch"})


@dataclass(slots=True)
class PauseAt:
    """Pauses the Cluster at the `nth` moment; `copied` is what the mover would read right then."""

    world: CapiWorld
    nth: int
    seen: int = 0
    calls: int = 0
    copied: Copied | None = None
    _over: bool = field(default=False)

    def __post_init__(self) -> None:
        self.world.api.intercept(self._on_call)
        for process in self.world.serving.values():
            process.backend.check = self._on_backend

    @property
    def missed(self) -> bool:
        """Whether there were fewer moments."""
        return self.copied is None

    def _on_call(self, call: Call, moment: Moment) -> None:
        if call.resource == SIMULATED_MACHINES and call.verb in WRITES:
            del moment  # both count: before the write, and after it
            self._moment()

    def _on_backend(self) -> None:
        changed = self.world.backend_changes()
        if changed > self.calls:
            self.calls = changed
            self._moment()

    def _moment(self) -> None:
        if self._over:
            return
        self.seen += 1
        if self.seen == self.nth:
            self._over = True
            self.copied = Copied.of(self.world)
            self.world.pause()


@pytest.mark.parametrize("early", [False, True], ids=["read_late", "read_early"])
@pytest.mark.parametrize(("restarts", "gap"), [(False, 0.0), (True, 60.0)], ids=["", "restarts"])
async def test_a_machine_that_moves_midway_ends_in_one_vm(
    *, early: bool, restarts: bool, gap: float
) -> None:
    moments, identities = 0, 0
    while True:
        world = CapiWorld.with_cluster()
        at = PauseAt(world, moments + 1)
        world.add_machine()
        await world.settle(seconds=2.0)
        await world.settle()
        if at.missed:
            break
        moments += 1
        world.clock.advance(CREATE)  # a call that was made before the pause goes on
        made = world.every_vm()
        copied = await move_away(
            world, watched=True, restarts=restarts, copied=at.copied if early else None
        )
        assert world.every_vm() == made, f"at moment {moments}"
        identities += not copied.node["spec"].get("providerID")
        world.clock.advance(gap)
        await move_back(world, copied, seconds=120.0)
        assert world.told() == ("True", "Ready"), f"at moment {moments}"
        (uuid,) = world.every_vm()
        assert made in ([], [uuid]), f"at moment {moments}"
        assert world.node()["spec"]["instance"]["uuid"] == uuid
        assert world.node()["spec"]["teardown"] == {"mode": "Destroy", "uid": "new-node"}
        assert world.faults == []
        await world.delete_machine()
        assert world.every_vm() == [], f"at moment {moments}"
    assert moments > 8
    assert identities > 4, "most of them in mid-creation"
