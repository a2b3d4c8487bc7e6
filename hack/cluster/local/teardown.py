"""The end of a cluster: its node, what the host holds of it, and its files.

Every step is fine with finding nothing, so a teardown that was cut short is done again as it is.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hack.cluster.interface import ClusterError, Leave
from hack.cluster.local import cgroups, checks, network, node_control, processes, record
from hack.cluster.local.paths import Place
from hack.cluster.local.record import NodeProcess, Phase, Record
from hack.cluster.local.undisturbed import undisturbed
from hack.cluster.oserrors import told

# What a fresh start goes on with: images, certificates, and the record itself.
_KEPT_FOR_IMAGES: Final = ("containerd", "pki", record.FILE)
# What has no meaning without a running node.
_OF_THE_RUN: Final = ("run", "tmp")


def tear_down(place: Place, known: Record, leave: Leave) -> None:
    """End a cluster, and remove all of it that is not to be left.

    Raises:
        ClusterError: Something could not be removed. The rest is, but for the files of a node that
            does not end.
    """
    with undisturbed():
        clear_host(place, known.node, lambda: _clear_state(place, known, leave))


def sweep(place: Place) -> bool:
    """Remove what is there of a cluster without a record; says whether a node was among it.

    Usually that is nothing but an empty directory, unless somebody has removed the state.
    """
    with undisturbed():
        return clear_host(place, None, lambda: _remove(place.state))


def clear_host(
    place: Place, node: NodeProcess | None = None, then: Callable[[], None] = lambda: None
) -> bool:
    """End the node, remove the link and the control groups; says whether there was a node.

    Args:
        place: Whose.
        node: The first process of the node, as far as it is known.
        then: Run at the end, also when something could not be removed.

    Raises:
        ClusterError: Something could not be removed; the rest is.
    """
    ended = _end_node(place, node)
    steps: list[Callable[[], None]] = [
        lambda: network.disconnect(place.link, place.name),
        lambda: cgroups.remove(place.cgroup, cgroups.hierarchies()),
        then,
    ]
    problems = []
    for step in steps:
        try:
            step()
        except ClusterError as error:
            problems.append(str(error))
    if problems:
        raise ClusterError("\n".join(problems))
    return ended


def _end_node(place: Place, node: NodeProcess | None) -> bool:
    words = node_control.words(place)
    # The node may have been started but not written down, or the record is lost.
    suspects = [*([node] if node else []), *processes.find(words)]
    ended = [processes.kill(suspect, words) for suspect in suspects]
    return any(ended)


def _clear_state(place: Place, known: Record, leave: Leave) -> None:
    mounted = checks.mounts_below(place.state)
    if mounted:
        raise ClusterError(
            f"file systems are mounted in {place.state}: "
            f"{', '.join(map(str, mounted))}; unmount them, then run the same again"
        )
    if leave is Leave.NOTHING:
        _remove(place.state)
        return
    for entry in list(place.state.iterdir()):
        goes = entry.name not in _KEPT_FOR_IMAGES
        if entry.name in _OF_THE_RUN or (leave is Leave.IMAGES and goes):
            _remove(entry)
    # Written last: whoever is killed before this leaves a record that says what to clean.
    known.changed(
        name=place.name, phase=Phase.DOWN, resumable=leave is Leave.EVERYTHING, node=None
    ).write(place.state)


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise ClusterError(f"cannot remove {told(error, path)}, then run the same again") from error
