"""Bugs put into the product on purpose, to see that the simulation finds them.

Each is a change that a careless refactoring could make; none is a switch in the product.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from banlieue.api.infrastructure.machine import Instance, TeardownMode
from banlieue.controller.infra import teardown as decisions
from banlieue.controller.infra.traces import Traces
from banlieue.controller.vm import phases as vm_phases
from banlieue.controller.vm import virtualmachine
from banlieue.controller.vm.scope import Scope as VmScope
from banlieue.sdk.driver import MachineRef, MachineState
from banlieue.sdk.errors import AbsenceUnproven
from banlieue.sdk.machine import life, reconciler, teardown, writes
from banlieue.sdk.machine.scope import Scope
from banlieue.sdk.outcome import CONTINUE, Outcome
from banlieue.sdk.provider import phases
from banlieue.sdk.provider.claims import Claims
from banlieue.sdk.provider.session import ProviderSession
from banlieue.sdk.simulated import disks, driver, states
from banlieue.sdk.simulated.driver import SimulatedDriver
from banlieue.sdk.simulated.world import Json
from test.simulation import planted_custody

Driver: Any = SimulatedDriver


def mint_after_create() -> None:
    """The identity is written down only after the VM was made: a crash forgets it."""
    claim = writes.claim_instance

    async def remember(scope: Scope, instance: Instance) -> None:
        scope.replace({**scope.raw, "spec": {**scope.raw["spec"], "instance": instance.to_api()}})

    async def create(scope: Scope) -> Outcome:
        outcome = await create_(scope)
        stored = await scope.ctx.api.get(scope.backend.machine, scope.key)
        instance = scope.machine.spec.instance
        if instance is not None and not stored["spec"].get("instance"):
            scope.replace(stored)
            await claim(scope, instance)
        return outcome

    create_ = life.create
    _put(writes, claim_instance=remember)
    _swap(reconciler, create_, create)


def no_intent_uid() -> None:
    """An intent counts although it names another object, such as the one before a restore."""

    async def check_intent(scope: Scope) -> Outcome:
        intent = scope.machine.spec.teardown
        if intent is not None:
            uid = scope.machine.metadata.uid or ""
            scope.machine = scope.machine.model_copy(deep=True)
            scope.machine.spec.teardown = intent.model_copy(update={"uid": uid})
        return await checked(scope)

    checked = teardown.check_intent
    _swap(teardown, checked, check_intent)


def look_in_one_domain() -> None:
    """A VM is looked for only where it would be made, not on the whole Provider."""
    find = Driver._find_unminted

    def narrow(self: Any, ref: MachineRef) -> Json | None:  # noqa: ANN401 - a driver
        found = find(self, ref)
        return found if found is None or found["domain"] == ref.failure_domain else None

    Driver._find_unminted = narrow


def take_any_of_the_name() -> None:
    """A VM of the right name counts as ours, whatever its mark and UUID say."""

    def trust(ref: MachineRef, seen: MachineState) -> None:
        del ref, seen

    def adopt(ref: MachineRef, seen: MachineState) -> str:
        del ref
        return seen.uuid

    for module in (life, teardown):
        _put(module, check_ours=trust)
    _put(life, rebind_uuid=adopt)


def provider_id_before_seen() -> None:
    """The provider ID is written as soon as the create call was answered."""

    async def create(scope: Scope) -> Outcome:
        outcome = await create_(scope)
        instance = scope.machine.spec.instance
        if scope.memory.task is not None and instance and not scope.machine.spec.provider_id:
            await writes.record_provider_id(scope, scope.backend.provider_id(instance.uuid))
        return outcome

    create_ = life.create
    _swap(reconciler, create_, create)


def believe_absence() -> None:
    """What is not found is gone, whatever the account may see and whatever still runs."""
    observe = Driver.observe

    def believe(self: Any, ref: MachineRef) -> MachineState | None:  # noqa: ANN401 - a driver
        try:
            found: MachineState | None = observe(self, ref)
        except AbsenceUnproven:
            return None
        return found

    Driver.observe = believe


def destroy_when_alive() -> None:
    """A machine object that is deleted takes its VM along, though the VirtualMachine lives."""

    def by_owner(vm: Any, machine: Any) -> TeardownMode | None:  # noqa: ANN401 - as it is
        del vm, machine
        return TeardownMode.DESTROY

    decisions._by_owner = by_owner


def another_name_when_taken() -> None:
    """A create whose name is taken makes the VM under another one, though it made the first."""

    def again(self: Any, plan: Any) -> Any:  # noqa: ANN401 - a driver, its plan and its task
        spec = states.vm_spec(disks.resolved(plan, self._kept(plan)))
        return driver._task(self._session.create({**spec, "name": f"{spec['name']}-again"}))

    Driver._look_again = again


def trust_any_backend() -> None:
    """Whoever answers at the endpoint is taken for the backend of the machines."""
    _put(ProviderSession, is_backend=lambda _self, _identity: True)
    _put(phases, _is_trusted=lambda _scope, _identity: True)


def destroy_foreign_disks() -> None:
    """A VM is destroyed with everything that hangs on it."""
    _put(teardown, _foreign=lambda _disks: ())


def forget_finalizer() -> None:
    """The VirtualMachine is not held while its machine exists."""

    async def skip(scope: VmScope) -> Outcome:
        del scope
        return CONTINUE

    _swap(vm_phases, vm_phases.ensure_finalizer, skip)
    _put(virtualmachine, PHASES=vm_phases.PHASES)


def make_again_when_missing() -> None:
    """A VM that was seen and is gone is made again."""

    async def look(scope: Scope) -> Outcome:
        outcome = await look_(scope)
        return CONTINUE if scope.seen is None else outcome

    look_ = life.look
    _swap(reconciler, look_, look)


def forget_vanished_objects() -> None:
    """A machine object that vanished is forgotten until the backend is read the next time."""
    _put(Claims, follow=lambda _self, _machines, _now: frozenset())
    _put(Traces, claims=lambda _self, _owner, _digest, _settled: {})


def _swap(module: Any, old: Callable[..., Any], new: Callable[..., Any]) -> None:  # noqa: ANN401 - a module
    """Put another phase into the place of one."""
    module.PHASES = tuple(new if phase is old else phase for phase in module.PHASES)


def _put(target: Any, **members: Any) -> None:  # noqa: ANN401 - a module or a class
    """Replace members of a module or a class."""
    for name, value in members.items():
        setattr(target, name, value)


BUGS: dict[str, Callable[[], None]] = planted_custody.BUGS | {
    bug.__name__: bug
    for bug in (
        mint_after_create,
        no_intent_uid,
        look_in_one_domain,
        take_any_of_the_name,
        provider_id_before_seen,
        believe_absence,
        destroy_when_alive,
        trust_any_backend,
        destroy_foreign_disks,
        forget_finalizer,
        make_again_when_missing,
        forget_vanished_objects,
        another_name_when_taken,
    )
}


class Hunt(NamedTuple):
    """A seed that found a bug, and the actions that it takes to find it soon: they lead there.

    Without any, the schedules are those that everybody runs.
    """

    seed: int
    focus: tuple[str, ...] = ()


HUNTS = {
    "no_intent_uid": Hunt(0),
    "destroy_when_alive": Hunt(0),
    "look_in_one_kind": Hunt(32),
    "provider_id_before_seen": Hunt(33),
    "take_over_unasked": Hunt(54),
    "look_in_one_domain": Hunt(64),
    "forget_vanished_objects": Hunt(962),
    "mint_after_create": Hunt(2550),
    "trust_any_backend": Hunt(0, ("swap_backend",)),
    "forget_finalizer": Hunt(52, ("create", "delete", "crash")),
    "believe_absence": Hunt(40, ("hide", "lose_rights", "delete")),
    "take_any_of_the_name": Hunt(41, ("squat", "create", "copy")),
    "destroy_foreign_disks": Hunt(11, ("hot_add", "delete")),
    "make_again_when_missing": Hunt(9, ("remove", "create")),
    "destroy_adopted": Hunt(11, ("adopt", "accept", "delete")),
    "change_in_drills": Hunt(11, ("drill", "edit_power", "create")),
    "destroy_retained": Hunt(7, ("create_with_disk", "delete", "write")),
    "another_name_when_taken": Hunt(6, ("create_twice",)),
}
"""How each bug was found last; after any change it may take another seed.

Those without a focus must be found. For one that is not any more, look for another seed among those
that everybody runs: `python -m test.simulation --plant BUG --seeds 10000 --failures 1`.
"""


def plant(name: str) -> None:
    """Put a bug into this process, for good."""
    BUGS[name]()
