"""Which passes a change asks for. Every function here is total and writes nothing."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from banlieue.api.conditions import ConditionType
from banlieue.api.meta import ConditionStatus, KindRef, Resource
from banlieue.api.reasons import Reason
from banlieue.api.resources import VIRTUAL_MACHINES, VM_IMAGES
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.controller.infra import machines
from banlieue.controller.infra.references import References
from banlieue.controller.scheduling.assume import Ledger
from banlieue.sdk.kube import Key, Obj, ObjectReader
from banlieue.sdk.reconcile import Change, Priority, Request

MIRROR_DELAY = 1.0
"""Seconds in which the steps of a machine that is not Ready yet become one status write."""

UNREFERENCED_DELAY = 5.0
"""Seconds a new machine object has to be taken up before it is looked at as a stray."""

_BOOKKEEPING = frozenset({"resourceVersion", "managedFields"})
_SPREAD = 0.01
_LONGEST_SPREAD = 30.0


@dataclass(frozen=True, slots=True)
class Wakes:
    """Maps changes of everything a VirtualMachine depends on to VirtualMachines."""

    cache: ObjectReader
    ledger: Ledger

    def virtual_machine(self, change: Change) -> Iterable[Request]:
        """The object itself changed.

        A status that somebody else wrote is put right without haste: another controller that
        believes to lead, and sees less or more than this one, would answer each write with one.
        """
        leaving = change.new is None or change.new["metadata"].get("deletionTimestamp")
        if not change.replayed and _wish(change.old) == _wish(change.new):
            return (Request(change.key, delay=MIRROR_DELAY, priority=Priority.RESYNC),)
        return (Request(change.key, priority=Priority.DELETE if leaving else Priority.USER),)

    def machine(self, change: Change) -> Iterable[Request]:
        """Its machine object changed in something that is mirrored or decided upon."""
        obj = change.new or change.old or {}
        name = ((obj.get("spec") or {}).get("virtualMachineRef") or {}).get("name")
        if not name or (_visible(change.old) == _visible(change.new) and not change.replayed):
            return ()
        return (Request(Key(change.key.namespace, name), delay=_pace(change.new)),)

    def vm_class(self, change: Change) -> Iterable[Request]:
        """A class came or was edited: only those that wait for it look."""
        return _later(self.ledger.waiting(class_name=change.key.name))

    def image(self, change: Change) -> Iterable[Request]:
        """An image came, was edited, or became usable somewhere."""
        if _usable(change.old) == _usable(change.new):
            return ()
        return _later(self.ledger.waiting(image_name=change.key.name))

    def provider(self, change: Change) -> Iterable[Request]:
        """A Provider changed: those that wait look if it may take them, those on it if it fits."""
        concerned: list[Key] = []
        grown = _grown(change.old, change.new)
        if _offer(change.old) != _offer(change.new):
            concerned += self.ledger.waiting()
        elif grown is not None:
            concerned += self.ledger.short(change.key, grown)
        if _terms(change.old) != _terms(change.new):
            concerned += self.ledger.at(change.key)
        concerned += self.ledger.owners_of(_moved(change.new) - _moved(change.old))
        concerned += self.ledger.owners_of(_unclaimed(change.old) - _unclaimed(change.new))
        return _later(dict.fromkeys(concerned))

    def provider_class(self, change: Change) -> Iterable[Request]:
        """A class of Providers came, went or was paused."""
        old, new = change.old or {}, change.new or {}
        return _later(self.ledger.waiting()) if old.get("spec") != new.get("spec") else ()

    def namespace(self, change: Change) -> Iterable[Request]:
        """Labels decide which Providers a namespace may use."""
        if _labels(change.old) == _labels(change.new):
            return ()
        name = change.key.name
        return _later(key for key in self.ledger.known() if key.namespace == name)

    def installation(self, change: Change) -> Iterable[Request]:
        """Who we are, or whether we may act, changed: everybody looks."""
        old, new = change.old or {}, change.new or {}
        if old.get("data") == new.get("data") and _annotations(old) == _annotations(new):
            return ()
        return _later(Key.of(obj) for obj in self.cache.list(VIRTUAL_MACHINES))


def stray_machine(named: References, kind: Resource, change: Change) -> Iterable[Request]:
    """A machine object that is on its way out, that nothing was made for, or that nobody names."""
    machine = change.new
    if machine is None:
        return ()
    leaving = machine["metadata"].get("deletionTimestamp")
    if not machines.is_suspicious(machine):
        owner = ((machine.get("spec") or {}).get("virtualMachineRef") or {}).get("name")
        if change.old is not None or not owner:
            return ()
        vm = Key(change.key.namespace, owner)
        if not named.knows(vm) and machine["metadata"].get("ownerReferences"):
            return ()  # not known yet, or gone: the garbage collector's then
        if named.names(vm, kind, change.key):
            return ()
    delay = 0.0 if leaving else UNREFERENCED_DELAY
    return (Request(machines.request_key(kind, change.key), delay=delay),)


def machines_left(kind_of: Callable[[KindRef], Resource], change: Change) -> Iterable[Request]:
    """A VirtualMachine is gone: nobody but us decides any more about machines it had deleted."""
    if change.new is not None or change.old is None:
        return
    status = VirtualMachine.from_api(change.old).status
    previous = status.previous.infrastructure_ref if status.previous else None
    for reference in (status.infrastructure_ref, status.incoming_ref, previous):
        if reference is not None:
            key = Key(reference.namespace, reference.name)
            yield Request(machines.request_key(kind_of(reference), key))


def image_itself(change: Change) -> Iterable[Request]:
    """The image or one of its rows changed."""
    return (Request(change.key),)


def image_of_virtual_machine(cache: ObjectReader, change: Change) -> Iterable[Request]:
    """A VirtualMachine went: perhaps the last one that kept an image from going."""
    reference = ((change.old or {}).get("spec") or {}).get("imageRef") or {}
    if change.new is not None or not reference.get("name"):
        return ()
    key = Key("", reference["name"])
    image = cache.get(VM_IMAGES, key)
    if image is None or not image["metadata"].get("deletionTimestamp"):
        return ()
    return (Request(key, delay=MIRROR_DELAY),)


def images_of_provider(cache: ObjectReader, change: Change) -> Iterable[Request]:
    """A Provider came, went or changed its class: rows and counts of all images may be wrong."""
    if _class_name(change.old) == _class_name(change.new):
        return ()
    return _later(Key.of(obj) for obj in cache.list(VM_IMAGES))


def images_of_class(cache: ObjectReader, change: Change) -> Iterable[Request]:
    """A ProviderClass came or went."""
    old, new = change.old or {}, change.new or {}
    if old.get("spec") == new.get("spec"):
        return ()
    return _later(Key.of(obj) for obj in cache.list(VM_IMAGES))


def nobody(change: Change) -> Iterable[Request]:
    """What is only looked up: a controller that watches it begins when it is known."""
    del change
    return ()


def _later(keys: Iterable[Key]) -> Iterator[Request]:
    """Behind everything users wait for, and not all at once."""
    for position, key in enumerate(keys):
        delay = min(position * _SPREAD, _LONGEST_SPREAD)
        yield Request(key, delay=delay, priority=Priority.RESYNC)


def _pace(machine: Obj | None) -> float:
    """A machine that is on its way comes in quick steps; one that is there is news."""
    if machine is None or machine["metadata"].get("deletionTimestamp"):
        return 0.0
    ready = _condition(machine, ConditionType.READY)
    addresses = _condition(machine, ConditionType.ADDRESSES_AVAILABLE)
    waits = addresses.get("reason") == Reason.ADDRESS_PENDING
    arrived = ready.get("status") == ConditionStatus.TRUE and not waits
    return 0.0 if arrived else MIRROR_DELAY


def _condition(obj: Obj, kind: ConditionType) -> dict[str, Any]:
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind:
            found: dict[str, Any] = condition
            return found
    return {}


def _visible(machine: Obj | None) -> tuple[object, ...] | None:
    """Everything of a machine but bookkeeping."""
    if machine is None:
        return None
    meta = machine["metadata"]
    return (
        machine.get("spec"),
        machine.get("status"),
        meta.get("deletionTimestamp"),
        meta.get("labels"),
        meta.get("ownerReferences"),
    )


def _wish(vm: Obj | None) -> tuple[object, ...] | None:
    """Everything of a VirtualMachine that others than a controller write."""
    if vm is None:
        return None
    kept = {k: v for k, v in vm["metadata"].items() if k not in _BOOKKEEPING}
    return vm.get("spec"), kept


def _usable(image: Obj | None) -> tuple[object, ...]:
    rows = ((image or {}).get("status") or {}).get("perProvider") or ()
    telling = ("providerNamespace", "providerName", "ready", "reason", "readyFailureDomains")
    said = [tuple(row.get(name) for name in telling) for row in rows]
    leaving = ((image or {}).get("metadata") or {}).get("deletionTimestamp")
    return (image or {}).get("spec"), leaving, said


def _terms(provider: Obj | None) -> tuple[object, ...] | None:
    """What decides whether machines on a Provider are where they should be."""
    if provider is None:
        return None
    spec, meta = provider.get("spec") or {}, provider["metadata"]
    return (
        meta.get("labels"),
        spec.get("allowedNamespaces"),
        spec.get("tagMapping"),
        _domains(provider),
    )


def _offer(provider: Obj | None) -> tuple[object, ...] | None:
    """What decides whether a Provider takes a machine, but for room."""
    if provider is None:
        return None
    unclaimed = (provider.get("status") or {}).get("unclaimed") or {}
    return (
        _terms(provider),
        provider.get("spec"),
        provider["metadata"].get("deletionTimestamp"),
        _condition(provider, ConditionType.READY).get("status"),
        unclaimed.get("complete"),
        unclaimed.get("recovery"),
        unclaimed.get("owners"),
        (provider.get("status") or {}).get("retainedDisks"),
        (provider.get("status") or {}).get("specFeatures"),
    )


def _moved(provider: Obj | None) -> frozenset[str]:
    """Owners of moved VMs there that have no machine object: such a one may belong there."""
    return frozenset(owner["hash"] for owner in _owners(provider) if owner.get("epoch"))


def _unclaimed(provider: Obj | None) -> frozenset[str]:
    """Owners of VMs there that have no machine object; those of such a one are bound to it."""
    return frozenset(owner["hash"] for owner in _owners(provider))


def _owners(provider: Obj | None) -> list[dict[str, Any]]:
    told = ((provider or {}).get("status") or {}).get("unclaimed") or {}
    return told.get("owners") or []


def _domains(provider: Obj) -> list[dict[str, Any]]:
    """The failure domains without their capacity, which changes all the time."""
    published = (provider.get("status") or {}).get("failureDomains") or ()
    return [
        {
            **domain,
            "attributes": {
                name: value
                for name, value in (domain.get("attributes") or {}).items()
                if name not in {"capacity", "raw"}
            },
        }
        for domain in published
    ]


def _grown(old: Obj | None, new: Obj | None) -> int | None:
    """The most MiB that can be promised at one of the failure domains with more than before.

    None when there is none. Machines in flight are not taken off.
    """
    before, factor = _memory(old), _overcommit(new)
    return max(
        (
            memory["free"] + int(memory.get("total", 0) * (factor - 1.0))
            for name, memory in _memory(new).items()
            if memory["free"] > before.get(name, memory)["free"]
        ),
        default=None,
    )


def _memory(provider: Obj | None) -> dict[str, dict[str, int]]:
    found = {}
    for domain in ((provider or {}).get("status") or {}).get("failureDomains") or ():
        memory = ((domain.get("attributes") or {}).get("capacity") or {}).get("memoryMiB") or {}
        if isinstance(memory.get("free"), int):
            found[str(domain.get("name"))] = memory
    return found


def _overcommit(provider: Obj | None) -> float:
    declared = ((provider or {}).get("spec") or {}).get("overcommit") or {}
    return float(declared.get("memory") or 1)


def _labels(obj: Obj | None) -> object:
    return ((obj or {}).get("metadata") or {}).get("labels")


def _annotations(obj: Obj) -> object:
    return (obj.get("metadata") or {}).get("annotations")


def _class_name(provider: Obj | None) -> object:
    return (((provider or {}).get("spec") or {}).get("providerClassRef") or {}).get("name")
