"""Clone tasks that run in the vCenter and may make a VM we know nothing of yet."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from pyVmomi import vim

from banlieue.providers.vsphere.client.creates import Creates
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import property_spec, step, walk
from banlieue.providers.vsphere.watching.watchlist import RUNNING

_STEPS = (step(vim.TaskManager, "recentTask"),)
_WANTED = (property_spec(vim.Task, ("info.state", "info.descriptionId", "info.activationId")),)
_CLONE = "virtualmachine.clone"
_YOUNG = 1.0
"""Seconds for which a read of the tasks is not repeated."""


_TOKEN = "banlieue-"  # noqa: S105 - no secret: it marks a task


def activation(name: str) -> str:
    """The token a create task carries, so that it is known again by another process."""
    return f"{_TOKEN}{name}"


@dataclass(frozen=True, slots=True)
class Cloning:
    """An unfinished clone task; `token` is None where the vCenter keeps none."""

    task: str
    token: str | None


def read_cloning(session: Session) -> list[Cloning]:
    """Every unfinished clone task the session can see, in one call."""
    manager = session.login.content.task_manager
    found = walk(session, manager, vim.TaskManager, _STEPS, _WANTED)
    return [
        Cloning(item.moid, item.get("info.activationId") or None)
        for item in found
        if item.get("info.state") in RUNNING
        and str(item.get("info.descriptionId", "")).lower().startswith(_CLONE)
    ]


class Coming:
    """Says whether somebody else's clone task may be a create of ours. Thread-safe.

    A task that carries another machine's token is not. A task without one may be, unless the
    vCenter has shown that it keeps tokens: every create of ours carries one.
    """

    def __init__(
        self,
        session: Session,
        creates: Creates,
        monotonic: Callable[[], float],
        reader: Callable[[Session], list[Cloning]] = read_cloning,
    ) -> None:
        self._session = session
        self._creates = creates
        self._monotonic = monotonic
        self._reader = reader
        self._lock = threading.Lock()
        self._left: list[Cloning] | None = None
        self._read_at = 0.0
        self._keeps_tokens = False

    def left_from_before(self, name: str) -> bool:
        """Whether a create of that name, sent before this session began, may still run.

        Only this process creates machines of this Provider while the session lasts, so the tasks
        are read at the first question, and again only while some of those are unfinished.
        """
        with self._lock:
            if self._left is None or (self._left and self._monotonic() - self._read_at >= _YOUNG):
                before = None if self._left is None else {item.task for item in self._left}
                now = self._read()
                self._left = [item for item in now if before is None or item.task in before]
            return self._may_be(self._left, name)

    def now(self, name: str) -> bool:
        """Whether a create of that name may run now that this process did not send; one call."""
        with self._lock:
            return self._may_be(self._read(), name)

    def names(self) -> list[str]:
        """Names of the machines that unfinished creates of any process will have; one call."""
        found = self._reader(self._session)
        return [
            item.token.removeprefix(_TOKEN)
            for item in found
            if item.token and item.token.startswith(_TOKEN)
        ]

    def _read(self) -> list[Cloning]:
        self._read_at = self._monotonic()
        found = self._reader(self._session)
        ours = self._creates.tasks()
        self._keeps_tokens |= any(item.token for item in found if item.task in ours)
        return [item for item in found if item.task not in ours]

    def _may_be(self, found: list[Cloning], name: str) -> bool:
        token = activation(name)
        return any(
            item.token == token or (item.token is None and not self._keeps_tokens) for item in found
        )
