"""The time a world lives in when nobody says otherwise."""

import time
from datetime import UTC, datetime


class SystemClock:
    """The clock on the wall."""

    def now(self) -> datetime:
        """Current time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()
