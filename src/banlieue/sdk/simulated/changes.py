"""What moved in a simulated world, for those who listen."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class _Entry:
    number: int
    vms: frozenset[str]
    task: str | None


class ChangeLog:
    """A bounded log of changes; a reader holds a cursor and is told when it fell behind.

    `life` distinguishes one run of the world from the next, so a cursor of an earlier run is
    answered with "look at everything".
    """

    def __init__(self, life: str) -> None:
        self._life = life
        self._number = 0
        self._entries: deque[_Entry] = deque(maxlen=_REMEMBERED)

    @property
    def number(self) -> int:
        """How many changes there were so far."""
        return self._number

    def vm(self, *words: str) -> None:
        """Note that the VM known by these UUIDs and names changed."""
        self._append(words, None)

    def task(self, task: str) -> None:
        """Note that a task ended."""
        self._append((), task)

    def _append(self, words: Iterable[str], task: str | None) -> None:
        self._number += 1
        self._entries.append(_Entry(self._number, frozenset(words), task))

    def since(self, cursor: str) -> dict[str, Any]:
        """What happened after the cursor: `cursor`, `vms`, `tasks`, `everything`."""
        answer: dict[str, Any] = {
            "cursor": f"{self._life}:{self._number}",
            "vms": [],
            "tasks": [],
            "everything": False,
        }
        life, _, number = cursor.partition(":")
        oldest = self._entries[0].number if self._entries else self._number + 1
        if life != self._life or int(number) + 1 < oldest:
            return answer | {"everything": True}
        missed = max(0, self._number - int(number))
        if not missed:
            return answer
        new = tuple(islice(reversed(self._entries), missed))
        answer["vms"] = sorted(set().union(*(entry.vms for entry in new)))
        answer["tasks"] = sorted({entry.task for entry in new if entry.task})
        return answer
