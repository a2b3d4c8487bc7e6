"""What is asked before anything is made or changed on a backend for a machine, whoever asks.

Each phase answers one question, with a live read where a cache that is behind could do harm.
"""

from typing import Any

from banlieue.api.infrastructure.machine import MoveRole
from banlieue.api.reasons import Reason
from banlieue.api.resources import CAPI_MACHINES, VIRTUAL_MACHINES
from banlieue.api.v1alpha1.virtualmachine import OnMissing
from banlieue.sdk import installation, tenancy
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE
from banlieue.sdk.installation import Installation
from banlieue.sdk.kube import Key, NotFound, Obj
from banlieue.sdk.machine.granted import agrees_on_data
from banlieue.sdk.machine.scope import Scope, owner_of
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait

SLOW = 300.0
"""Seconds until something only people can change is looked at again."""


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
