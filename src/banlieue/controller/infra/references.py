"""Which machine objects VirtualMachines name, as their watch tells.

For each machine object that is first seen somebody asks, which would decode its VirtualMachine each
time. What is kept instead is small: most VirtualMachines name one machine, called like themselves.
"""

from dataclasses import dataclass, field
from typing import Any

from banlieue.api.meta import Resource
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change

_Reference = tuple[str, str, str, str]
"""API group, kind, namespace and name; the last two are empty where they are those of the owner."""


@dataclass(frozen=True, slots=True)
class References:
    """By VirtualMachine, the machine objects its status names in any role."""

    _named: dict[Key, tuple[_Reference, ...]] = field(default_factory=dict)
    _shared: dict[tuple[_Reference, ...], tuple[_Reference, ...]] = field(default_factory=dict)

    def note(self, change: Change) -> None:
        """Take in that a VirtualMachine came, changed or went."""
        if change.new is None:
            self._named.pop(change.key, None)
            return
        found = tuple(_short(change.key, it) for it in references_of(change.new))
        usual = all(not name for *_, name in found)
        self._named[change.key] = self._shared.setdefault(found, found) if usual else found

    def knows(self, vm: Key) -> bool:
        """Whether there is a VirtualMachine of that name, as far as was told."""
        return vm in self._named

    def names(self, vm: Key, kind: Resource, key: Key) -> bool:
        """Whether the status of that VirtualMachine names this machine object."""
        wanted = _short(vm, (kind.group, kind.kind, key.namespace, key.name))
        return wanted in self._named.get(vm, ())


def references_of(vm: Obj) -> list[_Reference]:
    """The machine objects a status names: the current one, and both ends of a move."""
    status: dict[str, Any] = vm.get("status") or {}
    previous = (status.get("previous") or {}).get("infrastructureRef")
    return [
        (it["apiGroup"], it["kind"], it["namespace"], it["name"])
        for it in (status.get("infrastructureRef"), status.get("incomingRef"), previous)
        if it is not None
    ]


def _short(owner: Key, reference: _Reference) -> _Reference:
    group, kind, namespace, name = reference
    if Key(namespace, name) == owner:
        return group, kind, "", ""
    return reference
