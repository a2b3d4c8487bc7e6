"""One move as a pass sees it: the machine to come, and everything the next step is decided from."""

from dataclasses import dataclass
from typing import Any

from banlieue.api.conditions import ConditionType
from banlieue.api.infrastructure.machine import Machine
from banlieue.api.meta import ConditionStatus
from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.virtualmachine import MoveStatus
from banlieue.controller import writes
from banlieue.controller.infra import naming
from banlieue.controller.infra.kinds import Found
from banlieue.controller.moves import wishes
from banlieue.controller.moves.situation import Situation
from banlieue.controller.scheduling.placement import Place
from banlieue.controller.vm.scope import Scope


@dataclass(slots=True)
class Trip:
    """One move, for the length of one pass.

    `stuck` is why a step could not be taken now, and what it waits for.
    """

    scope: Scope
    record: MoveStatus
    wanted: bool
    incoming: Found | None = None
    stuck: str = ""

    @property
    def machine(self) -> Machine | None:
        """The machine to come."""
        return Machine.from_api(self.incoming.obj) if self.incoming else None

    @property
    def fresh(self) -> bool:
        """Whether it is a new one; one that is taken back has the name of an earlier epoch."""
        reference = self.scope.course.incoming_ref
        if reference is None:
            return True
        return naming.named_epoch(self.scope.vm, reference.name) == self.record.epoch

    @property
    def power(self) -> PowerState:
        """The power state the user wants."""
        return self.scope.vm.spec.wanted_power_state or PowerState.POWERED_ON

    @property
    def place(self) -> Place:
        """Where it goes."""
        return Place(wishes.target_of(self.record), self.record.failure_domain or "")

    def situation(self) -> Situation:
        """Everything the next step is decided from."""
        scope, incoming = self.scope, self.machine
        return Situation(
            record=self.record,
            current=scope.machine,
            incoming=incoming,
            now=scope.ctx.clock.now(),
            fresh=self.fresh,
            wanted=self.wanted,
            fixed=wishes.has_fixed_addresses(scope.vm)
            or bool(self.record.fixed_addresses)
            or (incoming is not None and wishes.guest_may_have_fixed_addresses(incoming)),
            power=self.power,
            gates=scope.view().gates,
            guest_bootstrapped=incoming is not None and _bootstrapped(incoming),
            shutdown_seconds=scope.vm.spec.power_off_timeout_seconds,
            target_gone=scope.services.provider(self.place.provider) is None,
        )

    def note(self, **changes: object) -> None:
        """Let the record say so; the next status write carries it."""
        self.record = self.record.model_copy(update=changes)
        self.scope.course.move = self.record

    async def patch(self, *ops: dict[str, Any]) -> None:
        """Change the machine to come."""
        if self.incoming is None:
            raise LookupError("there is no machine to change")
        found = self.incoming
        obj = await writes.patch(self.scope.ctx.api, found.kind, found.obj, list(ops))
        self.incoming = Found(found.kind, obj)

    async def patch_current(self, *ops: dict[str, Any]) -> None:
        """Change the machine there is."""
        scope = self.scope
        if scope.kind is None or scope.machine_raw is None:
            raise LookupError("there is no machine to change")
        obj = await writes.patch(scope.ctx.api, scope.kind, scope.machine_raw, list(ops))
        scope.take_machine(scope.kind, obj)


def _bootstrapped(machine: Machine) -> bool:
    return any(
        it.type == ConditionType.GUEST_BOOTSTRAPPED and it.status is ConditionStatus.TRUE
        for it in machine.status.conditions
    )
