"""The phases of a machine that takes over a VM which exists already.

Until it is accepted the VM is only looked at. Then its identity is persisted in the machine
object, then the mark is written on the VM, and from there on it is a machine like any other. The
mark decides who has it: of several who want one VM, the first to write it wins.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from banlieue.api.events import EventReason
from banlieue.api.infrastructure.machine import Instance
from banlieue.api.reasons import Reason
from banlieue.sdk import tenancy
from banlieue.sdk.driver import Driver, Task
from banlieue.sdk.errors import DriverError, Foreign, InvalidSpec
from banlieue.sdk.identity import Mark, valid_mark
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.machine import adopted, drift, epochs, life, permission, writes
from banlieue.sdk.machine.ownership import own_mark, wanted_mark
from banlieue.sdk.machine.scope import Scope, owner_of, told_of
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait
from banlieue.sdk.phases import run_phases
from banlieue.sdk.powers import Adoption, Candidate
from banlieue.sdk.provider.in_use import ensure_in_use, is_in_use

_PENDING_SECONDS = 300.0
"""How often a VM that is to be adopted is looked at; an edit of the object does it at once."""


async def survey(scope: Scope) -> Outcome:
    """Which VM is meant, and is it free? What would change is told; nothing is until accepted."""
    adopt = scope.machine.spec.adopt
    if adopt is None or scope.machine.spec.instance is not None:
        return CONTINUE
    outcome = await run_phases((permission.permitted, _allowed, _know_owner), scope)
    if outcome is not CONTINUE:
        return outcome
    found = await _find(scope)
    if found is None:
        return _not_found(scope)
    _check_free(scope, found)
    scope.seen = found.state
    scope.differing = drift.differences(scope.desired, found.state)
    if not adopt.accepted:
        pause = _PENDING_SECONDS * scope.ctx.rng.uniform(0.8, 1.2)
        return Wait(Reason.ADOPTION_PENDING, _told(scope), pause)
    return await _claim(scope, found)


async def _allowed(scope: Scope) -> Outcome:
    """May this namespace adopt here at all?"""
    labels = scope.namespace_labels()
    if tenancy.adoption_allowed(scope.open.provider, scope.key.namespace, labels):
        return CONTINUE
    return Wait(
        Reason.ADOPTION_NOT_ALLOWED,
        "the Provider does not let this namespace adopt machines; ask its admin for "
        "policy.adoption.allowedNamespaces",
        permission.SLOW,
    )


_ANOTHERS = (
    "another object takes this VM over or has it already; adopt another one, or delete that object "
    "first"
)


async def _know_owner(scope: Scope) -> Outcome:
    """Whose mark would be the machine's own?"""
    known = await permission.known_installation(scope)
    if isinstance(known, Wait):
        return known
    scope.owner = owner_of(scope.machine, known.id)
    return CONTINUE


async def _find(scope: Scope) -> Candidate | None:
    """The VM the machine names, as it is now."""
    adopt = scope.machine.spec.adopt

    def find(driver: Driver[Any]) -> Candidate | None:
        if not isinstance(driver, Adoption):
            raise InvalidSpec(
                Reason.UNSUPPORTED_BY_PROVIDER,
                "this backend cannot adopt machines; make this object without spec.adopt",
            )
        return driver.find(adopt.id if adopt else "")

    return await scope.open.call(find)


def _not_found(scope: Scope) -> Wait:
    adopt = scope.machine.spec.adopt
    return Wait(
        Reason.ADOPTION_NOT_FOUND,
        f"the Provider has no VM with the id {adopt.id if adopt else ''!r}; correct the id in a "
        "new object, or spec.providerRef if another Provider has it",
        _PENDING_SECONDS,
    )


def _check_free(scope: Scope, found: Candidate) -> None:
    """Refuse a VM that is somebody's already, by its mark or by a machine object.

    Raises:
        Foreign: it is; nothing may be told of it or changed on it.
    """
    ref, mark = scope.ref(), found.state.mark
    if mark is not None and _is_marked(mark, found.state.uuid) and mark.owner != ref.owner:
        raise Foreign(
            "the VM belongs to another object already, by the mark it carries; adopt another one, "
            "or release it there with deletionPolicy Orphan"
        )
    if any(_others_of(scope, found.state.uuid)):
        raise Foreign(_ANOTHERS)


def _others_of(scope: Scope, uuid: str) -> Iterator[Obj]:
    """Specs of other machine objects that persisted the identity of a VM."""
    for other in scope.ctx.cache.list(scope.backend.machine):
        spec = other.get("spec") or {}
        known = str((spec.get("instance") or {}).get("uuid", ""))
        if known.lower() == uuid.lower() and Key.of(other) != scope.key:
            yield spec


def _told(scope: Scope) -> str:
    """What is to be decided, and what would change."""
    changes = ", ".join(_changes(scope))
    would = f"accepting changes {changes}" if changes else "accepting changes nothing but its mark"
    return f"the VM is only observed; {would}; set spec.adopt.accepted to true to have it managed"


def _changes(scope: Scope) -> Iterator[str]:
    """What differs between the spec and the VM, with both values where these are short."""
    want, seen = scope.desired, scope.seen
    values = (
        {
            drift.POWER: (seen.power.value, want.power.value),
            drift.CPUS: (seen.cpus, want.cpus),
            drift.MEMORY: (seen.memory_mib, want.memory_mib),
        }
        if seen
        else {}
    )
    for name in scope.differing:
        if name in values:
            before, after = values[name]
            yield f"{name} from {before} to {after}"
        elif name == drift.NICS:
            yield f"{name} ({', '.join(drift.differing_nics(want, seen))})"
        else:
            yield name


async def _claim(scope: Scope, found: Candidate) -> Outcome:
    """Persist the VM's identity in the machine object, before anything is written on the VM."""
    outcome = await run_phases(permission.MAY_MAKE, scope)
    if outcome is not CONTINUE:
        return outcome
    uuid = found.state.uuid.lower()
    ref = replace(scope.ref(), uuid=uuid)
    await scope.open.call(lambda driver: epochs.check_alone(driver, ref))
    if own_mark(ref, found.state) is None or not is_in_use(scope.open.provider):
        # What was taken over is taken up again even while the Provider is being deleted.
        await ensure_in_use(scope.ctx.api, scope.open.provider, manager=scope.manager)
    await writes.claim_instance(
        scope,
        Instance(
            uuid=uuid,
            name=found.state.name,
            installation_id=ref.owner.installation_id,
            backend_identity=scope.open.identity,
            reserved=adopted.reserved(found.state),
        ),
    )
    return CONTINUE


async def take_over(scope: Scope) -> Outcome:
    """Is the VM marked as the machine's? If it is nobody's yet, have it marked."""
    spec = scope.machine.spec
    if spec.adopt is None or spec.provider_id is not None:
        return CONTINUE
    scope.seen = None
    ref = scope.ref()
    found = await life.observe(scope, ref)
    if found is None:
        return _not_found(scope)
    if own_mark(ref, found) is not None or _is_marked(found.mark, found.uuid):
        return CONTINUE  # the look that follows tells whose it is
    if any(other.get("providerID") for other in _others_of(scope, found.uuid)):
        # It was marked for that object; that somebody spoiled the mark gives it to nobody else.
        raise Foreign(_ANOTHERS)
    outcome = await run_phases((permission.permitted, _allowed, permission.may_change), scope)
    if outcome is not CONTINUE:
        return outcome
    await scope.confirm_live()

    def take(driver: Driver[Any]) -> Task | None:
        if not isinstance(driver, Adoption):
            return None
        epochs.check_alone(driver, ref)
        return driver.take_over(ref, wanted_mark(ref))

    task = await scope.open.call(take)
    if task is None:
        return CONTINUE
    scope.memory.task = task
    return life.awaiting(scope, task)


async def never_made(scope: Scope) -> Outcome:
    """What was to be taken over is never made, should it vanish in between."""
    if scope.machine.spec.adopt is None or scope.seen is not None:
        return CONTINUE
    return _not_found(scope)


def _is_marked(mark: Mark | None, uuid: str) -> bool:
    return mark is not None and valid_mark(mark, uuid)


async def record(scope: Scope) -> Outcome:
    """The VM is marked: only now does the machine have the provider ID that its guest shows."""
    spec = scope.machine.spec
    if spec.adopt is None or spec.provider_id is not None:
        return CONTINUE
    found = await _find(scope)
    if found is None:
        return _not_found(scope)
    await writes.record_provider_id(scope, scope.backend.provider_id(found.hardware_uuid))
    scope.ctx.recorder.event(
        told_of(scope), EventReason.ADOPTED, f"The existing VM {found.state.name} was taken over"
    )
    return CONTINUE


async def settle(scope: Scope) -> Outcome:
    """Before an object goes: is the mark still being written that its release takes off again?

    A backend that does not answer holds nobody: release must go through without it.
    """
    spec = scope.machine.spec
    if spec.adopt is None or spec.provider_id is not None:
        return CONTINUE
    try:
        return await life.finish_task(scope)
    except DriverError:
        return CONTINUE


async def leave(scope: Scope) -> Outcome:
    """Was the VM never taken over? Then it is left as it is, whatever the intent."""
    spec = scope.machine.spec
    if spec.adopt is None or spec.provider_id is not None:
        return CONTINUE
    ref = scope.ref()
    found = await life.observe(scope, ref)
    if found is not None and own_mark(ref, found) is not None:
        return CONTINUE
    await writes.drop_finalizer(scope)
    return Wait(Reason.DELETING, "the VM was never taken over and is left as it is")
