"""What is known of a local cluster between two commands: one small file in its state directory."""

import json
import os
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from hack.cluster.interface import ClusterError
from hack.cluster.local.ranges import Range

FILE: Final = "cluster.json"
_NEW_FILE: Final = f"{FILE}.new"
_MARK: Final = "banlieue local cluster"
_FORMAT: Final = 1


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
        """Write it into the state directory, all or nothing."""
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
        with new.open("w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        new.replace(state / FILE)


def read(state: Path) -> Record | None:
    """The record of a state directory, or None where there is none (and nothing else either).

    Raises:
        ClusterError: The directory is not one of ours.
    """
    try:
        text = (state / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        _refuse_foreign(state)
        return None
    except NotADirectoryError as error:
        raise _foreign(state) from error
    try:
        document = json.loads(text)
        if document["mark"] != _MARK:
            raise _foreign(state)
        if document["format"] != _FORMAT:
            raise ClusterError(
                f"{state} was made by another version of this; use that one to end the cluster"
            )
        node = document["node"]
        return Record(
            name=document["name"],
            range=Range.parse(document["range"]),
            phase=Phase(document["phase"]),
            resumable=document["resumable"] is True,
            node=NodeProcess(int(node["pid"]), int(node["started"]), str(node["boot"]))
            if node
            else None,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise _foreign(state) from error


def _refuse_foreign(state: Path) -> None:
    if not state.exists():
        return
    # Somebody was killed between making the directory and writing the file.
    if any(entry.name != _NEW_FILE for entry in state.iterdir()):
        raise _foreign(state)


def _foreign(state: Path) -> ClusterError:
    return ClusterError(
        f"{state} does not look like the state of a cluster, so it is left alone; "
        "move it away, or choose another name"
    )
