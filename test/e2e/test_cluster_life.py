"""Up, down, and all ways between: what a local cluster does to its host, and what it survives.

Only for the local cluster; what kind does to its host is kind's affair.
"""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from hack.cluster.choose import VARIABLE
from hack.cluster.interface import Leave
from hack.cluster.local import processes, record
from hack.cluster.local.lifecycle import LocalCluster
from hack.cluster.local.paths import VARIABLE as STATE_VARIABLE
from hack.cluster.local.paths import Place
from hack.cluster.local.ranges import VARIABLE as RANGE_VARIABLE
from hack.cluster.local.ranges import Range
from hack.cluster.local.record import Phase
from hack.images.archive import StaticImage, write_archive
from test.kit.hoststate import HostState
from test.kit.tools import tool
from test.kit.waiting import wait_until

pytestmark = pytest.mark.skipif(
    os.environ.get(VARIABLE, "local") != "local", reason="about the local cluster"
)

TOP = Path(__file__).resolve().parents[2]
IMAGE = "localhost/life-kubectl:1"
PROXY_PORT = 8001
UP_SECONDS = 400.0
# Long, because whatever else is begun on the host meanwhile has to be over too.
GONE_SECONDS = 180.0


class Life:
    """One cluster of a test, driven as people do: by its command line."""

    def __init__(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        self.environment = dict(environment or {})
        self.place = Place.of(name, {**os.environ, **self.environment})

    def command(self, *arguments: str) -> list[str]:
        name = ("--name", self.place.name)
        return [sys.executable, "-m", "hack.cluster", arguments[0], *name, *arguments[1:]]

    def run(self, *arguments: str, code: int = 0, **environment: str) -> str:
        result = subprocess.run(
            self.command(*arguments),
            cwd=TOP,
            env={**os.environ, **self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=UP_SECONDS,
            check=False,
        )
        assert result.returncode == code, f"{arguments}: {result.stdout}{result.stderr}"
        return result.stdout + result.stderr

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            cwd=TOP,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def kubectl(self, *arguments: str) -> str:
        result = subprocess.run(
            [tool("kubectl"), f"--kubeconfig={self.place.kubeconfig}", *arguments],
            capture_output=True,
            text=True,
            timeout=UP_SECONDS,
            check=False,
        )
        assert result.returncode == 0, f"{arguments}: {result.stderr}"
        return result.stdout

    def run_pod(self) -> None:
        """A pod that serves the API of its cluster on its own loopback address."""
        arguments = ("--restart=Always", "--", "proxy", f"--port={PROXY_PORT}")
        self.kubectl("run", "pod", f"--image={IMAGE}", "--image-pull-policy=Never", *arguments)
        self.await_pod()

    def await_pod(self) -> None:
        self.kubectl("wait", "--for=condition=Ready", "pod/pod", "--timeout=120s")

    def node(self) -> int:
        known = record.read(self.place.state)
        assert known is not None
        assert known.node is not None
        return known.node.pid

    def daemon(self, name: str) -> int | None:
        """Process id of a daemon on the host, if it runs."""
        mine = Path(f"/proc/{self.node()}/ns/pid").readlink()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes().split(b"\0")
                if command[0] == name.encode() and (folder / "ns/pid").readlink() == mine:
                    return int(folder.name)
            except (FileNotFoundError, ProcessLookupError):
                continue
        return None

    def leaves(self, before: HostState) -> dict[str, list[str]]:
        return HostState.seen(self.place).new_since(before)

    def await_left(self, before: HostState, **expected: list[str]) -> None:
        """Nothing but what is expected. The kernel takes a moment to end what was killed."""
        wait_until(
            lambda: self.leaves(before) == expected,
            GONE_SECONDS,
            f"nothing new on the host but {expected}",
        )


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
    """kubectl as an image: it can serve, say something, and be run again beside itself."""
    path = tmp_path_factory.mktemp("life") / "kubectl.tar"
    write_archive(StaticImage(IMAGE, tool("kubectl"), "/kubectl"), path)
    return path


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
    assert '"gitVersion"' in forwarded(life)

    started = time.monotonic()
    assert "up already" in life.run("up")
    assert time.monotonic() - started < 20

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
    life.run("up")
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
        await_another(life, daemon, than=kill(life, daemon))
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
        kill(life, daemon)
    life.run("down", "--purge")
    life.await_left(before)


def test_a_killed_node_is_cleaned_up_by_the_next_up(life: Life) -> None:
    before = HostState.seen(life.place)
    life.run("up")
    os.kill(life.node(), signal.SIGKILL)
    wait_until(lambda: "processes" not in life.leaves(before), GONE_SECONDS, "its end")
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
    wait_until(lambda: "processes" not in life.leaves(before), GONE_SECONDS, "its node to end")
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
        GONE_SECONDS,
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


def kill(life: Life, daemon: str) -> int:
    pid = life.daemon(daemon)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def kill_at(up: subprocess.Popen[str], stage: str) -> None:
    await_line(up, stage)
    up.kill()
    up.communicate()


def await_another(life: Life, daemon: str, than: int) -> None:
    wait_until(lambda: life.daemon(daemon) not in {None, than}, 30, f"another {daemon}")


def await_line(process: subprocess.Popen[str], part: str) -> None:
    """Read what it says until a line has that part; whoever waits for ever is killed."""
    assert process.stdout is not None
    watch = threading.Timer(UP_SECONDS, process.kill)
    watch.start()
    try:
        seen = []
        for line in process.stdout:
            seen.append(line)
            if part in line:
                return
    finally:
        watch.cancel()
    pytest.fail(f"{part!r} was never said: {''.join(seen)}")


def forwarded(life: Life) -> str:
    """What the pod's server answers through `kubectl port-forward`."""
    kubeconfig = f"--kubeconfig={life.place.kubeconfig}"
    forward = subprocess.Popen(
        [tool("kubectl"), kubeconfig, "port-forward", "pod/pod", f":{PROXY_PORT}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert forward.stdout is not None
        first = forward.stdout.readline()
        port = re.search(r"127\.0\.0\.1:(\d+)", first)
        assert port, first
        with closing(HTTPConnection("127.0.0.1", int(port[1]), timeout=60)) as connection:
            connection.request("GET", "/version")
            return connection.getresponse().read().decode()
    finally:
        forward.kill()
        forward.communicate()
