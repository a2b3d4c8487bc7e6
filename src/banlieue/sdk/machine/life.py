"""The phases of a machine that should exist, in the order of identity: mint, create, seen, current.

Each phase answers one question. The order of writes is what survives a crash: `spec.instance`
stands in the API before the first creating call, `spec.providerID` only after the VM was seen.
"""

import logging
import uuid
from dataclasses import replace
from typing import Any

from banlieue.api.events import EventReason
from banlieue.api.infrastructure.machine import Instance, MoveRole
from banlieue.api.reasons import Reason
from banlieue.api.types import DriftAction
from banlieue.sdk.driver import RESTART, Driver, MachinePlan, MachineRef, MachineState, Task
from banlieue.sdk.errors import DriverError, FieldLacks, NeedsOperator
from banlieue.sdk.machine import disks, drift, epochs, plan, stopped, tags, writes
from banlieue.sdk.machine.bootstrap import read_bootstrap
from banlieue.sdk.machine.correction import note_correction
from banlieue.sdk.machine.ownership import check_ours, rebind_uuid, told_move
from banlieue.sdk.machine.permission import MAY_MAKE, SLOW, may_change, permitted
from banlieue.sdk.machine.scope import Scope, told_of
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait
from banlieue.sdk.phases import run_phases
from banlieue.sdk.provider.in_use import ensure_in_use, is_in_use
from banlieue.sdk.provider.ports import Unreached
from banlieue.sdk.upkeep import Shortfall

CREATE_TIMEOUT = 60.0
"""Seconds a creating call may take before its outcome counts as unknown."""

SOON = 1.0
"""Seconds until something that changes by itself at any moment is looked at again."""

log = logging.getLogger(__name__)


async def check_backend(scope: Scope) -> Outcome:
    """Is the backend that answers the one this machine's VM was made on, or is to be made on?"""
    instance = scope.machine.spec.instance
    identity = instance.backend_identity if instance else scope.open.identity
    if scope.open.is_backend(identity):
        return CONTINUE
    return Wait(
        Reason.BACKEND_IDENTITY_CHANGED,
        "another backend answers at the Provider's endpoint than the one this machine belongs to; "
        "correct the endpoint, or list the identity in connection.acceptedIdentities",
        SLOW,
    )


async def hold(scope: Scope) -> Outcome:
    """Is the machine held, so that its VM cannot outlive it unnoticed?

    The finalizer came with the identity. Hands and backups take it off, and the machine object is
    then gone the moment somebody deletes it.
    """
    if scope.finalizer in scope.machine.metadata.finalizers or isinstance(scope.open, Unreached):
        # Whether a Provider that was never reached is paused or read-only is not known yet.
        return CONTINUE
    has_identity = scope.machine.spec.instance is not None and scope.owner is not None
    if has_identity and await may_change(scope) is CONTINUE:
        log.info("put the finalizer back that somebody took off", extra={"key": str(scope.key)})
        await writes.hold(scope)
    return CONTINUE


async def finish_task(scope: Scope) -> Outcome:
    """Is the work of an earlier call still running?"""
    task = scope.memory.task or _recorded_task(scope)
    if task is None:
        return CONTINUE
    scope.memory.task = None
    scope.memory.tried = True
    try:
        running = await scope.open.call(lambda driver: driver.poll(task))
    except DriverError as error:
        disks.put_off_task(scope, task, error)
        return CONTINUE
    if running is None:
        return CONTINUE
    scope.memory.task = running
    return awaiting(scope, running)


def _recorded_task(scope: Scope) -> Task | None:
    """The task an earlier process left in status; asked about once, as it is only a hint."""
    recorded = scope.machine.status.task
    if scope.memory.tried or recorded is None or recorded.id is None:
        return None
    return Task(recorded.id, recorded.operation)


_WORK = {
    "create": Reason.CREATING,
    "delete": Reason.DELETING,
    "take-over": Reason.ADOPTION_PENDING,
    RESTART: Reason.RESTARTING,
}


def awaiting(scope: Scope, task: Task) -> Wait:
    """The outcome of a pass that ends with work running on the backend."""
    if task.question is not None:
        return stopped.waiting_for_answer(task.question, task.poll_after)
    leaving = scope.machine.metadata.deletion_timestamp is not None
    reason = Reason.DELETING if leaving else _WORK.get(task.operation, Reason.UPDATING)
    return Wait(reason, f"the backend is working on it: {task.operation}", task.poll_after)


async def mint(scope: Scope) -> Outcome:
    """Does the machine have an identity, persisted before anything is made?"""
    if scope.machine.spec.instance is not None:
        return CONTINUE
    outcome = await run_phases(MAY_MAKE, scope)
    if outcome is not CONTINUE:
        return outcome
    ref, backend = scope.ref(), scope.open.identity
    found = await observe(scope, ref)
    outcome = await epochs.not_overtaken(scope)
    if outcome is not CONTINUE:
        return outcome
    if found is None and scope.owner_had_vm:
        return _missing()
    minted = uuid.UUID(int=scope.ctx.rng.getrandbits(128), version=4)
    identity = rebind_uuid(ref, found) if found else str(minted)
    if found is None or not is_in_use(scope.open.provider):
        # What exists is taken up again even while the Provider is being deleted.
        await ensure_in_use(scope.ctx.api, scope.open.provider, manager=scope.manager)
    await writes.claim_instance(
        scope,
        Instance(
            uuid=identity,
            name=ref.name,
            installation_id=ref.owner.installation_id,
            backend_identity=backend,
        ),
    )
    scope.memory.minted = identity if found is None else None
    if found is not None:
        told = f"The existing VM {found.name} of this owner was found and taken up"
        scope.ctx.recorder.event(told_of(scope), EventReason.REBOUND, told)
    return CONTINUE


async def look(scope: Scope) -> Outcome:
    """Is the VM there, and is it ours?"""
    ref = scope.ref()
    scope.status_lost = ref.seen and not scope.machine.status.conditions
    found = await observe(scope, ref)
    if found is not None:
        scope.told_move = told_move(ref, found)
        check_ours(ref, found)
        scope.seen = found
        return CONTINUE
    scope.missing = ref.seen
    return _missing() if ref.seen else CONTINUE


def no_place(scope: Scope) -> Wait:
    """The outcome of a pass that needs a failure domain which is not there."""
    return Wait(
        Reason.FAILURE_DOMAIN_NOT_FOUND,
        f"the Provider does not offer failure domain {scope.domain_name!r} (any more)",
        SLOW,
    )


def _missing() -> Wait:
    return Wait(
        Reason.VM_MISSING,
        "the VM is gone from its backend; restore it there, or delete the VirtualMachine; for a "
        "new VM without its data set onMissing: Recreate",
        SLOW,
    )


async def create(scope: Scope) -> Outcome:
    """The VM is not there and never was: make it."""
    if scope.seen is not None:
        return CONTINUE
    # Asked anew: an identity may have come with a restore, or from whoever wrote the object.
    outcome = await run_phases((*MAY_MAKE, epochs.not_overtaken), scope)
    if outcome is not CONTINUE:
        return outcome
    if scope.owner_had_vm:
        return _missing()
    place = scope.open.domain(scope.domain_name)
    if place is None:
        return no_place(scope)
    await disks.check_existing(scope, place)
    image = await plan.find_image(scope, place)
    made = replace(plan.make_plan(scope, place, image), bootstrap=await read_bootstrap(scope))
    await writes.clear_refusal(scope)
    await scope.confirm_live()
    task = await scope.open.call(lambda driver: driver.create(made), timeout=CREATE_TIMEOUT)
    if task is None:
        return await look(scope)
    scope.memory.task = task
    return awaiting(scope, task)


async def record_seen(scope: Scope) -> Outcome:
    """The VM was seen: only now does the machine have a provider ID."""
    if scope.seen is None:
        return Wait(Reason.CREATING, "the VM is not visible on the backend yet", SOON)
    if scope.machine.spec.provider_id is None:
        await writes.record_provider_id(scope, scope.backend.provider_id(scope.seen.uuid))
    return CONTINUE


async def converge(scope: Scope) -> Outcome:
    """Does the VM have the power state and hardware that are asked for?"""
    seen = scope.seen
    if seen is None:
        return CONTINUE
    scope.unsupported = tags.unhonoured(scope)
    scope.differing = _differences(scope, seen)
    if not scope.differing:
        scope.memory.diverged_at = None
        return CONTINUE
    if scope.blocked is not None and drift.POWER not in scope.differing:
        return CONTINUE
    now = scope.ctx.clock.monotonic()
    since = scope.memory.diverged_at = scope.memory.diverged_at or now
    if scope.edited and seen.foreign_task:
        # Not met yet: else the edit would be taken for drift from the next pass on.
        return Wait(
            Reason.PROVIDER_BUSY,
            "somebody else works on the VM; the change is made when that has ended",
            drift.SETTLE_SECONDS,
        )
    correcting = _correcting(scope)
    patience = drift.patience(
        edited=scope.edited,
        correct=bool(correcting),
        busy=seen.foreign_task or (seen.held and not scope.edited),
        since=since,
        now=now,
    )
    if not patience.act:
        scope.again_after = patience.again_after
        return CONTINUE
    outcome = await run_phases((permitted, may_change), scope)
    return await _update(scope, seen) if outcome is CONTINUE else outcome


def _differences(scope: Scope, seen: MachineState) -> tuple[str, ...]:
    found, own = drift.differences(scope.desired, seen), scope.backend.differing
    return (*found, *own(scope.machine.spec, seen)) if own else found


def _correcting(scope: Scope) -> tuple[str, ...]:
    """The differing fields that may be put right without an edit."""
    policy = scope.machine.spec.drift_policy
    power = policy.power if policy else None
    hardware = policy.hardware if policy else None
    by_hand = drift.nics_wait_for_edit(scope.desired, scope.seen)
    return tuple(
        name
        for name in scope.differing
        if (power if name == drift.POWER else hardware) is not DriftAction.REPORT
        and not (name == drift.NICS and by_hand)
    )


async def _update(scope: Scope, seen: MachineState) -> Outcome:
    place = scope.open.domain(scope.domain_name)
    if scope.machine.spec.role is MoveRole.PREVIOUS:
        wanted: MachinePlan[Any] = plan.power_plan(scope, seen)
    elif place is not None:
        wanted = plan.make_plan(scope, place)
    else:
        return no_place(scope)
    note_correction(scope)
    try:
        await disks.check_existing(scope, place)
        task = await scope.open.call(lambda driver: driver.update(wanted, seen))
    except FieldLacks as error:
        scope.shortfalls = (Shortfall(error.field, error.reason, error.message),)
        scope.again_after = SLOW
        return CONTINUE
    except NeedsOperator as error:
        if error.reason is Reason.RESTART_REQUIRED:
            scope.waits_for_restart = True
            return CONTINUE
        return disks.put_off(scope, error)
    if task is not None:
        scope.memory.task = task
        return awaiting(scope, task)
    outcome = await look(scope)
    if outcome is CONTINUE and scope.seen is not None:
        scope.differing = _differences(scope, scope.seen)
        left = tuple(name for name in scope.differing if name != drift.POWER)
        scope.unsupported = (*scope.unsupported, *left)
    return outcome


async def observe(scope: Scope, ref: MachineRef) -> MachineState | None:
    """What the backend has under this identity; None only with proof of absence."""

    def ask(driver: Driver[Any]) -> MachineState | None:
        return driver.observe(ref)

    return await scope.open.call(ask)
