"""What can be made to go wrong in a simulated world, on purpose and on the dot."""

from enum import StrEnum
from fnmatch import fnmatchcase

from banlieue.sdk.simulated.records import Fault, Record


class Code(StrEnum):
    """Codes of the world's own faults."""

    INVALID_LOGIN = "InvalidLogin"
    NOT_AUTHENTICATED = "NotAuthenticated"
    NO_PERMISSION = "NoPermission"
    NOT_FOUND = "NotFound"
    DUPLICATE_NAME = "DuplicateName"
    BUSY = "TaskInProgress"
    CHANGED = "ConcurrentChange"
    INVALID_POWER_STATE = "InvalidPowerState"
    INVALID_ARGUMENT = "InvalidArgument"
    SNAPSHOT = "Snapshots"
    IMAGE_NOT_FOUND = "ImageNotFound"
    POOL_NOT_FOUND = "PoolNotFound"
    NETWORK_NOT_FOUND = "NetworkNotFound"
    DISK_NOT_FOUND = "DiskNotFound"
    NO_MEMORY = "InsufficientMemory"
    NO_SPACE = "NoDiskSpace"
    HOT_PLUG = "HotPlugNotSupported"
    GUEST_TIMEOUT = "GuestDidNotShutDown"
    GENERAL = "GeneralFault"


class WorldFault(Exception):
    """The world's answer to a call it did not, or could not, carry out."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    @property
    def record(self) -> Fault:
        """The fault as a record."""
        return Fault(code=self.code, message=self.message)


class ConnectionLost(Exception):
    """No answer came; whether the call was carried out is not known."""


class NotConnected(ConnectionLost):
    """There was nobody to send the call to; it was certainly not carried out."""


class Effect(StrEnum):
    """What a rule does to a call it matches."""

    REFUSE = "refuse"
    """Answer with the fault `code`; nothing is carried out."""
    FAIL_TASK = "fail-task"
    """Accept the call; its task ends with the fault `code`."""
    SLOW_TASK = "slow-task"
    """Accept the call; its task takes `seconds` longer."""
    HANG = "hang"
    """Keep the caller waiting for `seconds`, then carry the call out."""
    CUT = "cut"
    """Drop the connection; nothing is carried out."""
    LOSE_REPLY = "lose-reply"
    """Carry the call out and drop the connection before the answer."""
    LATE = "late"
    """Drop the connection; the call arrives and is carried out `seconds` later."""


class Rule(Record):
    """A fault to inject.

    `method` and `name` are shell patterns for the call and for the VM it is about. The first
    `after` matching calls pass, the next `count` are hit (None: all), then the rule is spent.
    """

    effect: Effect
    method: str = "*"
    name: str = "*"
    code: str = Code.GENERAL
    message: str = "injected fault"
    seconds: float = 0.0
    after: int = 0
    count: int | None = 1


class Rules:
    """The rules in force, in the order they were added; the first that hits decides."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> None:
        """Put a rule behind the others."""
        self._rules.append(rule)

    def clear(self) -> None:
        """Drop all rules."""
        self._rules.clear()

    def hit(self, method: str, name: str) -> Rule | None:
        """The rule that hits this call, counted down; None when the call goes through."""
        for rule in self._rules:
            if not (fnmatchcase(method, rule.method) and fnmatchcase(name, rule.name)):
                continue
            if rule.after > 0:
                rule.after -= 1
                continue
            if rule.count is not None:
                rule.count -= 1
                if rule.count <= 0:
                    self._rules.remove(rule)
            return rule
        return None
