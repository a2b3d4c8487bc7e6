"""The phases of a machine that should exist, in the order of identity: mint, create, seen, current.

Each phase answers one question. The order of writes is what survives a crash: `spec.instance`
stands in the API before the first creating call, `spec.providerID` only after the VM was seen.
"""

import uuid
from dataclasses import replace
from typing import Any

from banlieue.api.infrastructure.machine import Instance, MoveRole
from banlieue.api.reasons import EventReason, Reason
from banlieue.api.resources import CAPI_MACHINES, VIRTUAL_MACHINES
from banlieue.api.types import DriftAction
from banlieue.api.v1alpha1.virtualmachine import OnMissing
from banlieue.sdk import installation, tenancy
from banlieue.sdk.driver import RESTART, Driver, MachinePlan, MachineRef, MachineState, Task
from banlieue.sdk.errors import DriverError, FieldLacks, NeedsOperator
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE
from banlieue.sdk.installation import Installation
from banlieue.sdk.kube import Key, NotFound, Obj
from banlieue.sdk.machine import disks, drift, epochs, plan, stopped, tags, writes
from banlieue.sdk.machine.bootstrap import read_bootstrap
from banlieue.sdk.machine.correction import note_correction
from banlieue.sdk.machine.granted import agrees_on_data
from banlieue.sdk.machine.ownership import check_ours, rebind_uuid, told_move
from banlieue.sdk.machine.scope import Scope, owner_of, told_of
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait
from banlieue.sdk.phases import run_phases
from banlieue.sdk.provider.in_use import ensure_in_use, is_in_use
from banlieue.sdk.upkeep import Shortfall

CREATE_TIMEOUT = 60.0
"""Seconds a creating call may take before its outcome counts as unknown."""

SLOW = 300.0
"""Seconds until something only people can change is looked at again."""

SOON = 1.0
"""Seconds until something that changes by itself at any moment is looked at again."""


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
    if found is not None:
        told = f"The existing VM {found.name} of this owner was found and taken up"
        scope.ctx.recorder.event(told_of(scope), EventReason.REBOUND, told)
    return CONTINUE


async def _referred(scope: Scope) -> Outcome:
    """The owner, read live, refers to this very object; else it was left behind by a restore."""
    owner = owner_of(scope.machine, "-")
    if owner is None:
        return Wait(Reason.NOT_REFERENCED, "no VirtualMachine or Machine owns this object")
    made_by_vm = owner.kind == OWNER_VIRTUAL_MACHINE
    resource = VIRTUAL_MACHINES if made_by_vm else CAPI_MACHINES
    try:
        obj = await scope.ctx.api.get(resource, Key(owner.namespace, owner.name))
    except NotFound:
        obj = {}
    if (obj.get("metadata") or {}).get("deletionTimestamp"):
        return Wait(Reason.DELETING, f"{owner.kind} {owner.name} is being deleted", SLOW)
    current = scope.machine.spec.role is MoveRole.CURRENT
    scope.owner_had_vm = current and _had_vm(obj, made_by_vm=made_by_vm)
    if any(_refers(reference, scope) for reference in _references(obj, made_by_vm=made_by_vm)):
        return CONTINUE if made_by_vm else agrees_on_data(scope.machine, obj)
    return Wait(
        Reason.NOT_REFERENCED,
        f"{owner.kind} {owner.name} does not refer to this object; nothing is made for it",
        SLOW,
    )


def _had_vm(obj: Obj, *, made_by_vm: bool) -> bool:
    """Whether the owner tells that its VM was seen, and does not ask for another one.

    The machine object that knew it may have been lost, and a VM that is not found may be hidden.
    """
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if not made_by_vm:
        return bool(spec.get("providerID"))
    provisioned = (status.get("initialization") or {}).get("provisioned")
    return bool(provisioned) and spec.get("onMissing") != OnMissing.RECREATE


def _references(obj: Obj, *, made_by_vm: bool) -> list[dict[str, Any]]:
    if made_by_vm:
        status = obj.get("status") or {}
        return [status.get("infrastructureRef") or {}, status.get("incomingRef") or {}]
    return [(obj.get("spec") or {}).get("infrastructureRef") or {}]


def _refers(reference: dict[str, Any], scope: Scope) -> bool:
    kind = scope.backend.machine
    return (
        reference.get("kind") == kind.kind
        and reference.get("apiGroup") == kind.group
        and reference.get("name") == scope.key.name
        and reference.get("namespace", scope.key.namespace) == scope.key.namespace
    )


async def permitted(scope: Scope) -> Outcome:
    """The Provider is offered to this namespace; one that lost it keeps its VMs as they are."""
    labels = scope.namespace_labels()
    if not tenancy.namespace_allowed(scope.open.provider, scope.key.namespace, labels):
        return Wait(
            Reason.PROVIDER_NOT_ALLOWED,
            "the Provider does not allow this namespace; ask its admin for allowedNamespaces",
            SLOW,
        )
    return CONTINUE


async def _fields_permitted(scope: Scope) -> Outcome:
    """May a machine of this namespace name the templates, folders and so on that it names?"""
    spec = scope.machine.spec
    refused = tenancy.refused_fields(scope.open.provider, scope.key.namespace, spec)
    if refused:
        return Wait(
            Reason.VALUE_NOT_ALLOWED,
            f"the Provider does not allow this namespace these values: {', '.join(refused)}; "
            "leave them out, or ask its admin for policy.concreteFields",
            SLOW,
        )
    return CONTINUE


async def known_installation(scope: Scope) -> Installation | Wait:
    """Whose machines are these? Confirmed or not."""
    known = await installation.read_live(scope.ctx.api, scope.installation_namespace)
    return known or Wait(
        Reason.INSTALLATION_UNCONFIRMED,
        "ConfigMap banlieue-installation is missing; the controller makes it when it starts",
        5.0,
    )


async def may_change(scope: Scope) -> Outcome:
    """May anything on the backend be changed or destroyed by this process at all?

    Not while the Provider is paused or read-only, nor in an installation that is not confirmed
    for this very cluster: a backup restored elsewhere must not act on the VMs of the original.
    """
    if not scope.open.writable:
        return Wait(Reason.PROVIDER_PAUSED, "the Provider is paused or read-only", SLOW)
    known = await known_installation(scope)
    if isinstance(known, Wait):
        return known
    if not known.confirmed:
        return Wait(
            Reason.INSTALLATION_UNCONFIRMED,
            "this installation was restored from another cluster; "
            "run `banlieue recover --confirm` once the old one is off",
            SLOW,
        )
    if scope.machine.spec.instance is None:
        scope.owner = owner_of(scope.machine, known.id)
    return CONTINUE


MAY_MAKE = (_referred, permitted, _fields_permitted, may_change)
"""What is asked before anything is made, whoever gave the machine its identity."""


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
