"""The pass that the current task runs: for logs, and to know the writer of a write."""

from contextvars import ContextVar
from dataclasses import dataclass

from banlieue.sdk.kube import Key


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of one controller over one key; `id` ties its log lines together."""

    controller: str
    key: Key
    id: str


CURRENT: ContextVar[Pass | None] = ContextVar("banlieue_pass", default=None)


def current() -> Pass | None:
    """The pass this task belongs to, None outside of passes."""
    return CURRENT.get()
