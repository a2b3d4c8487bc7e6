import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hack.cluster.interface import ClusterError
from hack.cluster.local import processes, record
from hack.cluster.local.lock import locked
from hack.cluster.local.paths import VARIABLE, Place, clusters_directory
from hack.cluster.local.ranges import Range
from hack.cluster.local.record import NodeProcess, Phase, Record

RANGE = Range.parse("10.90.0.0/16")


def own_words() -> list[str]:
    content = Path("/proc/self/cmdline").read_bytes()
    return [os.fsdecode(word) for word in content.split(b"\0") if word]


@pytest.mark.parametrize("node", [None, NodeProcess(7, 8, "b")])
def test_a_record_reads_as_it_was_written(tmp_path: Path, node: NodeProcess | None) -> None:
    written = Record("dev", RANGE, Phase.UP, resumable=True, node=node)
    written.write(tmp_path)
    assert record.read(tmp_path) == written
    assert [entry.name for entry in tmp_path.iterdir()] == [record.FILE]


def test_where_nothing_is_there_is_no_record(tmp_path: Path) -> None:
    assert record.read(tmp_path / "missing") is None
    assert record.read(tmp_path) is None


def test_a_start_killed_before_its_first_record_left_ours(tmp_path: Path) -> None:
    (tmp_path / f"{record.FILE}.new").write_text("{", encoding="utf-8")
    assert record.read(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"mark": "something else"}', "not JSON"])
def test_a_foreign_record_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / record.FILE).write_text(content, encoding="utf-8")
    with pytest.raises(ClusterError, match="left alone"):
        record.read(tmp_path)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(ClusterError, match="left alone"):
        record.read(tmp_path)
    with pytest.raises(ClusterError, match="left alone"):
        record.read(tmp_path / "thesis.txt")


def test_a_record_of_another_version_is_not_guessed_at(tmp_path: Path) -> None:
    Record("dev", RANGE, Phase.UP).write(tmp_path)
    file = tmp_path / record.FILE
    document = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**document, "format": 99}), encoding="utf-8")
    with pytest.raises(ClusterError, match="another version"):
        record.read(tmp_path)


def test_a_process_is_known_again() -> None:
    me = processes.identify(os.getpid())
    assert processes.is_ours(me, own_words())
    assert processes.is_ours(me, own_words()[-1:])


@pytest.mark.parametrize(
    "change",
    [{"started": -1}, {"boot": "before"}, {"pid": 1}, {"pid": 2**22 + 1}],
    ids=["a later process", "before the reboot", "another number", "no process"],
)
def test_another_process_is_neither_ours_nor_killed(change: dict[str, Any]) -> None:
    other = replace(processes.identify(os.getpid()), **change)
    assert not processes.is_ours(other, own_words())
    assert not processes.kill(other, own_words())


def test_a_process_with_other_arguments_is_not_killed() -> None:
    assert not processes.kill(processes.identify(os.getpid()), ["hack.cluster.local.node"])


@pytest.mark.parametrize("name", ["dev", "a", "life-3f", "x" * 30])
def test_marks_on_the_host_fit_and_are_ours(tmp_path: Path, name: str) -> None:
    place = Place.of(name, {VARIABLE: str(tmp_path)})
    assert len(place.link) <= 15
    assert place.link.startswith("blc-")
    assert place.cgroup.startswith(f"banlieue-{name}-")
    elsewhere = Place.of(name, {VARIABLE: str(tmp_path / "elsewhere")})
    assert place.link != elsewhere.link
    assert place.cgroup != elsewhere.cgroup


def test_state_is_in_the_users_cache_unless_told_otherwise() -> None:
    home = {"HOME": "/data/me"}
    assert clusters_directory(home) == Path("/data/me/.cache/banlieue/clusters")
    cache = {**home, "XDG_CACHE_HOME": "/c"}
    assert clusters_directory(cache) == Path("/c/banlieue/clusters")
    assert clusters_directory({**cache, VARIABLE: "/s"}) == Path("/s")
    assert clusters_directory({**home, "XDG_CACHE_HOME": "c"}).is_relative_to("/data/me")


def test_a_lock_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "folder" / ".lock"
    for _ in range(2):
        with locked(file):
            assert file.exists()
        assert not file.exists()
