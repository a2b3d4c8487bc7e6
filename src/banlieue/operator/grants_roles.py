"""Keeps the Roles and RoleBindings of the grants, one namespace per pass."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.names import MANAGER_OPERATOR
from banlieue.api.resources import (
    CAPI_MACHINES,
    NAMESPACES,
    PROVIDER_CLASSES,
    PROVIDERS,
    ROLE_BINDINGS,
    ROLES,
    VIRTUAL_MACHINES,
)
from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.providerclass import GroupVersionKind, ProviderClass
from banlieue.operator import grants
from banlieue.operator.grants_index import GrantsIndex
from banlieue.operator.objects import MANAGED_BY, Workload
from banlieue.operator.scope import Services
from banlieue.sdk.kube import AlreadyExists, Conflict, Key, NotFound, Obj
from banlieue.sdk.patches import patch_unchanged
from banlieue.sdk.reconcile import Change, Controller, Request, Result, Watch
from banlieue.sdk.tenancy import namespace_allowed

CONTROLLER = "grants"
"""Name of the controller of grants."""

SELECTOR = f"{names.LABEL_GRANT}=true"
"""Label selector of the Roles and RoleBindings of grants."""

IDLE_SECONDS = 600.0
"""How long a Role that grants nothing stays, so that VMs made one by one do not make one each."""

_SOON = 1.0
_PATIENCE = 30.0
"""How long the machines of one kind may be unknown before the others go on without them."""

_RBAC = "rbac.authorization.k8s.io"
_OURS = (PROVIDERS, PROVIDER_CLASSES, VIRTUAL_MACHINES, NAMESPACES, ROLES, ROLE_BINDINGS)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Grant:
    """One Role with its binding: the `number`-th for a Provider in a namespace."""

    namespace: str
    provider: Key
    number: int

    @property
    def key(self) -> Key:
        return Key(
            self.namespace,
            names.grant_name(self.provider.namespace, self.provider.name, self.number),
        )

    def metadata(self) -> Obj:
        return {
            "namespace": self.namespace,
            "name": self.key.name,
            "labels": {
                names.LABEL_GRANT: "true",
                names.LABEL_PART_OF: "banlieue",
                names.LABEL_MANAGED_BY: MANAGED_BY,
            },
            "annotations": {
                names.ANNOTATION_GRANT_OF: f"{self.provider}",
                names.ANNOTATION_GRANT_NUMBER: str(self.number),
            },
        }


class GrantsReconciler:
    """One pass makes a namespace's grants what its machines need now."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._ctx = services.ctx
        self._index = GrantsIndex()
        self._kinds: dict[tuple[str, str], Resource] = {}
        self._asked: dict[tuple[str, str], float] = {}
        self._idle: dict[Key, float] = {}

    async def reconcile(self, key: Key) -> Result:
        """Grant and withdraw in the namespace `key.name`. Raises `ApiError`."""
        cache, now = self._ctx.cache, self._ctx.clock.now()
        namespace = cache.get(NAMESPACES, Key("", key.name))
        kinds = self._kinds_known(key.name) if cache.synced(*_OURS) else None
        if kinds is None:
            return Result(_SOON)
        if namespace is None or namespace["metadata"].get("deletionTimestamp"):
            return Result()
        wanted: defaultdict[Key, set[str]] = defaultdict(set)
        pauses: list[float] = []
        for wish in self._index.wishes(key.name, kinds, now):
            wanted[wish.provider] |= wish.secrets
            pauses.append((wish.until - now).total_seconds() + _SOON)
        held = self._held(key.name)
        for provider in sorted(wanted.keys() | held.keys()):
            subject = self._subject(provider, namespace)
            secrets = frozenset(wanted[provider]) if subject else frozenset()
            alloted = grants.allot(
                secrets, {it: grants.held_by(role) for it, role in held[provider].items()}
            )
            for number, part in sorted(alloted.items()):
                grant = _Grant(key.name, provider, number)
                pause = await self._keep(grant, held[provider].get(number), part, subject)
                pauses += [pause] if pause is not None else []
        return Result(min(pauses, default=None))

    def _held(self, namespace: str) -> defaultdict[Key, dict[int, Obj]]:
        held: defaultdict[Key, dict[int, Obj]] = defaultdict(dict)
        for role in self._ctx.cache.list(ROLES, namespace=namespace):
            found = _grant_of(role)
            if found is not None:
                held[found.provider][found.number] = role
        return held

    def _subject(self, provider: Key, namespace: Obj) -> Obj | None:
        """The account of a Provider's process, None when it may have nothing here."""
        raw = self._ctx.cache.get(PROVIDERS, provider)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            return None
        try:
            found = Provider.from_api({name: it for name, it in raw.items() if name != "status"})
            reference = Key("", found.spec.provider_class_ref.name)
            of_class = self._ctx.cache.get(PROVIDER_CLASSES, reference)
            spec = ProviderClass.from_api(of_class).spec if of_class is not None else None
        except ValidationError:
            return None
        meta = namespace["metadata"]
        if spec is None or not namespace_allowed(found, meta["name"], meta.get("labels") or {}):
            return None
        workload = Workload(found, spec, self._services.around)
        return {
            "kind": "ServiceAccount",
            "name": workload.name,
            "namespace": workload.namespace,
        }

    async def _keep(
        self, grant: _Grant, role: Obj | None, secrets: frozenset[str], subject: Obj | None
    ) -> float | None:
        """Have a Role grant exactly these Secrets; gives when to look at it again."""
        if secrets:
            self._idle.pop(grant.key, None)
        if role is None and secrets:
            if not await self._create(grant, ROLES, {"rules": grants.rules(secrets)}):
                return _SOON
        elif role is not None and grants.rules(secrets) != (role.get("rules") or []):
            ops = [{"op": "add", "path": "/rules", "value": grants.rules(secrets)}]
            await patch_unchanged(self._ctx.api, ROLES, role, ops, manager=MANAGER_OPERATOR)
            log.info("grant changed", extra={"grant": str(grant.key), "secrets": len(secrets)})
        if secrets and subject is not None:
            return await self._bind(grant, subject)
        return await self._end_when_idle(grant, role) if role is not None else None

    async def _bind(self, grant: _Grant, subject: Obj) -> float | None:
        binding = self._ctx.cache.get(ROLE_BINDINGS, grant.key)
        reference = {"apiGroup": _RBAC, "kind": "Role", "name": grant.key.name}
        if binding is not None and binding.get("roleRef") != reference:
            # What a binding binds cannot be changed.
            uid = binding["metadata"]["uid"]
            log.warning(
                "a grant bound another role; it is made anew", extra={"grant": str(grant.key)}
            )
            await self._ctx.api.delete(ROLE_BINDINGS, grant.key, uid=uid)
            return _SOON
        if binding is None:
            body = {"roleRef": reference, "subjects": [subject]}
            return None if await self._create(grant, ROLE_BINDINGS, body) else _SOON
        known = [
            {field: it.get(field) for field in subject} for it in binding.get("subjects") or ()
        ]
        if known != [subject]:
            ops = [{"op": "add", "path": "/subjects", "value": [subject]}]
            await patch_unchanged(
                self._ctx.api, ROLE_BINDINGS, binding, ops, manager=MANAGER_OPERATOR
            )
        return None

    async def _create(self, grant: _Grant, resource: Resource, body: Mapping[str, object]) -> bool:
        """Make it; False when an object of that name is there already."""
        made = {"metadata": grant.metadata(), **body}
        try:
            await self._ctx.api.create(resource, made, manager=MANAGER_OPERATOR)
        except AlreadyExists:
            there = await self._ctx.api.get(resource, grant.key)
            if _grant_of(there) != grant:
                log.warning(
                    "an object that is none of ours has the name of a grant; delete it",
                    extra={"kind": resource.kind, "grant": str(grant.key)},
                )
                raise
            return False
        log.info("granted", extra={"grant": str(grant.key), "kind": resource.kind})
        return True

    async def _end_when_idle(self, grant: _Grant, role: Obj) -> float | None:
        now = self._ctx.clock.monotonic()
        since = self._idle.setdefault(grant.key, now)
        if now - since < IDLE_SECONDS:
            return IDLE_SECONDS - (now - since)
        self._idle.pop(grant.key, None)
        binding = self._ctx.cache.get(ROLE_BINDINGS, grant.key)
        for resource, obj in ((ROLE_BINDINGS, binding), (ROLES, role)):
            if obj is None or _grant_of(obj) != grant:
                continue
            try:
                await self._ctx.api.delete(resource, grant.key, uid=obj["metadata"]["uid"])
            except (NotFound, Conflict):
                continue
        return None

    def _kinds_known(self, namespace: str) -> set[tuple[str, str]] | None:
        """The machine kinds that owners in a namespace name and whose objects are known.

        None while they are being read. A kind is listened to from when somebody asks; one that no
        class names, or that cannot be read for a while, holds up nobody else.
        """
        asked, now = self._index.kinds(namespace), self._ctx.clock.monotonic()
        for obj in self._ctx.cache.list(PROVIDER_CLASSES) if asked - self._kinds.keys() else ():
            try:
                kind = GroupVersionKind.from_api(obj["spec"]["machine"]).to_resource()
            except (KeyError, ValidationError):
                continue  # what the class says of itself is told elsewhere
            at = kind.group, kind.kind
            if at in asked and at not in self._kinds:
                self._kinds[at], self._asked[at] = kind, now
                watch = Watch(kind, self._map_machine, optional=True, many=True)
                self._ctx.add_watch(CONTROLLER, watch)
        listened = asked & self._kinds.keys()
        known = {it for it in listened if self._ctx.cache.synced(self._kinds[it])}
        for late in sorted(listened - known):
            if now - self._asked[late] < _PATIENCE:
                return None
            log.warning(
                "machines of a kind cannot be read, so nothing is granted for them; the operator "
                "needs the rights its backend's manifests give",
                extra={"kind": self._kinds[late].crd_name},
            )
        return known

    # Wake-ups

    def controller(self) -> Controller:
        """The reconciler with its watches; those of machine kinds come as they are needed."""
        watches = (
            Watch(VIRTUAL_MACHINES, self._map_owner, many=True),
            Watch(CAPI_MACHINES, self._map_owner, optional=True, many=True),
            Watch(PROVIDERS, self._map_provider),
            Watch(PROVIDER_CLASSES, self._map_class),
            Watch(NAMESPACES, _map_namespace),
            Watch(ROLES, _map_grant, label_selector=SELECTOR),
            Watch(ROLE_BINDINGS, _map_grant, label_selector=SELECTOR),
        )
        return Controller(CONTROLLER, self, watches, workers=2)

    def _map_owner(self, change: Change) -> Iterable[Request]:
        return _pass(change.key.namespace) if self._index.note_owner(change) else ()

    def _map_machine(self, change: Change) -> Iterable[Request]:
        return _pass(change.key.namespace) if self._index.note_machine(change) else ()

    def _map_class(self, change: Change) -> Iterator[Request]:
        """Says of which kind machines are, and where the processes run."""
        if _standing(change.old) != _standing(change.new):
            for namespace in self._index.namespaces():
                yield from _pass(namespace)

    def _map_provider(self, change: Change) -> Iterator[Request]:
        old, new = (_standing(it) for it in (change.old, change.new))
        if old == new:
            return
        for namespace in self._index.namespaces():
            if change.key in self._index.providers(namespace):
                yield from _pass(namespace)


def _grant_of(obj: Obj) -> _Grant | None:
    meta = obj.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    namespace, _, name = annotations.get(names.ANNOTATION_GRANT_OF, "").partition("/")
    number = annotations.get(names.ANNOTATION_GRANT_NUMBER, "")
    if not namespace or not name or not number.isdecimal():
        return None
    found = _Grant(meta.get("namespace") or "", Key(namespace, name), int(number))
    return found if found.key.name == meta.get("name") else None


def _pass(namespace: str) -> tuple[Request, ...]:
    return (Request(Key("", namespace)),)


def _map_grant(change: Change) -> Iterable[Request]:
    return _pass(change.key.namespace)


def _map_namespace(change: Change) -> Iterable[Request]:
    old, new = (((it or {}).get("metadata") or {}).get("labels") for it in (change.old, change.new))
    return _pass(change.key.name) if change.new is not None and old != new else ()


def _standing(obj: Obj | None) -> tuple[object, ...]:
    meta = (obj or {}).get("metadata") or {}
    return meta.get("uid"), meta.get("generation"), meta.get("deletionTimestamp")
