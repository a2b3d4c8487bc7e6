"""What can go wrong on a backend, in three kinds.

    DriverError
    ├── Transient            retry with backoff; nothing is wrong with spec or configuration
    │   ├── Unreachable      no answer at all; opens the endpoint's circuit breaker
    │   └── NotYet           the change feed is about to tell; nothing is said to anybody
    ├── NeedsOperator        somebody must change the Provider, the backend or a right; slow retry
    │   ├── AbsenceUnproven  "not found" that is no proof of "gone"
    │   ├── Foreign          a VM stands in the way that is not ours, or is not provably ours
    │   └── Refused          the backend refused a create for want of capacity; nothing was made
    └── InvalidSpec          the machine's spec cannot be honoured; no retry until it changes

A backend decides the kind where it catches its vendor's error, by type and code, never by the
text of a message. `message` is one sentence a user can act on, without words of the backend;
the native text travels in `native` and ends up in `status.lastBackendError` only.
"""

from dataclasses import dataclass

from banlieue.api.reasons import Reason


@dataclass(frozen=True, slots=True)
class NativeError:
    """The vendor's own words, for the infra object's `status.lastBackendError`.

    `code` is the vendor's fault or status name; `message` never holds credentials.
    """

    code: str
    message: str


class DriverError(Exception):
    """Base of everything a driver raises; carries a uniform reason and a message for people."""

    def __init__(self, reason: Reason, message: str, *, native: NativeError | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.native = native


class Transient(DriverError):
    """Will pass by itself: busy, locked, a task that failed for no lasting cause."""


class Unreachable(Transient):
    """The endpoint gave no answer; says nothing about any VM."""

    def __init__(self, message: str, *, native: NativeError | None = None) -> None:
        super().__init__(Reason.PROVIDER_UNREACHABLE, message, native=native)


class NotYet(Transient):
    """The answer comes with the change feed in a moment, so that asking by itself is a waste.

    Only for drivers with a change feed, and only while its first answer, or one after a loss, is
    being prepared: that asks for everything anyway. Says nothing about any VM.
    """

    def __init__(self) -> None:
        super().__init__(
            Reason.PROVIDER_BUSY,
            "the VMs are being listed; this one is looked at when that is done",
        )


class NeedsOperator(DriverError):
    """Stays until somebody changes the Provider, its credentials or the backend."""


class FieldLacks(NeedsOperator):
    """One field is not in force and the VM does well without; told of that field and tried again.

    Raise it only when nothing else is left to do.
    """

    def __init__(
        self, field: str, reason: Reason, message: str, *, native: NativeError | None = None
    ) -> None:
        super().__init__(reason, message, native=native)
        self.field = field


class AbsenceUnproven(NeedsOperator):
    """The VM was not found, but the look-up is no proof that it is gone."""

    def __init__(self, message: str, *, native: NativeError | None = None) -> None:
        super().__init__(Reason.ABSENCE_UNPROVEN, message, native=native)


class Foreign(NeedsOperator):
    """A VM of our name or UUID exists that is not provably this machine's; it is left alone."""

    def __init__(self, message: str, *, native: NativeError | None = None) -> None:
        super().__init__(Reason.OWNERSHIP_CONFLICT, message, native=native)


class Refused(NeedsOperator):
    """The backend refused the create (capacity, placement rule) and made nothing.

    Raise it only where that is certain: the machine may then be placed elsewhere.
    """


class InvalidSpec(DriverError):
    """The machine's spec cannot be honoured as written."""
