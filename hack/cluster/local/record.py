"""What is known of a local cluster between two commands: one small file in its state directory."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from hack.cluster.interface import ClusterError
from hack.cluster.local.ranges import Range
from hack.cluster.oserrors import told

FILE: Final = "cluster.json"
_NEW_FILE: Final = f"{FILE}.new"
_MARK: Final = "banlieue local cluster"
_FORMAT: Final = 1
# The kernel's PID_MAX_LIMIT.
_LAST_PID: Final = 1 << 22


class Phase(Enum):
    """How far a cluster is."""

    STARTING = "starting"
    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """The first process of a node, so that it is never mistaken for another of the same number.

    Attributes:
        pid: Its process id on the host.
        started: When it was started, in clock ticks since the host was.
        boot: Which run of the host's kernel that counts in.
    """

    pid: int
    started: int
    boot: str


@dataclass(frozen=True, slots=True)
class Record:
    """One cluster.

    Attributes:
        name: Its name.
        range: Its addresses.
        phase: How far it is.
        resumable: Whether its objects are kept, so that a start goes on with them.
        node: Its node, once that was started.
    """

    name: str
    range: Range
    phase: Phase
    resumable: bool = False
    node: NodeProcess | None = None

    def changed(self, **fields: Any) -> "Record":  # noqa: ANN401 - as replace() has it
        """The same with some fields changed."""
        return replace(self, **fields)

    def write(self, state: Path) -> None:
        """Write it into the state directory, all or nothing.

        Raises:
            ClusterError: That is not possible; the record is as it was.
        """
        document = {
            "mark": _MARK,
            "format": _FORMAT,
            "name": self.name,
            "range": str(self.range),
            "phase": self.phase.value,
            "resumable": self.resumable,
            "node": asdict(self.node) if self.node else None,
        }
        new = state / _NEW_FILE
        try:
            with new.open("w", encoding="utf-8") as file:
                json.dump(document, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            new.replace(state / FILE)
        except OSError as error:
            raise ClusterError(f"cannot write {told(error, new)}") from error


def read(state: Path) -> Record | None:
    """The record of a state directory, or None where there is none (and nothing else either).

    Raises:
        ClusterError: The directory is not one of ours, or its record cannot be read.
    """
    try:
        text = (state / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        _refuse_foreign(state)
        return None
    except PermissionError as error:
        raise ClusterError(
            f"{state / FILE} can be read by its owner only; run this as the user who started the "
            "cluster, which is root"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise _foreign(state, str(error)) from error
    try:
        return _parsed(text, state)
    # RecursionError is what JSON of many brackets ends in.
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _foreign(state, f"{FILE} is damaged: {error!r}") from error


def _parsed(text: str, state: Path) -> Record:
    document = json.loads(text)
    if document["mark"] != _MARK:
        raise _foreign(state, f"{FILE} is of something else")
    if document["format"] != _FORMAT:
        raise ClusterError(
            f"{state} was made by another version of this; use that one to end the cluster"
        )
    node = document["node"]
    return Record(
        name=document["name"],
        range=_range(document["range"]),
        phase=Phase(document["phase"]),
        resumable=document["resumable"] is True,
        node=_node(node) if node else None,
    )


def _range(text: str) -> Range:
    try:
        return Range.parse(text)
    except ClusterError as error:
        raise ValueError(str(error)) from error


def _node(document: Mapping[str, Any]) -> NodeProcess:
    pid = int(document["pid"])
    if not 0 < pid <= _LAST_PID:
        raise ValueError(f"{pid} is no process id")
    return NodeProcess(pid, int(document["started"]), str(document["boot"]))


def _refuse_foreign(state: Path) -> None:
    if not state.exists():
        return
    # Somebody was killed between making the directory and writing the file.
    others = sorted(entry.name for entry in state.iterdir() if entry.name != _NEW_FILE)
    if others:
        raise _foreign(state, f"it holds {others[0]!r} but no {FILE}")


def _foreign(state: Path, why: str) -> ClusterError:
    return ClusterError(
        f"{state} does not look like the state of a cluster, so it is left alone ({why}); "
        "move it away, or choose another name"
    )
