"""Circuit breaker of one endpoint: after a few silences in a row nobody asks for a while.

Only silence counts (no answer, time-outs); an endpoint that answers with an error is there. Not
thread-safe: it is used on the event loop.
"""

from enum import Enum
from random import Random

from banlieue.sdk.reconcile import Clock

THRESHOLD = 5
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 120.0
JITTER = 0.2


class Permit(Enum):
    """What a caller may do."""

    PASS = "pass"  # noqa: S105 - a word, no credential
    PROBE = "probe"
    REFUSED = "refused"


class Breaker:
    """Closed, open, or half-open with one probe under way.

    Opens after 5 silences in a row; the first probe is due after 5 s, then after twice as long each
    time, at most 120 s, all ± 20 %.
    """

    def __init__(self, clock: Clock, rng: Random) -> None:
        self._clock = clock
        self._rng = rng
        self._silences = 0
        self._silent_from = 0.0
        self._answered_at = clock.monotonic()
        self._pause = 0.0
        self._due: float | None = None
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Whether callers are refused, a probe being due or not."""
        return self._due is not None

    @property
    def wait(self) -> float:
        """Seconds until a probe is due; 0 when closed or due."""
        return max(0.0, self._due - self._clock.monotonic()) if self._due is not None else 0.0

    @property
    def silence(self) -> float:
        """Seconds since the first of the calls in a row that got no answer; 0 when all did."""
        return self._clock.monotonic() - self._silent_from if self._silences else 0.0

    @property
    def answered_at(self) -> float:
        """When the last answer came, on the monotonic clock; at first when this was made."""
        return self._answered_at

    def ask(self) -> Permit:
        """May the endpoint be called now?

        A `PROBE` must end in `answered`, `silent` or `abandoned`.
        """
        if self._due is None:
            return Permit.PASS
        if self._probing or self._clock.monotonic() < self._due:
            return Permit.REFUSED
        self._probing = True
        return Permit.PROBE

    def answered(self) -> bool:
        """The endpoint answered, if only with an error; True when that closed the breaker."""
        was_open = self.is_open
        self._answered_at = self._clock.monotonic()
        self._silences, self._pause, self._due, self._probing = 0, 0.0, None, False
        return was_open

    def silent(self, since: float | None = None) -> bool:
        """The endpoint did not answer; True when that opened the breaker.

        Args:
            since: from when on an answer was awaited, on the monotonic clock; None means now. A
                call that is older than the last answer tells nothing about the endpoint.
        """
        awaited = self._clock.monotonic() if since is None else since
        if awaited < self._answered_at:
            return False
        if not self._silences:
            self._silent_from = awaited
        self._silences += 1
        if self.is_open and not self._probing:
            return False  # a call from before it opened
        was_open, self._probing = self.is_open, False
        if not was_open and self._silences < THRESHOLD:
            return False
        self._pause = min(LONGEST_PAUSE, self._pause * 2 if self._pause else FIRST_PAUSE)
        jitter = self._rng.uniform(1 - JITTER, 1 + JITTER)
        self._due = self._clock.monotonic() + self._pause * jitter
        return not was_open

    def abandoned(self) -> None:
        """A call ended without telling anything about the endpoint; a probe may be made anew."""
        self._probing = False
