"""Up, down, and all ways between: what a local cluster does to its host, and what it survives.

Only for the local cluster; what kind does to its host is kind's affair.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hack.cluster.choose import VARIABLE
from hack.cluster.interface import Leave
from hack.cluster.local import processes, record
from hack.cluster.local.lifecycle import LocalCluster
from hack.cluster.local.paths import VARIABLE as STATE_VARIABLE
from hack.cluster.local.ranges import VARIABLE as RANGE_VARIABLE
from hack.cluster.local.ranges import Range
from hack.cluster.local.record import Phase
from test.kit.hoststate import HostState
from test.kit.localcluster import Life, await_line, kill_at, write_image
from test.kit.waiting import wait_until

pytestmark = pytest.mark.skipif(
    os.environ.get(VARIABLE, "local") != "local", reason="about the local cluster"
)

UP_SECONDS = 400.0
SECOND_UP_SECONDS = 20.0
"""On a host that has seen one before: nothing is built or unpacked again."""


@pytest.fixture
def new_life() -> Iterator[Callable[[], Life]]:
    """Makes clusters that are gone after the test, whatever happened."""
    made: list[Life] = []

    def make() -> Life:
        life = Life(f"life-{secrets.token_hex(3)}")
        made.append(life)
        return life

    yield make
    for life in made:
        LocalCluster.named(life.place.name).down(Leave.NOTHING)


@pytest.fixture
def life(new_life: Callable[[], Life]) -> Life:
    return new_life()


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_image(tmp_path_factory.mktemp("life") / "kubectl.tar")


def test_a_pod_runs_and_nothing_is_left_on_the_host(life: Life, archive: Path) -> None:
    before = HostState.seen(life.place)
    said = life.run("up")
    assert str(life.place.kubeconfig) in said
    during = life.leaves(before)
    assert {"links", "routes", "groups", "processes", "files"} == set(during)
    assert during["links"] == [life.place.link]
    assert all(life.place.link in route for route in during["routes"])
    assert {Path(group).name for group in during["groups"]} == {life.place.cgroup}
    assert during["files"] == [str(life.place.state)]

    life.run("load", str(archive))
    life.run_pod()
    wait_until(lambda: "Starting to serve" in life.kubectl("logs", "pod"), 60, "its first word")
    # The client in the pod reaches the API server by its Service, as the pod's ServiceAccount.
    assert "Server Version" in life.kubectl("exec", "pod", "--", "/kubectl", "version")
    assert '"gitVersion"' in life.forwarded()

    assert "up already" in life.run("up")

    life.run("logs", str(archive.parent / "logs"))
    logs = [path.name for path in (archive.parent / "logs").rglob("*.log")]
    assert {"kubelet.log", "kube-apiserver.log", "0.log"} <= set(logs)

    life.run("down", "--purge")
    life.await_left(before)
    assert "there is no cluster" in life.run("down")


def test_images_survive_down_and_all_objects_survive_a_kept_one(life: Life, archive: Path) -> None:
    before = HostState.seen(life.place)
    life.run("up")
    life.run("load", str(archive))
    life.run_pod()
    life.kubectl("create", "configmap", "memory", "--from-literal=a=b")

    life.run("down", "--keep")
    life.await_left(before, files=[str(life.place.state)])
    kill_at(life.start("up"), "starting the controllers")
    assert "going on with" in life.run("up")
    assert life.kubectl("get", "configmap", "memory", "-o=jsonpath={.data.a}") == "b"
    # Its being ready is no word of the time before, so it does serve, or will in a moment.
    life.await_pod()
    assert life.kubectl("get", "pod", "pod", "-o=jsonpath={..restartCount}") != "0"
    wait_until(lambda: "Starting to serve" in life.kubectl("logs", "pod"), 60, "its first word")

    life.run("down")
    life.await_left(before, files=[str(life.place.state)])
    started = time.monotonic()
    life.run("up")
    assert time.monotonic() - started < SECOND_UP_SECONDS
    assert not life.kubectl("get", "configmap", "memory", "--ignore-not-found")
    life.run_pod()

    life.run("down", "--purge")
    life.await_left(before)


def test_killed_daemons_come_back_and_down_copes_without_them(life: Life, archive: Path) -> None:
    before = HostState.seen(life.place)
    life.run("up")
    life.run("load", str(archive))
    life.run_pod()
    daemons = ("kubelet", "containerd", "kube-apiserver")
    for daemon in daemons:
        life.await_another(daemon, than=life.kill(daemon))
    ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    wait_until(
        lambda: life.kubectl("get", "node", "node0", "-o", ready) == "True",
        120,
        "the node to be ready",
        retry_on=(AssertionError,),
    )
    wait_until(
        lambda: "Client" in life.kubectl("exec", "pod", "--", "/kubectl", "version", "--client"),
        120,
        "the pod, which lived on",
        retry_on=(AssertionError,),
    )
    assert life.kubectl("get", "pod", "pod", "-o=jsonpath={..restartCount}") == "0"

    for daemon in daemons:
        life.kill(daemon)
    life.run("down", "--purge")
    life.await_left(before)


def test_a_killed_node_is_cleaned_up_by_the_next_up(life: Life) -> None:
    before = HostState.seen(life.place)
    life.run("up")
    os.kill(life.node(), signal.SIGKILL)
    wait_until(lambda: "processes" not in life.leaves(before), 180, "its end")
    assert "ended without `down`" in life.run("status")
    assert "cleaning up first" in life.run("up")
    assert "node0" in life.kubectl("get", "nodes")
    life.run("down", "--purge")
    life.await_left(before)


STAGES = ("at 1", "starting etcd", "starting the controllers")


@pytest.mark.parametrize("stage", STAGES)
def test_an_up_killed_half_way_is_cleaned_up_by_down(life: Life, stage: str) -> None:
    before = HostState.seen(life.place)
    kill_at(life.start("up"), stage)
    wait_until(lambda: "processes" not in life.leaves(before), 180, "its node to end")
    life.run("down", "--purge")
    life.await_left(before)


def test_an_up_killed_half_way_is_cleaned_up_by_the_next_one(life: Life) -> None:
    before = HostState.seen(life.place)
    kill_at(life.start("up"), "starting the controllers")
    life.run("up")
    assert "node0" in life.kubectl("get", "nodes")
    life.run("down", "--purge")
    life.await_left(before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", STAGES[1:])
def test_an_interrupted_up_cleans_up_behind_itself(
    life: Life, number: signal.Signals, stage: str
) -> None:
    before = HostState.seen(life.place)
    up = life.start("up")
    await_line(up, stage)
    up.send_signal(number)
    said, _ = up.communicate(timeout=UP_SECONDS)
    assert up.returncode == 130, said
    life.await_left(before)


def test_a_daemon_that_cannot_start_is_named_with_its_log(life: Life) -> None:
    before = HostState.seen(life.place)
    # Kept certificates that do not fit: the API server ends at once.
    life.place.pki.mkdir(parents=True)
    known = record.Record(life.place.name, Range.parse("10.88.0.0/16"), Phase.DOWN)
    known.write(life.place.state)
    (life.place.pki / "service-account.pub").write_text("no key", encoding="ascii")
    said = life.run("up", code=1)
    assert "kube-apiserver ended with code" in said
    assert "--- kube-apiserver.log" in said
    life.await_left(before, files=[str(life.place.state)])
    life.run("down", "--purge")
    life.await_left(before)


def test_two_clusters_live_side_by_side(new_life: Callable[[], Life], archive: Path) -> None:
    one, two = new_life(), new_life()
    before = HostState.seen(one.place, two.place)
    starts = [life.start("up") for life in (one, two)]
    for start in starts:
        said, _ = start.communicate(timeout=UP_SECONDS)
        assert start.returncode == 0, said
    for life in (one, two):
        life.run("load", str(archive))
        life.run_pod()
    addresses = {life.kubectl("get", "pod", "pod", "-o=jsonpath={..podIP}") for life in (one, two)}
    assert len(addresses) == 2
    known = record.read(one.place.state)
    assert known
    taken = {RANGE_VARIABLE: str(known.range)}
    assert f"name another /16 in {RANGE_VARIABLE}" in new_life().run("up", code=1, **taken)

    one.run("down", "--purge")
    assert "Server" in two.kubectl("exec", "pod", "--", "/kubectl", "version")
    two.run("down", "--purge")
    wait_until(
        lambda: not HostState.seen(one.place, two.place).new_since(before),
        180,
        "a clean host",
    )


def test_a_state_that_cannot_carry_containers_is_refused(life: Life) -> None:
    folder = Path("/dev/shm/banlieue-clusters")  # noqa: S108 - it is refused
    said = life.run("up", code=1, **{STATE_VARIABLE: str(folder)})
    assert "type tmpfs" in said
    assert STATE_VARIABLE in said
    assert not folder.exists()


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp"])  # noqa: S108 - safe ones are made there
def test_the_state_may_lie_where_the_node_has_folders_of_its_own(
    folder: str, archive: Path
) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as clusters:
        life = Life("elsewhere", {STATE_VARIABLE: clusters})
        life.run("up")
        try:
            life.run("load", str(archive))
            life.run_pod()
        finally:
            life.run("down", "--purge")
        assert not list(Path(clusters).iterdir())


def on_host(*command: str) -> None:
    subprocess.run(command, check=True)


@pytest.fixture
def disk() -> Iterator[Path]:
    """A file system of its own, mounted where a node has a folder of its own."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        image, point = Path(folder, "image"), Path(folder, "disk")
        point.mkdir()
        with image.open("wb") as file:
            file.truncate(8 << 30)
        on_host("mkfs.ext4", "-q", str(image))
        on_host("mount", "-o", "loop", str(image), str(point))
        try:
            yield point
        finally:
            on_host("umount", str(point))


def test_the_state_may_be_on_a_file_system_of_its_own(disk: Path) -> None:
    life = Life("disk", {STATE_VARIABLE: str(disk)})
    life.run("up")
    life.run("down", "--purge")
    assert [entry.name for entry in disk.iterdir()] == ["lost+found"]


def test_a_node_whose_record_is_lost_is_named_and_ended(life: Life, tmp_path: Path) -> None:
    before = HostState.seen(life.place)
    life.run("up")
    (life.place.state / record.FILE).write_text("{", encoding="utf-8")
    for command in (("up",), ("down",)):
        said = life.run(*command, code=1)
        assert "left alone" in said
        assert "once the directory is moved away" in said
    shutil.move(life.place.state, tmp_path / "away")
    assert "removed what was left of one" in life.run("down")
    life.await_left(before)


def test_a_link_of_somebody_else_is_left_alone(life: Life) -> None:
    link = life.place.link
    on_host("ip", "link", "add", link, "type", "veth", "peer", "name", "x-peer")
    try:
        for command in (("up",), ("down",)):
            assert f"ip link delete {link}" in life.run(*command, code=1)
        assert Path("/sys/class/net", link).exists()
    finally:
        on_host("ip", "link", "delete", link)


def test_an_interrupted_down_goes_to_its_end(life: Life) -> None:
    before = HostState.seen(life.place)
    life.run("up")
    down = life.start("down", "--purge")
    await_line(down, "ending cluster")
    down.send_signal(signal.SIGTERM)
    down.send_signal(signal.SIGINT)
    said, _ = down.communicate(timeout=UP_SECONDS)
    assert down.returncode in {0, 130}, said
    life.run("down", "--purge")
    life.await_left(before)


def test_two_ups_of_one_name_make_one_cluster(life: Life) -> None:
    starts = [life.start("up") for _ in range(2)]
    said = [start.communicate(timeout=UP_SECONDS)[0] for start in starts]
    assert [start.returncode for start in starts] == [0, 0], said
    assert sum("up already" in text for text in said) == 1
    assert sum("is up after" in text for text in said) == 1
    life.run("down", "--purge")


def test_what_is_not_a_clusters_is_left_alone(life: Life) -> None:
    precious = life.place.state / "precious"
    life.place.state.mkdir(parents=True)
    precious.touch()
    try:
        for command in (("up",), ("down", "--purge"), ("status",)):
            assert "left alone" in life.run(*command, code=1)
        assert precious.exists()
    finally:
        shutil.rmtree(life.place.state)


def test_a_process_that_took_the_nodes_number_lives_on(life: Life) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        try:
            life.place.state.mkdir(parents=True)
            addresses = Range.parse("10.88.0.0/16")
            node = processes.identify(stranger.pid)
            known = record.Record(life.place.name, addresses, Phase.UP, node=node)
            known.write(life.place.state)
            assert "ended without `down`" in life.run("status")
            life.run("down", "--purge")
            assert stranger.poll() is None
        finally:
            stranger.kill()
