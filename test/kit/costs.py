"""What making VMs costs: writes at the API server, calls at the backend."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from test.kit.audit import AuditEntry
from test.kit.installed import Registered
from test.kit.taps import Meter
from test.kit.waiting import stays_true

_EVENTS: Final = "events"
_LEASES: Final = "leases"
_LATE: Final = 2.0
"""Seconds in which Events and the last status writes follow what they tell of."""


@dataclass
class Costs:
    """What was written and called in a while; Leases are left out.

    Attributes:
        writes: Requests to store something.
        calls: Calls of the backend by name, the long poll among them.
    """

    writes: list[AuditEntry] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)

    def objects(self, *names: str) -> list[AuditEntry]:
        """Writes to objects of these names."""
        return [it for it in self.writes if it.resource != _EVENTS and it.name in names]

    @property
    def events(self) -> list[AuditEntry]:
        """Writes of Events."""
        return [it for it in self.writes if it.resource == _EVENTS]


@contextmanager
def counted(registered: Registered) -> Iterator[Costs]:
    """Count what our processes do in the block and shortly after it; filled in at its end."""
    costs, meter = Costs(), Meter(registered.target)
    since = registered.stack.control_plane.audit_position()
    yield costs
    wait_out(registered, _LATE)
    costs.writes, costs.calls = our_writes(registered, since), meter.calls()


def our_writes(registered: Registered, since: int) -> list[AuditEntry]:
    """What our processes wrote since a position of the audit log, Leases left out."""
    users = {role.user for role in registered.stack.roles}
    found = registered.stack.control_plane.audit_writes(since)
    return [it for it in found if it.user in users and it.resource != _LEASES]


def wait_out(registered: Registered, seconds: float) -> None:
    """Let time pass in which all roles have to go on."""
    roles = registered.stack.roles
    stays_true(lambda: all(role.process.running for role in roles), seconds, "all roles run")


def shown(writes: Sequence[AuditEntry]) -> str:
    """Writes to be read, one a line."""
    return "\n".join(
        f"{it.time} {it.user.rpartition(':')[2]} {it.verb} "
        f"{it.resource}/{it.subresource} {it.namespace}/{it.name} {it.code}"
        for it in writes
    )
