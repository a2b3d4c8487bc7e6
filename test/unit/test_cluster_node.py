import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.local import node_control
from hack.cluster.local.node import Channel


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, two:
        yield Channel(one), Channel(two)


def test_messages_arrive_one_by_one(ends: tuple[Channel, Channel]) -> None:
    one, two = ends
    one.send(do="start", daemon="etcd")
    one.send(plan={"arguments": ["x"] * 1000})
    assert two.receive(1) == {"do": "start", "daemon": "etcd"}
    assert two.receive(1) == {"plan": {"arguments": ["x"] * 1000}}
    with pytest.raises(TimeoutError):
        two.receive(0.001)


def test_the_end_of_the_other_side_is_told(ends: tuple[Channel, Channel]) -> None:
    one, two = ends
    one.send(last=True)
    one.end.close()
    assert two.receive(1) == {"last": True}
    assert two.receive(1) is None
    two.send(nobody="reads this")


def test_tails_show_the_ends_of_all_logs(tmp_path: Path) -> None:
    lines = "".join(f"{'x' * 200} {number}\n" for number in range(1000))
    (tmp_path / "kubelet.log").write_text(lines, encoding="utf-8")
    (tmp_path / "etcd.log").write_bytes(b"\xff broken\n")
    said = node_control.tails(tmp_path, 3)
    assert "--- kubelet.log" in said
    assert " 999" in said
    assert " 996\n" not in said
    assert " broken" in said
    assert not node_control.tails(tmp_path / "missing")
    (tmp_path / "silent.log").touch()
    assert "silent" not in node_control.tails(tmp_path)


def test_tails_leave_out_what_an_earlier_run_said(tmp_path: Path) -> None:
    for name, when in (("old.log", 100), ("new.log", 300)):
        (tmp_path / name).write_text(name, encoding="utf-8")
        os.utime(tmp_path / name, (when, when))
    assert node_control.tails(tmp_path, since=200) == "--- new.log\nnew.log"
    assert node_control.tails(tmp_path).startswith("--- old.log")
