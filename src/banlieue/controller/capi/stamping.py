"""What a machine of Cluster API waits for before it is given to a Provider, and the stamp.

Nothing but its status is written until everything is there; then one apply says where it is made,
from what it boots and what becomes of it in the end. From then on its status is the provider's.
"""

import logging

from banlieue.api import names
from banlieue.api.events import EventReason
from banlieue.api.infrastructure.cluster import InfraCluster
from banlieue.api.infrastructure.machine import (
    MachinePlacement,
    MachineSpec,
    MachineUserData,
    Teardown,
    TeardownMode,
)
from banlieue.api.meta import NameRef, NamespacedRef
from banlieue.api.reasons import Reason
from banlieue.api.types import AddressSource
from banlieue.controller.capi import berths, objects
from banlieue.controller.capi.choosing import Choice, choose, offers
from banlieue.controller.capi.scope import Scope
from banlieue.controller.clusters.kinds import of_classes
from banlieue.controller.scheduling import facts
from banlieue.controller.scheduling.assume import REFUSAL_SECONDS, Waiting
from banlieue.controller.scheduling.placement import Decision, Demand, Place, Placed, Unplaced
from banlieue.sdk.kube import Conflict, Invalid, Key, NotFound, Obj
from banlieue.sdk.outcome import CONTINUE, Outcome, Stop, Wait

log = logging.getLogger(__name__)

SLOW = 300.0
"""Seconds until something is looked at again that tells of its changes otherwise."""


async def confirm_installation(scope: Scope) -> Outcome:
    """Is this the installation the machines were made by? Else nothing is placed."""
    scope.standing = await scope.services.keeper.standing()
    problem = scope.standing.problem
    return Wait(Reason.INSTALLATION_UNCONFIRMED, problem, SLOW) if problem else CONTINUE


async def check_owner(scope: Scope) -> Outcome:
    """Does the Machine that owns the object refer to it, and is it to live?"""
    owner, name = scope.owner, scope.reference.name
    if owner is None or owner["metadata"]["uid"] != scope.reference.uid:
        return Wait(
            Reason.NOT_REFERENCED,
            f"Machine {name} of metadata.ownerReferences does not exist, or is another one of that "
            "name; nothing is made for it: delete this object",
        )
    if not objects.names_machine(owner, scope.kind, scope.key):
        return Wait(
            Reason.NOT_REFERENCED,
            f"Machine {name} does not refer to this object by spec.infrastructureRef; nothing is "
            "made for it: delete this object, or correct the reference",
        )
    if objects.is_leaving(owner):
        return Wait(Reason.DELETING, f"Machine {name} is being deleted")
    return CONTINUE


async def await_cluster(scope: Scope) -> Outcome:
    """Is what the whole Cluster needs there?"""
    name = objects.cluster_name(scope.owner or {})
    if scope.cluster is None:
        return Wait(
            Reason.WAITING_FOR_CLUSTER_INFRASTRUCTURE_READY,
            f"Cluster {name} does not exist; make it, or delete Machine {scope.reference.name}",
        )
    if not objects.is_initialized(scope.cluster, "infrastructureProvisioned"):
        return Wait(
            Reason.WAITING_FOR_CLUSTER_INFRASTRUCTURE_READY,
            f"the infrastructure of Cluster {name} is not provisioned yet; see its condition "
            "InfrastructureReady",
        )
    return CONTINUE


async def await_data(scope: Scope) -> Outcome:
    """Is there something for the guest to boot with?"""
    owner, cluster = scope.owner or {}, scope.cluster or {}
    if objects.data_secret(owner):
        return CONTINUE
    if not objects.is_control_plane(owner) and not objects.is_initialized(
        cluster, "controlPlaneInitialized"
    ):
        return Wait(
            Reason.WAITING_FOR_CONTROL_PLANE_INITIALIZED,
            f"the control plane of Cluster {objects.cluster_name(owner)} is not initialized yet, "
            "which workers join",
        )
    return Wait(
        Reason.WAITING_FOR_BOOTSTRAP_DATA,
        f"Machine {scope.reference.name} has no spec.bootstrap.dataSecretName yet",
    )


async def check_addresses(scope: Scope) -> Outcome:
    """Are addresses out of pools left to the pools?

    One that stands in a template would be that of all its machines, and of whoever has it already.
    """
    for nic in scope.machine.spec.network_interfaces:
        given = [it for it in nic.ipam if it.source is AddressSource.POOL and it.address]
        if given and not objects.is_stamped(scope.machine):
            return Stop(
                Reason.INVALID_CONFIGURATION,
                f"networkInterfaces[{nic.name}]: {given[0].address} is given with source pool, "
                "which gives an address itself; leave address out, in a new template",
            )
    return CONTINUE


CHECKS = (confirm_installation, check_owner, check_addresses, await_cluster, await_data)
"""What has to be there, by the cache first and then by live reads."""


async def stamp(scope: Scope) -> Outcome:
    """Choose a place, and give the machine to its Provider in one write."""
    standing = scope.standing
    if standing is None or not scope.live:
        raise LookupError("a stamp needs everything read live")
    reference = scope.machine.spec.image_ref
    if reference is not None and scope.services.image(reference.name) is None:
        _wait(scope, reference.name)
        return Wait(Reason.IMAGE_NOT_FOUND, f"VMImage {reference.name} does not exist; make it")
    found = demand_for(scope)
    if found is None:
        _wait(scope, None)
        return Wait(
            Reason.WAITING_FOR_CLUSTER_INFRASTRUCTURE_READY,
            "the InfraCluster that the Cluster refers to does not exist, or no ProviderClass has "
            "its kind in spec.cluster; make what is missing",
            SLOW,
        )
    wanted, cluster = found
    ledger = scope.services.cluster_machines
    async with ledger.turn:
        choice = choice_for(scope, wanted, *cluster)
        decision = choose(wanted, choice, scope.services.everybody(standing.id))
        if isinstance(decision, Placed):
            ledger.promise(facts.promised(wanted, decision.place))
    return await _act(scope, wanted, decision)


def demand_for(scope: Scope) -> tuple[Demand, tuple[InfraCluster, str]] | None:
    """What a machine needs, and its InfraCluster with the name of its CRD; None without one."""
    cluster, owner, standing = scope.infra_cluster(), scope.owner or {}, scope.standing
    if cluster is None or standing is None:
        return None
    reference, plane = scope.machine.spec.image_ref, objects.is_control_plane(owner)
    wanted = berths.demand(
        scope.kind,
        scope.machine,
        scope.services.image(reference.name) if reference else None,
        digest=berths.digest(standing.id, scope.key.namespace, scope.reference.name),
        selector=cluster[0].spec.control_plane_failure_domain_selector if plane else None,
    )
    return wanted, cluster


def choice_for(scope: Scope, wanted: Demand, cluster: InfraCluster, crd: str) -> Choice:
    """Among what a machine's place is chosen, by what Providers tell now."""
    services, standing = scope.services, scope.standing
    image = services.image(wanted.image) if wanted.image else None
    sites = services.sites(image, scope.key.namespace)
    kin = frozenset(it.key for it in sites if _is_kin(scope, it.class_name))
    classes = of_classes(scope.ctx.cache)
    kinds = classes if crd else dict.fromkeys(classes, "")
    return Choice(
        sites=sites,
        kin=kin,
        offers=[it for it in offers(cluster, crd, sites, kinds) if it.key in kin],
        domain=objects.failure_domain(scope.owner or {}),
        recovery=standing is not None and standing.recovery,
        refused=services.cluster_machines.refusals(wanted),
    )


def _is_kin(scope: Scope, class_name: str) -> bool:
    kind = scope.services.kinds.of_class(class_name)
    return kind is not None and (kind.group, kind.kind) == (scope.kind.group, scope.kind.kind)


async def _act(scope: Scope, wanted: Demand, decision: Decision) -> Outcome:
    ledger = scope.services.cluster_machines
    if isinstance(decision, Unplaced):
        _wait(scope, wanted.image or None)
        ledger.miss(wanted, decision)
        scope.ctx.recorder.event(
            scope.raw, EventReason.SCHEDULING_FAILED, decision.message, warning=True
        )
        after = REFUSAL_SECONDS if ledger.refusals(wanted) else None
        if decision.lasting:
            return Stop(decision.reason, decision.message)
        return Wait(decision.reason, decision.message, after)
    try:
        await _write(scope, decision.place)
    # After any other error it may have been written: the promise stands until the object tells.
    except (Conflict, Invalid, NotFound):
        ledger.withdraw(wanted.key)
        raise
    ledger.resume(wanted.key)
    scope.ctx.recorder.event(
        scope.raw,
        EventReason.SCHEDULED,
        f"Placed in failure domain {decision.place.domain} of Provider {decision.place.provider}",
    )
    return CONTINUE


def _wait(scope: Scope, image: str | None) -> None:
    scope.services.cluster_machines.wait(scope.berth, Waiting(None, image))


async def _write(scope: Scope, place: Place) -> Obj:
    """The stamp: exactly four fields, on exactly the version that was looked at."""
    meta, owner = scope.raw["metadata"], scope.owner or {}
    spec = MachineSpec(
        provider_ref=NamespacedRef(name=place.provider.name, namespace=place.provider.namespace),
        placement=MachinePlacement(failure_domain=place.domain),
        user_data=MachineUserData(secret_ref=NameRef(name=objects.data_secret(owner))),
        teardown=Teardown(mode=TeardownMode.DESTROY, uid=meta["uid"]),
    )
    body = {
        "apiVersion": scope.kind.api_version,
        "kind": scope.kind.kind,
        "metadata": {name: meta[name] for name in ("namespace", "name", "resourceVersion")},
        "spec": spec.to_api(),
    }
    log.info(
        "machine placed",
        extra={"machine": str(Key.of(scope.raw)), "provider": str(place.provider)},
    )
    return await scope.ctx.api.apply(scope.kind, body, manager=names.MANAGER_STAMP)
