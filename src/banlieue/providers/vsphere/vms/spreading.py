"""Where the machines of a group are, so that the next one goes to another host.

Used where the cluster does not choose hosts by itself. It is what this process saw: a host that is
taken for free by mistake costs no more than that two machines share it.
"""

import threading
from collections import Counter
from dataclasses import dataclass, field

from banlieue.providers.vsphere.places.placement import Load, Plan
from banlieue.providers.vsphere.watching.records import Records

_FAR = 1 << 40
"""MiB that a machine of the same group counts for: more than any host has."""

_Key = tuple[str, str, str]


@dataclass(slots=True, kw_only=True)
class Spreading:
    """The machines of all groups with their hosts. Thread-safe."""

    records: Records
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _members: dict[_Key, dict[str, str | None]] = field(init=False, default_factory=dict)

    def load(self, plan: Plan, otherwise: Load) -> Load:
        """What hosts carry, those with machines of the plan's group far more than any other."""
        key, uuid = _key(plan), (plan.ref.uuid or "").lower()
        if key is None:
            return otherwise
        with self._lock:
            others = {it: host for it, host in self._members.get(key, {}).items() if it != uuid}
        taken = Counter(self._host(it, host) for it, host in others.items())
        return lambda host: otherwise(host) + _FAR * taken[host]

    def _host(self, uuid: str, placed: str | None) -> str | None:
        with self.records.lock:
            seen = [record.host for record in self.records.with_uuid(uuid) if not record.gone]
        return next(filter(None, seen), placed)

    def note(self, plan: Plan, host: str | None = None) -> None:
        """A machine of a group is there, or is being made on a host."""
        key, uuid = _key(plan), (plan.ref.uuid or "").lower()
        with self._lock:
            for other, members in self._members.items():
                if other != key:
                    members.pop(uuid, None)
            if key is not None:
                members = self._members.setdefault(key, {})
                members[uuid] = host or members.get(uuid)

    def left(self, uuid: str) -> None:
        """A machine is being destroyed."""
        with self._lock:
            for members in self._members.values():
                members.pop(uuid.lower(), None)


def _key(plan: Plan) -> _Key | None:
    group, owner = plan.spec.anti_affinity_group, plan.ref.owner
    return (owner.installation_id, owner.namespace, group) if group else None
