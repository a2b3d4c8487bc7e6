"""What a host does to a cluster that no test on a healthy one shows."""

import os
import shutil
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from hack import certificates
from hack.certificates import Authority
from hack.cluster import __main__ as program
from hack.cluster.interface import ClusterError
from hack.cluster.local import images, logs, node_control, pki, processes, programs, ranges, record
from hack.cluster.local.api import Api
from hack.cluster.local.node import Channel
from hack.cluster.local.paths import VARIABLE, Place
from hack.cluster.local.ranges import Range
from hack.cluster.local.record import NodeProcess, Phase, Record
from hack.cluster.oserrors import told
from test.kit.waiting import wait_until

RANGE = Range.parse("10.88.0.0/16")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    found = Place.of("dev")
    found.state.mkdir()
    return found


def start(place: Place) -> bytes:
    pki.write_all(place, RANGE)
    return (place.pki / "ca.crt").read_bytes()


def test_a_running_authority_is_kept(place: Place) -> None:
    assert start(place) == start(place)


@pytest.mark.parametrize("years", [-1, 10, 20])
def test_an_authority_that_is_not_valid_for_another_year_is_made_anew(
    place: Place, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    old = start(place)

    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Later":
            moved = datetime.now(tz) + timedelta(days=365 * years)
            return cls.fromtimestamp(moved.timestamp(), UTC)

    monkeypatch.setattr(pki, "datetime", Later)
    monkeypatch.setattr(certificates, "datetime", Later)
    new = start(place)
    assert new != old
    assert start(place) == new


@pytest.mark.parametrize("damaged", ["ca.crt", "ca.key"])
@pytest.mark.parametrize("content", [b"", b"no PEM", None])
def test_a_damaged_authority_is_made_anew(
    place: Place, damaged: str, content: bytes | None
) -> None:
    old = start(place)
    if content is None:
        # Whoever is killed between the two files leaves halves of two authorities.
        pair = Authority().pair
        content = pair.certificate if damaged == "ca.crt" else pair.key
    (place.pki / damaged).write_bytes(content)
    new = start(place)
    assert new not in {old, content}
    assert start(place) == new


def test_certificates_of_no_use_are_told_with_a_remedy(place: Place) -> None:
    with pytest.raises(ClusterError, match=r"pki cannot be used.*down --purge --name dev"):
        Api(place, RANGE)
    start(place)
    (place.pki / "ca.crt").write_text("no PEM")
    with pytest.raises(ClusterError, match="pki cannot be used"):
        Api(place, RANGE)


@pytest.mark.parametrize(
    "text", ["0.0.0.0/16", "127.5.0.0/16", "169.254.0.0/16", "224.9.0.0/16", "250.0.0.0/16"]
)
def test_a_range_that_no_host_can_have_is_refused(text: str) -> None:
    with pytest.raises(ClusterError, match=f"no host can have.*{ranges.VARIABLE}"):
        ranges.check(Range.parse(text), [], [])


@pytest.mark.parametrize("pid", ["-1", "0", "1e999", "99999999999999999999", '"x"', "null"])
def test_a_record_with_an_impossible_process_is_refused(place: Place, pid: str) -> None:
    Record("dev", RANGE, Phase.UP, node=NodeProcess(7, 8, "b")).write(place.state)
    file = place.state / record.FILE
    file.write_text(file.read_text().replace('"pid": 7', f'"pid": {pid}'))
    with pytest.raises(ClusterError, match=r"left alone.*cluster\.json is damaged"):
        record.read(place.state)


@pytest.mark.parametrize("content", [b"\xff", b"[" * 100_000, None])
def test_a_record_that_is_no_text_or_no_file_is_refused(
    place: Place, content: bytes | None
) -> None:
    file = place.state / record.FILE
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(ClusterError, match="left alone"):
        record.read(place.state)


def test_a_damaged_range_names_the_record(place: Place) -> None:
    Record("dev", RANGE, Phase.UP).write(place.state)
    file = place.state / record.FILE
    file.write_text(file.read_text().replace("10.88.0.0/16", "ten"))
    with pytest.raises(ClusterError, match=f"{place.state} does not look like"):
        record.read(place.state)


def test_a_record_that_cannot_be_written_names_its_file(place: Place) -> None:
    (place.state / f"{record.FILE}.new").mkdir()
    with pytest.raises(ClusterError, match=r"cannot write .*cluster\.json\.new"):
        Record("dev", RANGE, Phase.UP).write(place.state)


def test_status_tells_of_all_clusters_also_of_broken_ones(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    Record("dev", RANGE, Phase.DOWN).write(place.state)
    for name in ("broken", "Not-Ours"):
        (place.clusters / name).mkdir()
        (place.clusters / name / record.FILE).touch()
    assert program.main(["status"]) == 1
    said = capsys.readouterr()
    assert "dev: down" in said.out
    assert "broken: " in said.err
    assert "left alone" in said.err
    assert "Not-Ours" not in said.out + said.err


@pytest.mark.slow
def test_a_damaged_record_is_told_with_the_node_behind_it(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (place.state / record.FILE).write_text("{")
    command = [sys.executable, "-c", "input()", *node_control.words(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as node:
        try:
            assert program.main(["down", "--name", "dev"]) == 1
            assert node.poll() is None
        finally:
            node.kill()
    said = capsys.readouterr().err
    assert "down --name dev` ends it" in said
    assert str(node.pid) in said


def test_logs_that_are_not_there_are_no_success(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    target = place.clusters / "target"
    assert program.main(["logs", "--name", "dev", str(target)]) == 1
    assert "no logs of cluster dev" in capsys.readouterr().err
    assert not target.exists()


def test_logs_that_cannot_be_copied_are_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.logs.mkdir()
    (place.logs / "etcd.log").write_text("x")
    logs.save(place, place.clusters / "target")
    assert (place.clusters / "target/node/etcd.log").read_text() == "x"
    with pytest.raises(ClusterError, match="remove what is in the way"):
        logs.save(place, place.logs / "etcd.log")

    def full(_: str, target: str) -> None:
        raise OSError(28, "No space left on device", target)

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(ClusterError, match=r"cannot copy all logs.*No space"):
        logs.save(place, place.clusters / "target")


def test_logs_that_vanish_meanwhile_are_no_failure(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.logs.mkdir()
    (place.logs / "etcd.log").write_text("x")

    def gone(source: str, _: str) -> None:
        raise FileNotFoundError(2, "No such file or directory", source)

    monkeypatch.setattr(shutil, "copy2", gone)
    logs.save(place, place.clusters / "target")


def test_an_image_that_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    node = processes.identify(os.getpid())
    for path in (pipe, tmp_path):
        with pytest.raises(ClusterError, match=f"{path} is no file"):
            images.load(node, path)
    with pytest.raises(ClusterError, match=r"missing\.tar: No such file"):
        images.load(node, tmp_path / "missing.tar")


def test_of_what_ctr_says_the_error_is_shown() -> None:
    noise = 'time="now" level=warning msg="DEPRECATION: cgroup v1"\n'
    assert images.said(f"{noise}ctr: unrecognized image format\n") == (
        "ctr: unrecognized image format"
    )
    assert images.said(noise) == noise.strip()


@pytest.mark.slow
def test_a_tool_that_hangs_in_the_node_is_given_up_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child"
    # Stands in for nsenter, which has the tool as its child.
    stand_in = tmp_path / "nsenter"
    stand_in.write_text(
        f"#!/bin/sh\nsleep 600 & echo $! > {child}.new; mv {child}.new {child}; wait\n"
    )
    stand_in.chmod(0o755)
    monkeypatch.setattr(node_control, "program", lambda _: str(stand_in))
    with pytest.raises(subprocess.TimeoutExpired):
        node_control.run_inside(processes.identify(os.getpid()), ["ctr"], 2.0)
    pid = int(child.read_text())
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            processes.identify(pid)
        except ProcessLookupError:
            return
    pytest.fail("the child lives on")


def test_a_program_is_found_beside_the_path_or_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert programs.program("mount").endswith("/mount")
    monkeypatch.setattr(programs, "_SEARCHED", "/nonexistent")
    with pytest.raises(ClusterError, match=r"nsenter is missing: apt-get install .* util-linux"):
        programs.program("nsenter")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device"), "/x: No space left on device; make room"),
        (OSError(13, "Permission denied", "/y"), "/y: Permission denied; run this as the user"),
        (OSError(5, "Input/output error", "/y"), "/y: Input/output error"),
        (OSError("plain"), "/x: plain"),
    ],
)
def test_errors_of_the_system_name_the_thing_and_the_remedy(error: OSError, words: str) -> None:
    assert told(error, Path("/x")).startswith(words)


NODE = """
import socket, sys
from pathlib import Path
from hack.cluster.local import node, node_mounts, paths
folder, descriptor = Path(sys.argv[1]), int(sys.argv[2])
node_mounts.TOOLS = folder
paths.inside = lambda *parts: str(folder / parts[-1])
plan = node.Plan("node0", {}, {"etcd": []}, {})
node.Node(plan, node.Channel(socket.socket(fileno=descriptor))).run()
"""


@pytest.mark.slow
def test_a_node_that_is_short_of_something_lives_on(tmp_path: Path) -> None:
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    runs, daemon = tmp_path / "runs", tmp_path / "etcd"
    command = [sys.executable, "-c", NODE, str(tmp_path), str(its.fileno())]
    # What it says itself meets a full disk.
    with (
        mine,
        Path("/dev/full").open("wb") as full,
        subprocess.Popen(command, stdout=full, stderr=full, pass_fds=[its.fileno()]) as node,
    ):
        its.close()
        control = Channel(mine)
        try:
            control.send(do="start", daemon="etcd")
            assert "cannot start etcd" in str(control.receive(30))
            daemon.write_text(f"#!/bin/sh\necho >> {runs}\n")
            daemon.chmod(0o755)
            control.send(do="start", daemon="etcd")
            assert control.receive(30) == {"ended": "etcd", "code": 0}
            control.send(do="stay")
            assert control.receive(30) == {"stays": True}
            control.send(do="start", daemon="etcd")
            wait_until(lambda: len(runs.read_bytes()) > 1, 30, "its second run")
            daemon.rename(tmp_path / "away")
            before = len(runs.read_bytes())
            wait_until(lambda: node.poll() is not None or not log_grows(runs), 30, "no more runs")
            (tmp_path / "away").rename(daemon)
            wait_until(lambda: len(runs.read_bytes()) > before + 1, 30, "runs as before")
        finally:
            node.kill()


def log_grows(path: Path) -> bool:
    """Whether a daemon that is started again every second has run in the last two."""
    return time.time() - path.stat().st_mtime < 2
