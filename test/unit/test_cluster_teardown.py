"""Ending what is there of a cluster, with plain processes as nodes."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.interface import ClusterError, Leave
from hack.cluster.local import cgroups, network, node_control, processes, record, teardown
from hack.cluster.local.paths import VARIABLE, Place
from hack.cluster.local.ranges import Range
from hack.cluster.local.record import NodeProcess, Phase, Record
from hack.cluster.local.undisturbed import undisturbed
from test.kit.waiting import wait_until


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    # Control groups need root.
    monkeypatch.setattr(cgroups, "hierarchies", list)
    return Place.of("dev", {VARIABLE: str(tmp_path)})


@pytest.fixture
def stray(place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """Looks like the node of that cluster."""
    command = [sys.executable, "-c", "input()", *node_control.words(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        # The kernel shows the arguments of a program a moment after it was started.
        told = Path(f"/proc/{process.pid}/cmdline")
        wait_until(lambda: b"input()" in told.read_bytes(), 10, "the arguments to be told")
        yield process
        process.kill()


def known(place: Place, node: NodeProcess | None = None) -> Record:
    place.state.mkdir(parents=True)
    found = Record("dev", Range.parse("10.88.0.0/16"), Phase.UP, node=node)
    found.write(place.state)
    for name in ("containerd", "etcd", "run"):
        (place.state / name).mkdir()
    return found


@pytest.mark.slow
def test_a_node_that_nobody_wrote_down_is_ended(
    place: Place, stray: subprocess.Popen[bytes]
) -> None:
    assert teardown.sweep(place)
    assert stray.wait(10) == -signal.SIGKILL
    assert not teardown.sweep(place)


@pytest.mark.slow
@pytest.mark.usefixtures("place")
def test_the_node_of_a_state_elsewhere_lives_on(
    stray: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    copy = Place.of("dev", {VARIABLE: str(tmp_path / "copy")})
    teardown.tear_down(copy, known(copy, processes.identify(stray.pid)), Leave.NOTHING)
    assert stray.poll() is None
    assert not copy.state.exists()


@pytest.mark.slow
def test_words_in_another_order_name_no_node(place: Place) -> None:
    module, state = node_control.words(place)
    command = [sys.executable, "-c", "input()", state, module]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            assert not processes.find(node_control.words(place))
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("leave", "left"),
    [
        (Leave.NOTHING, None),
        (Leave.IMAGES, {record.FILE, "containerd"}),
        (Leave.EVERYTHING, {record.FILE, "containerd", "etcd"}),
    ],
)
def test_files_stay_as_asked(place: Place, leave: Leave, left: set[str] | None) -> None:
    teardown.tear_down(place, known(place), leave)
    if left is None:
        assert not place.state.exists()
    else:
        assert {entry.name for entry in place.state.iterdir()} == left
        after = record.read(place.state)
        assert after is not None
        assert after.phase is Phase.DOWN
        assert after.resumable is (leave is Leave.EVERYTHING)


def test_what_cannot_be_removed_does_not_keep_the_rest(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    foreign = tmp_path / "links" / place.link
    foreign.mkdir(parents=True)
    (foreign / "ifalias").write_text("\n", encoding="utf-8")
    monkeypatch.setattr(network, "_LINKS", foreign.parent)
    with pytest.raises(ClusterError, match=rf"not of this cluster.*ip link delete {place.link}"):
        teardown.tear_down(place, known(place), Leave.NOTHING)
    assert foreign.exists()
    assert not place.state.exists()


def test_a_copied_state_takes_the_name_of_its_place(place: Place) -> None:
    copied = known(place).changed(name="original")
    teardown.tear_down(place, copied, Leave.IMAGES)
    document = json.loads((place.state / record.FILE).read_text(encoding="utf-8"))
    assert document["name"] == "dev"


def test_a_signal_waits_for_the_end_of_what_is_not_to_be_disturbed() -> None:
    class HeardError(Exception):
        pass

    def hear(*_: object) -> None:
        raise HeardError

    before = signal.signal(signal.SIGTERM, hear)
    done = []

    def work() -> None:
        with undisturbed():
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            done.append(True)

    try:
        with pytest.raises(HeardError):
            work()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert done
