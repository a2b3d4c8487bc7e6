"""Which passes over machines of Cluster API a change asks for. Every function is total."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.controller.capi import berths, objects
from banlieue.controller.infra.kinds import MachineKinds
from banlieue.controller.infra.machines import request_key
from banlieue.controller.scheduling.assume import Ledger
from banlieue.controller.wakes import Wakes
from banlieue.sdk.kube import Key, Obj, ObjectReader
from banlieue.sdk.reconcile import Change, Priority, Request


@dataclass(frozen=True, slots=True)
class MachineWakes:
    """Maps changes of everything such a machine depends on to machines."""

    cache: ObjectReader
    kinds: MachineKinds
    ledger: Ledger

    def machine(self, kind: Resource, change: Change) -> Iterable[Request]:
        """The machine object itself; one that a VirtualMachine made is none of these."""
        obj = change.new or change.old or {}
        if (obj.get("spec") or {}).get("virtualMachineRef"):
            return ()
        if _visible(change.old) == _visible(change.new) and not change.replayed:
            return ()
        leaving = change.new is None or objects.is_leaving(change.new)
        priority = Priority.DELETE if leaving else Priority.USER
        return (Request(request_key(kind, change.key), priority=priority),)

    def owner(self, change: Change) -> Iterable[Request]:
        """A Machine of Cluster API: its data came, it goes, or it refers to something else."""
        if _asked(change.old) == _asked(change.new) and not change.replayed:
            return
        for obj in (change.new, change.old):
            reference = ((obj or {}).get("spec") or {}).get("infrastructureRef") or {}
            named = reference.get("apiGroup"), reference.get("kind")
            kind = next((it for it in self.kinds.named() if (it.group, it.kind) == named), None)
            if kind is not None and reference.get("name"):
                key = Key(change.key.namespace, reference["name"])
                yield Request(request_key(kind, key), priority=Priority.USER)
                return

    def cluster(self, change: Change) -> Iterable[Request]:
        """A Cluster was paused, resumed, or got something its machines wait for."""
        if _settled(change.old) == _settled(change.new) and not change.replayed:
            return
        for kind in self.kinds.named():
            for obj in self.cache.list(kind, namespace=change.key.namespace):
                labels = obj["metadata"].get("labels") or {}
                if labels.get(names.CAPI_LABEL_CLUSTER_NAME) == change.key.name:
                    yield Request(request_key(kind, Key.of(obj)))

    def infra_cluster(self, change: Change) -> Iterable[Request]:
        """Which Providers a cluster may use changed: those that have no place look again."""
        old, new = change.old or {}, change.new or {}
        if old.get("spec") == new.get("spec"):
            return ()
        return self._waiting(change.key.namespace)

    def provider(self, change: Change) -> Iterable[Request]:
        """As for VirtualMachines: those that wait look if it may take them."""
        return self._as_for_others(Wakes.provider, change)

    def provider_class(self, change: Change) -> Iterable[Request]:
        """A class of Providers came, went or was paused."""
        return self._as_for_others(Wakes.provider_class, change)

    def image(self, change: Change) -> Iterable[Request]:
        """An image came, was edited, or became usable somewhere."""
        return self._as_for_others(Wakes.image, change)

    def namespace(self, change: Change) -> Iterable[Request]:
        """Labels decide which Providers a namespace may use."""
        old, new = ((it or {}).get("metadata") or {} for it in (change.old, change.new))
        if old.get("labels") == new.get("labels"):
            return ()
        return self._waiting(change.key.name)

    def installation(self, change: Change) -> Iterable[Request]:
        """Who we are, or whether we may act, changed: everybody looks."""
        old, new = change.old or {}, change.new or {}
        told = [
            (it.get("data"), (it.get("metadata") or {}).get("annotations")) for it in (old, new)
        ]
        if told[0] == told[1]:
            return
        for kind in self.kinds.named():
            for obj in self.cache.list(kind):
                if not (obj.get("spec") or {}).get("virtualMachineRef"):
                    yield Request(request_key(kind, Key.of(obj)), priority=Priority.RESYNC)

    def _as_for_others(
        self, rule: Callable[[Wakes, Change], Iterable[Request]], change: Change
    ) -> Iterator[Request]:
        """What the ledger of these machines tells, by the rule that VirtualMachines follow."""
        for request in rule(Wakes(self.cache, self.ledger), change):
            yield replace(request, key=berths.request_of(request.key))

    def _waiting(self, namespace: str) -> Iterator[Request]:
        for key in map(berths.request_of, self.ledger.waiting()):
            if key.namespace == namespace:
                yield Request(key, priority=Priority.RESYNC)


def _visible(machine: Obj | None) -> tuple[object, ...] | None:
    """What of a machine decides anything here, or counts for others."""
    if machine is None:
        return None
    meta, status = machine["metadata"], machine.get("status") or {}
    told = ("failureDomain", "resources", "initialization", "createRefused")
    return (
        machine.get("spec"),
        *(meta.get(it) for it in ("uid", "deletionTimestamp", "ownerReferences", "labels")),
        meta.get("annotations"),
        meta.get("finalizers") if objects.is_leaving(machine) else None,
        *(status.get(it) for it in told),
        bool(status),
    )


def _asked(owner: Obj | None) -> tuple[object, ...] | None:
    if owner is None:
        return None
    spec, meta = owner.get("spec") or {}, owner["metadata"]
    fields = ("bootstrap", "failureDomain", "infrastructureRef", "clusterName")
    return (*map(spec.get, fields), meta.get("deletionTimestamp"), meta.get("uid"))


def _settled(cluster: Obj | None) -> tuple[object, ...] | None:
    if cluster is None:
        return None
    spec, status = cluster.get("spec") or {}, cluster.get("status") or {}
    return spec.get("paused"), spec.get("infrastructureRef"), status.get("initialization")
