"""More bugs on purpose: in adoption, in what is kept, in drills, and between kinds of backends."""

from collections.abc import Callable
from typing import Any

from banlieue.api.types import DeletionPolicy
from banlieue.api.v1alpha1.virtualmachine import VirtualMachineSpec
from banlieue.controller.infra.kinds import MachineKinds
from banlieue.sdk.machine import adoption, reconciler, teardown
from banlieue.sdk.machine.scope import Scope
from banlieue.sdk.outcome import Outcome
from banlieue.sdk.provider.session import ProviderSession


def take_over_unasked() -> None:
    """A VM is taken over although its user only wants to see what would change."""
    survey_ = adoption.survey

    async def survey(scope: Scope) -> Outcome:
        adopt = scope.machine.spec.adopt
        if adopt is not None and not adopt.accepted:
            scope.machine = scope.machine.model_copy(deep=True)
            scope.machine.spec.adopt = adopt.model_copy(update={"accepted": True})
        return await survey_(scope)

    phases = tuple(survey if phase is survey_ else phase for phase in reconciler.PHASES)
    _put(reconciler, PHASES=phases)


def destroy_adopted() -> None:
    """What was adopted is destroyed with its object, as if it had been made for it."""

    def wanted(self: VirtualMachineSpec) -> DeletionPolicy:
        return self.deletion_policy or DeletionPolicy.DELETE

    _put(VirtualMachineSpec, wanted_deletion_policy=property(wanted))


def destroy_retained() -> None:
    """A VM is destroyed with the disks that are to outlive it."""

    async def keep(scope: Scope) -> None:
        del scope

    _put(teardown, _keep=keep)


def change_in_drills() -> None:
    """A Provider that is read-only is changed like any other."""

    def writable(self: Any) -> bool:  # noqa: ANN401 - a session, of which private members are used
        trusted = self.served.trusted and not self.served.suspended
        return bool(self._leased() and trusted and not self.provider.spec.paused)

    _put(ProviderSession, writable=property(writable))


def look_in_one_kind() -> None:
    """Machines are looked for among those of one kind of backend only."""
    every = MachineKinds.all

    async def first(self: MachineKinds) -> Any:  # noqa: ANN401 - a tuple of resources
        return (await every(self))[:1]

    _put(MachineKinds, all=first)


def _put(target: Any, **members: Any) -> None:  # noqa: ANN401 - a module or a class
    for name, value in members.items():
        setattr(target, name, value)


BUGS: dict[str, Callable[[], None]] = {
    bug.__name__: bug
    for bug in (
        take_over_unasked,
        destroy_adopted,
        destroy_retained,
        change_in_drills,
        look_in_one_kind,
    )
}
