"""The phases of a VirtualMachine that should exist, in the order of identity.

The status names the machine object before it is POSTed, so a restart POSTs what stands there, and
only an object that a VirtualMachine refers to ever becomes a VM.
"""

from banlieue.api import names
from banlieue.api.conditions import ConditionType
from banlieue.api.reasons import Reason
from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.controller import writes
from banlieue.controller.addresses.reported import tell_addresses
from banlieue.controller.infra import teardown
from banlieue.controller.infra.kinds import Found
from banlieue.controller.infra.refer import find_machine, make_machine
from banlieue.controller.moves.phases import gather, move
from banlieue.controller.scheduling import facts, placement_check
from banlieue.controller.scheduling.placement import Place
from banlieue.controller.scheduling.redo import redo_refused
from banlieue.controller.vm.adopt_phases import follow_pin, locate
from banlieue.controller.vm.follow import follow_spec
from banlieue.controller.vm.recreate import recreate_missing
from banlieue.controller.vm.scope import Scope
from banlieue.sdk.conditions import false
from banlieue.sdk.kube import Key
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait

_SOON = 0.1


async def confirm_installation(scope: Scope) -> Outcome:
    """Is this the installation the machines were made by? Else nothing is touched."""
    scope.standing = await scope.services.keeper.standing()
    problem = scope.standing.problem
    if problem is None:
        return CONTINUE
    kind = ConditionType.INFRASTRUCTURE_READY if scope.scheduled else ConditionType.SCHEDULED
    scope.settle(false(kind, Reason.INSTALLATION_UNCONFIRMED, problem))
    return Wait(Reason.INSTALLATION_UNCONFIRMED, problem)


async def ensure_finalizer(scope: Scope) -> Outcome:
    """Will the object stay until its machine is gone?"""
    held = await writes.add_finalizer(
        scope.ctx.api, VIRTUAL_MACHINES, scope.raw, names.FINALIZER_VIRTUAL_MACHINE
    )
    if held is not scope.raw:
        scope.replace(held)
    return CONTINUE


async def await_release(scope: Scope) -> Outcome:
    """Is the machine object on its way out although the VirtualMachine lives?

    Somebody deleted it, or the garbage collector did because it was restored with the uid of an
    earlier owner. Its provider lets the VM go untouched; the object is then made again.
    """
    machine, raw, kind = scope.machine, scope.machine_raw, scope.kind
    if machine is None or raw is None or kind is None:
        return CONTINUE
    if machine.metadata.deletion_timestamp is None:
        return CONTINUE
    gone = await teardown.let_go(scope.ctx.api, Found(kind, raw))
    ending = await teardown.is_ending(scope.ctx.api, scope.key.namespace)
    after = (
        "until this VirtualMachine is deleted, too, as its namespace is"
        if ending
        else "and taken up again"
    )
    outcome = Wait(
        Reason.WAITING_FOR_INFRASTRUCTURE,
        f"its machine object is being deleted; the machine itself is left alone {after}",
        _SOON if gone else None,
    )
    scope.settle(false(ConditionType.INFRASTRUCTURE_READY, outcome.reason, outcome.message))
    return outcome


async def check_placement(scope: Scope) -> Outcome:
    """Does the place still meet the spec? Whatever the answer, nothing moves for it."""
    placed, where = scope.scheduled, scope.place
    if placed is None or where is None:
        return CONTINUE
    site = scope.services.site(where.provider, scope.image, scope.key.namespace)
    observed = _observed(scope)
    neighbour = _too_near(scope, Place(where.provider, observed or where.domain))
    scope.settle(placement_check.placement(scope.vm, placed, observed, site, neighbour))
    if not scope.view().provisioned and scope.vm.spec.adopt is None:
        _check_image(scope, where)
    return CONTINUE


def _too_near(scope: Scope, there: Place) -> Key | None:
    if scope.standing is None:
        return None
    services = scope.services
    return placement_check.too_near(
        scope.vm,
        there,
        services.everybody(scope.standing.id),
        lambda: services.sites(None, scope.key.namespace),
    )


def _observed(scope: Scope) -> str | None:
    seen = scope.machine.status.failure_domain if scope.machine else None
    return seen or scope.vm.status.observed_failure_domain


def _check_image(scope: Scope, where: Place) -> None:
    row = facts.image_row(scope.image, where.provider)
    if scope.image is not None and not facts.image_usable(row, where.domain):
        scope.wait_for_others()
        message = (row.message if row else None) or "the Provider has not made it usable there yet"
        scope.settle(
            false(
                ConditionType.IMAGE_READY,
                Reason.IMAGE_NOT_READY,
                f"image {scope.image.metadata.name}: {message}",
            )
        )


PHASES = (
    confirm_installation,
    ensure_finalizer,
    gather,
    find_machine,
    make_machine,
    check_placement,
    await_release,
    recreate_missing,
    redo_refused,
    follow_pin,
    locate,
    move,
    follow_spec,
    tell_addresses,
)
