"""Who asks for which Secrets, by namespace, kept from the changes that watches tell.

So a pass over a namespace reads what concerns it, and owners that need no Secret cost nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from datetime import datetime

from banlieue.api.resources import CAPI_MACHINES, VIRTUAL_MACHINES
from banlieue.operator import grants
from banlieue.operator.grants import Made, Owner, Reference, Wish
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change

_READ: dict[str, Callable[[Obj], Owner | None]] = {
    VIRTUAL_MACHINES.kind: grants.virtual_machine,
    CAPI_MACHINES.kind: grants.cluster_api_machine,
}


class GrantsIndex:
    """Owners that ask for Secrets, and machine objects."""

    def __init__(self) -> None:
        self._owners: defaultdict[str, dict[tuple[str, str], Owner]] = defaultdict(dict)
        self._machines: defaultdict[str, dict[Reference, Made]] = defaultdict(dict)

    def note_owner(self, change: Change) -> bool:
        """Take in a VirtualMachine or a Cluster API Machine; whether it asks for anything else."""
        known, at = self._owners[change.key.namespace], (change.resource.kind, change.key.name)
        before = known.get(at)
        after = _READ[change.resource.kind](change.new) if change.new is not None else None
        if after is None:
            known.pop(at, None)
        else:
            known[at] = after
        return before != after

    def note_machine(self, change: Change) -> bool:
        """Take in a machine object; whether it concerns a grant."""
        known = self._machines[change.key.namespace]
        at = change.resource.group, change.resource.kind, change.key.name
        before = known.get(at)
        after = grants.machine(change.new) if change.new is not None else None
        if after is None:
            known.pop(at, None)
        else:
            known[at] = after
        return before != after

    def wishes(
        self, namespace: str, kinds: Container[tuple[str, str]], now: datetime
    ) -> Iterator[Wish]:
        """What is asked for in a namespace now, for machines of the kinds that are listened to."""
        machines = self._machines.get(namespace, {})
        for owner in self._owners.get(namespace, {}).values():
            known = tuple(it for it in owner.machines if it.reference[:2] in kinds)
            yield from grants.wishes(replace(owner, machines=known), machines.get, now)

    def kinds(self, namespace: str) -> set[tuple[str, str]]:
        """Group and kind of the machine objects that owners in a namespace name."""
        return {
            expected.reference[:2]
            for owner in self._owners.get(namespace, {}).values()
            for expected in owner.machines
        }

    def namespaces(self) -> list[str]:
        """Where anything is asked for."""
        return sorted(namespace for namespace, owners in self._owners.items() if owners)

    def providers(self, namespace: str) -> set[Key]:
        """Providers that owners and machines in a namespace name."""
        named = {
            expected.provider
            for owner in self._owners.get(namespace, {}).values()
            for expected in owner.machines
        }
        named |= {made.provider for made in self._machines.get(namespace, {}).values()}
        return {key for key in named if key is not None}
