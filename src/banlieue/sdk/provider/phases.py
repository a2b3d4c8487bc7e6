"""The phases of a Provider's pass, in the order a connection comes about.

Each answers one question. A phase that cannot answer it raises, and the pass ends there with what
is known; everything published before stays as it was.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from banlieue.api.conditions import ConditionType
from banlieue.api.names import ANNOTATION_FAILURE_DOMAINS
from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDER_CLASSES, PROVIDERS
from banlieue.api.v1alpha1.provider import Unclaimed
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.sdk import installation
from banlieue.sdk.driver import Driver, FailureDomain, MachineState
from banlieue.sdk.errors import NeedsOperator, Transient
from banlieue.sdk.kube import Forbidden, Key, NotFound, Obj
from banlieue.sdk.outcome import CONTINUE, Outcome, Stop
from banlieue.sdk.powers import CreateWatch, Inventory, MarkWriter
from banlieue.sdk.provider import capabilities, domains, in_use, inventory
from banlieue.sdk.provider.connection import (
    ConnectionInvalid,
    Source,
    make_connection,
    sources,
)
from banlieue.sdk.provider.retained import read_retained
from banlieue.sdk.provider.scope import KnownMachine, ProviderScope
from banlieue.sdk.provider.sight import lost_sight
from banlieue.sdk.upkeep import Upkeeper

REFRESH = 300.0
"""Seconds between two reads of the backend's failure domains, and of all that carries our mark."""

SECRET_CHECK = 60.0
"""Seconds between two reads of the Secrets; no watch on Secrets is allowed to us."""

SECRET_CHECK_FAILING = 15.0
"""The same while the connection fails for what stands in them."""

RIGHTS_CHECK = 45.0
"""Seconds between two looks at what the account may do while it lacks something."""

INVENTORY_PAUSE = 60.0
"""Least seconds between two full reads that changes on the backend ask for."""

COUNTS_PAUSE = 10.0
"""Least seconds between two writes of machine counts and unclaimed machines."""

IDLE = 120.0
"""Seconds without a machine after which a Provider no longer counts as in use."""

GRANT_PATIENCE = 15.0
"""Seconds a refused read may be that of an operator which has not named the Secret yet."""

ABOUT_TIMEOUT = 10.0
INVENTORY_TIMEOUT = 120.0


async def check_class(scope: ProviderScope) -> Outcome:
    """Is this a Provider of the backend that this process serves?"""
    name = scope.provider.spec.provider_class_ref.name
    raw = scope.ctx.cache.get(PROVIDER_CLASSES, Key("", name))
    if raw is None:
        scope.class_missing = True
        return CONTINUE  # machines that exist are served on; the operator lets the workload be
    found = ProviderClass.from_api(raw)
    scope.class_paused = bool(found.spec.paused)
    if found.spec.backend == scope.backend.name:
        return CONTINUE
    return Stop(
        Reason.PROVIDER_CLASS_MISMATCH,
        f"ProviderClass {name!r} is of backend {found.spec.backend!r}, and this Provider is served "
        f"by backend {scope.backend.name!r}; refer to a class of that backend, or make a new "
        "Provider",
    )


async def read_connection(scope: ProviderScope) -> Outcome:
    """What do the Provider and its Secrets say about the connection?"""
    memory, generation = scope.memory, scope.provider.metadata.generation
    spec = scope.provider.spec
    scope.flaws = capabilities.flaws(spec, scope.backend)
    settled = memory.connection is not None and scope.session.connected
    every = SECRET_CHECK if settled else SECRET_CHECK_FAILING
    unchanged = memory.connection is not None and memory.sources_of == generation
    if unchanged and not scope.due(memory.sources_read, every - 1.0):
        return CONTINUE
    objects = {source: await _read(scope, source) for source in sources(scope.provider).all()}
    memory.sources_of, memory.sources_read = generation, scope.ctx.clock.monotonic()
    memory.readable |= objects.keys()
    memory.refused.clear()
    memory.connection = None
    memory.connection = replace(
        make_connection(scope.provider, objects),
        capabilities=capabilities.without_flaws(spec.capabilities, scope.backend),
        settings=capabilities.known_settings(spec.settings, scope.backend),
    )
    return CONTINUE


async def _read(scope: ProviderScope, source: Source) -> Obj | None:
    try:
        return await scope.ctx.api.get(*source)
    except NotFound:
        return None
    except Forbidden as error:
        resource, key = source
        told = (
            f"{resource.kind} {key} may not be read by this process; grant it `get` on that object"
        )
        # An API server that just started refuses everybody for a moment, and an operator that
        # sees the same change as we names the new Secret in our Role a moment later.
        first = scope.memory.refused.setdefault(source, scope.ctx.clock.monotonic())
        fresh = scope.memory.sources_of is not None and not scope.due(first, GRANT_PATIENCE)
        if fresh or source in scope.memory.readable:
            raise Transient(Reason.SECRET_MISSING, told) from error
        raise ConnectionInvalid(Reason.SECRET_MISSING, told) from error


async def connect(scope: ProviderScope) -> Outcome:
    """Is there a session, opened with this very connection?"""
    if scope.memory.connection is None:
        return CONTINUE
    about = await scope.session.connect(scope.memory.connection)
    if about is not None:
        scope.fresh = True
        scope.memory.about, scope.memory.about_read = about, scope.ctx.clock.monotonic()
        scope.memory.domains_read = scope.memory.inventory_read = None
    return CONTINUE


async def identify(scope: ProviderScope) -> Outcome:
    """Who answers, is it the backend our machines are on, and may the account do what it must?"""
    memory = scope.memory
    lacking = memory.about is not None and bool(memory.about.missing_privileges)
    stale = scope.due(memory.about_read, RIGHTS_CHECK if lacking else REFRESH)
    if memory.about is None or stale or not (scope.was_reachable or scope.fresh):
        before, memory.about = memory.about, await scope.session.ask_about(ABOUT_TIMEOUT)
        memory.about_read = scope.ctx.clock.monotonic()
        if before is not None and before.missing_privileges != memory.about.missing_privileges:
            memory.inventory_read = None  # more can be seen now, or less
    trusted = _is_trusted(scope, memory.about.identity)
    scope.session.identified(memory.about.identity, trusted=trusted)
    scope.proven |= {ConditionType.PROVIDER_REACHABLE, ConditionType.CREDENTIALS_VALID}
    if not memory.about.missing_privileges:
        scope.proven.add(ConditionType.PERMISSIONS_VALID)
    if trusted:
        return CONTINUE
    return Stop(
        Reason.BACKEND_IDENTITY_CHANGED,
        f"backend {memory.about.identity!r} answers, and machines were made on "
        f"{', '.join(map(repr, sorted(_recorded(scope))))}; correct the endpoint, or list the "
        "former identity in connection.acceptedIdentities",
    )


def _recorded(scope: ProviderScope) -> set[str]:
    """The backend as status has it; without status, as the machines have it."""
    if scope.provider.status.backend_identity:
        return {scope.provider.status.backend_identity}
    return {m.backend_identity for m in scope.machines if m.backend_identity}


def _is_trusted(scope: ProviderScope, identity: str) -> bool:
    recorded = _recorded(scope)
    accepted = set(scope.provider.spec.connection.accepted_identities)
    return not recorded or identity in recorded or bool(recorded & accepted)


async def read_domains(scope: ProviderScope) -> Outcome:
    """Which failure domains are there, and what is each called?"""
    memory = scope.memory
    if memory.domains is None or scope.due(memory.domains_read, REFRESH):
        found = await scope.session.call(_failure_domains, timeout=INVENTORY_TIMEOUT)
        if not found and scope.provider.status.failure_domains:
            raise Transient(
                Reason.INVENTORY_FAILED,
                "the backend shows no failure domain any more; check the account's read rights",
            )
        found = (*found, *await lost_sight(scope, found))
        memory.domains = {domain.id: domain for domain in found}
        memory.domains_read = scope.ctx.clock.monotonic()
        memory.domains_time = scope.ctx.clock.now()
        memory.included = None
    meta, spec = scope.provider.metadata, scope.provider.spec
    bound = domains.bind(
        meta.name,
        memory.domains.values(),
        domains.read_bindings(meta.annotations),
        spec.failure_domains,
    )
    await _keep_bindings(scope, bound.ids)
    if memory.included is None:
        memory.included = _included(scope, bound)
    scope.session.served = replace(scope.session.served, domains=bound)
    scope.remarks += (*bound.problems, *_problems(memory.domains))
    return CONTINUE


def _failure_domains(driver: Driver[Any]) -> tuple[FailureDomain, ...]:
    return tuple(driver.failure_domains())


def _included(scope: ProviderScope, bound: domains.Domains) -> dict[str, list[str]]:
    """Owner hashes of the machines that are on the backend, by domain id, the youngest first."""
    counted: dict[str, list[str]] = {}
    seen = [machine for machine in scope.machines if machine.seen and machine.owner]
    for machine in sorted(seen, key=lambda m: (m.created, m.key), reverse=True):
        domain = bound.ids.get(machine.domain or "")
        if domain and machine.owner:
            counted.setdefault(domain, []).append(machine.owner)
    return counted


async def _keep_bindings(scope: ProviderScope, bindings: Mapping[str, str]) -> None:
    """Write the names down before anybody can learn them from status."""
    meta = scope.provider.metadata
    if bindings == domains.read_bindings(meta.annotations):
        return
    path = ANNOTATION_FAILURE_DOMAINS.replace("~", "~0").replace("/", "~1")
    text = domains.write_bindings(bindings)
    ops: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version}
    ]
    if not scope.raw["metadata"].get("annotations"):
        ops.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    ops.append({"op": "add", "path": f"/metadata/annotations/{path}", "value": text})
    scope.replace(await scope.ctx.api.json_patch(PROVIDERS, scope.key, ops, manager=scope.manager))


def _problems(found: Mapping[str, FailureDomain]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(problem for domain in found.values() for problem in domain.problems))


async def read_inventory(scope: ProviderScope) -> Outcome:
    """Which VMs carry our mark and have no object?"""
    memory = scope.memory
    if not scope.ctx.cache.synced(scope.backend.machine):
        return CONTINUE
    known = {m.uuid for m in scope.machines} | {m.backend_name for m in scope.machines}
    memory.pending -= {name for name in known if name}
    strangers = bool(memory.pending) and scope.due(memory.inventory_read, INVENTORY_PAUSE)
    comes = bool(memory.coming) and scope.due(memory.inventory_read, COUNTS_PAUSE)
    lost = bool(memory.claims.unchecked) and scope.due(memory.inventory_read, COUNTS_PAUSE)
    if strangers or comes or lost or scope.due(memory.inventory_read, REFRESH):
        memory.pending.clear()
        unchecked = frozenset(memory.claims.unchecked)
        # Asked before the list is read: what ends in between is on the list.
        memory.coming = await _coming(scope)
        memory.inventory = await scope.session.call(_marked, timeout=INVENTORY_TIMEOUT)
        memory.moves, memory.keeps_up = await scope.session.call(_powers)
        memory.inventory_read, memory.recount = scope.ctx.clock.monotonic(), True
        memory.claims.looked(unchecked, memory.inventory_read)
    if memory.coming or memory.claims.unchecked:
        scope.counts_due = COUNTS_PAUSE
    claimed = frozenset(machine.uuid for machine in scope.machines if machine.uuid)
    counted = (len(scope.machines), claimed, memory.claims.lost)
    if memory.counted == counted and not memory.recount:
        return CONTINUE
    if scope.due(memory.counts_written, COUNTS_PAUSE):
        memory.counted, memory.recount = counted, not await _count(scope, claimed)
        memory.counts_written = scope.ctx.clock.monotonic()
    if memory.counted != counted or memory.recount:
        scope.counts_due = COUNTS_PAUSE
    return CONTINUE


async def _count(scope: ProviderScope, claimed: frozenset[str]) -> bool:
    """Put the figures of machines into the scope; False when marks cannot be told from others'."""
    scope.machine_count = len(scope.machines)
    known = await installation.read_live(scope.ctx.api, scope.installation_namespace)
    if known is None:
        return False
    if scope.memory.inventory is None:
        return True

    def left(claimed: frozenset[str]) -> Unclaimed:
        found = scope.memory.inventory or ()
        told = inventory.unclaimed(found, claimed, known.id, scope.session.domain_name)
        told.recovery = True if known.recovery else None
        return scope.memory.claims.add_to(told, claimed)

    scope.unclaimed = left(claimed)
    if scope.unclaimed.count:
        # Another Provider of the same backend may have made them: then they are not left over.
        scope.unclaimed = left(claimed | await _claimed_anywhere(scope))
    about = scope.memory.about
    if about is not None and about.missing_privileges:
        scope.unclaimed.complete = False  # what may not be seen may be there
    if scope.memory.coming:
        scope.unclaimed.complete = False  # what is being made is nowhere yet
    return True


async def _claimed_anywhere(scope: ProviderScope) -> frozenset[str]:
    """UUIDs of the machines of all Providers of this kind, read live."""
    try:
        machines = await scope.ctx.api.list(scope.backend.machine)
    except Forbidden:
        return frozenset()
    found = (KnownMachine.of(raw).uuid for raw in machines)
    return frozenset(uuid for uuid in found if uuid)


async def _coming(scope: ProviderScope) -> frozenset[str]:
    """Names of VMs that are being made without a machine object here that says so.

    Asked while the installation recovers, as only then somebody waits for the whole truth: a create
    that a lost cluster began may end long after the new one was set up.
    """
    known = await installation.read_live(scope.ctx.api, scope.installation_namespace)
    if known is None or not known.recovery:
        return frozenset()
    names = await scope.session.call(_creating, timeout=INVENTORY_TIMEOUT)
    return frozenset(names) - {machine.backend_name for machine in scope.machines}


def _creating(driver: Driver[Any]) -> tuple[str, ...]:
    return tuple(driver.creating()) if isinstance(driver, CreateWatch) else ()


def _powers(driver: Driver[Any]) -> tuple[bool, bool]:
    """Whether machines can be moved, and whether their tags and groups are kept up."""
    return isinstance(driver, MarkWriter), isinstance(driver, Upkeeper)


def _marked(driver: Driver[Any]) -> tuple[MachineState, ...] | None:
    return tuple(driver.marked()) if isinstance(driver, Inventory) else None


async def own_lease(scope: ProviderScope) -> Outcome:
    """Does the Lease go when the Provider goes?"""
    if not scope.memory.lease_owned and not scope.deleting:
        await in_use.own_lease(scope.ctx.api, scope.provider, manager=scope.manager)
        scope.memory.lease_owned = True
    return CONTINUE


async def protect(scope: ProviderScope) -> Outcome:
    """Does all that machines need carry the in-use finalizer, also after a change of Secrets?"""
    memory, needed = scope.memory, in_use.needed(scope.provider)
    if scope.paused or scope.deleting:
        return CONTINUE
    if not in_use.is_in_use(scope.provider):
        memory.protected, memory.idle_since = (), None
        return CONTINUE
    if memory.protected != needed or scope.due(memory.protected_at, REFRESH):
        with suppress(NeedsOperator):  # what is missing is told by the phase that reads it
            await in_use.hold(scope.ctx.api, needed, manager=scope.manager)
            dropped = tuple(source for source in memory.protected if source not in needed)
            for source in dropped:
                with suppress(Forbidden):  # our Role no longer names it
                    await in_use.release(scope.ctx.api, (source,), manager=scope.manager)
            memory.protected, memory.protected_at = needed, scope.ctx.clock.monotonic()
    await _let_go_when_idle(scope)
    return CONTINUE


async def _let_go_when_idle(scope: ProviderScope) -> None:
    """Take the finalizers off a while after the last machine is gone, so that they do not churn."""
    memory, now = scope.memory, scope.ctx.clock.monotonic()
    if scope.machines or not scope.ctx.cache.synced(scope.backend.machine):
        memory.idle_since = None
    elif memory.idle_since is None:
        memory.idle_since = now
    elif now - memory.idle_since >= IDLE:
        memory.idle_since = None
        await in_use.let_go(scope.ctx.api, scope.backend, scope.provider, manager=scope.manager)
        scope.replace(await scope.ctx.api.get(PROVIDERS, scope.key))
        scope.session.served = replace(scope.session.served, provider=scope.provider)


PHASES = (
    check_class,
    own_lease,
    read_connection,
    connect,
    identify,
    read_domains,
    read_inventory,
    read_retained,
    protect,
)
