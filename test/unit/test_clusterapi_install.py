import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import banlieue
from hack.cluster.clusterapi import __main__ as command
from hack.cluster.clusterapi import install as module
from hack.cluster.clusterapi.clusterctl import Clusterctl
from hack.cluster.clusterapi.install import (
    OUR_IMAGE,
    image_id,
    install,
    release,
    restart_stale,
)
from hack.cluster.clusterapi.repository import Upstream
from hack.cluster.interface import ClusterError, Leave
from hack.images.store import ImageError

ARCHIVES = Path("/archives")


class FakeCluster:
    """Notes what is loaded; up, unless a test says otherwise."""

    name = "fake"
    kubeconfig = Path("/kubeconfig")

    def __init__(self, done: list[str]) -> None:
        self._up = True
        self._done = done

    @property
    def host_address(self) -> str:
        if not self._up:
            raise ClusterError("cluster fake is not up")
        return "10.0.0.1"

    def is_up(self) -> bool:
        return self._up

    def status(self) -> str:
        return "fine"

    def up(self) -> None:
        self._up = True

    def down(self, leave: Leave = Leave.IMAGES) -> None:
        self._done.append(f"down {leave.value}")
        self._up = False

    def load(self, *archives: Path) -> None:
        self._done += [f"load {archive.name}" for archive in archives]

    def save_logs(self, directory: Path) -> None:
        self._done.append(f"logs {directory}")


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What was done, in order; nothing of it for real."""
    done: list[str] = []
    upstream = Upstream(tmp_path, "v1.14.2", tmp_path, "v1.21.1", lambda _: "")

    def repository(*_: object) -> Path:
        done.append("repository")
        return tmp_path

    def archive_of(name: str, *, say: Callable[[str], None]) -> Path:
        say(name)
        return ARCHIVES / name.removeprefix("localhost/")

    def init(clusterctl: Clusterctl) -> None:
        done.append(f"init {clusterctl.kubeconfig}")

    def await_webhooks(kubeconfig: Path, timeout: float) -> float:
        assert timeout > 0
        done.append(f"webhooks {kubeconfig}")
        return 0.5

    monkeypatch.setattr(Upstream, "pinned", lambda: upstream)
    monkeypatch.setattr(module, "cached_repository", repository)
    monkeypatch.setattr(module, "archive_of", archive_of)
    monkeypatch.setattr(Clusterctl, "init", init)
    monkeypatch.setattr(module, "await_webhooks", await_webhooks)
    monkeypatch.setattr(module, "image_id", lambda archive: f"id of {archive.name}")
    monkeypatch.setattr(module, "restart_stale", lambda _, wanted, __: done.append(f"run {wanted}"))
    monkeypatch.setattr(command, "await_webhooks", await_webhooks)
    return done


@pytest.fixture
def cluster(done: list[str], monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    fake = FakeCluster(done)
    monkeypatch.setattr(command, "cluster_from_environment", lambda *_: fake)
    monkeypatch.setattr(command, "find_tool", lambda name: Path("/tools") / name)
    return fake


def test_images_are_there_before_pods_ask_for_them(cluster: FakeCluster, done: list[str]) -> None:
    said: list[str] = []
    clusterctl = install(cluster, said.append)
    assert clusterctl.kubeconfig == cluster.kubeconfig
    assert done == [
        "repository",
        "load cert-manager:v1.21.1",
        "load cluster-api-core:v1.14.2",
        "load cluster-api-bootstrap-kubeadm:v1.14.2",
        "load cluster-api-control-plane-kubeadm:v1.14.2",
        f"load {OUR_IMAGE.removeprefix('localhost/')}",
        "init /kubeconfig",
        f"run id of {OUR_IMAGE.removeprefix('localhost/')}",
        "webhooks /kubeconfig",
    ]
    assert any(line.startswith("clusterctl init: done in") for line in said)


def test_the_command_says_how_to_go_on(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["init", "--name", "fake"]) == 0
    told = capsys.readouterr().out
    assert f"KUBECONFIG={cluster.kubeconfig}\n" in told
    assert "/tools/clusterctl --config " in told


def test_the_command_waits_for_webhooks(
    cluster: FakeCluster, done: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["probe"]) == 0
    assert done == [f"webhooks {cluster.kubeconfig}"]
    assert "after 0.5 s" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["init", "probe"])
def test_a_cluster_that_is_not_up_is_an_error(
    cluster: FakeCluster, done: list[str], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    cluster.down()
    done.clear()
    assert command.main([name]) == 1
    assert "error: cluster fake is not up" in capsys.readouterr().err
    assert done == []


def test_our_release_is_that_of_this_tree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written: list[Any] = []
    monkeypatch.setattr(module, "write_components", lambda *given: written.append(given))
    monkeypatch.setattr(banlieue, "__version__", "0.3.0rc1")
    assert release()(tmp_path) == "v0.3.0-rc.1"
    assert release("v0.3.1")(tmp_path) == "v0.3.1"
    assert written == [(tmp_path, "v0.3.0-rc.1", OUR_IMAGE), (tmp_path, "v0.3.1", OUR_IMAGE)]


class Pods:
    """A cluster whose pods run an image; notes restarts."""

    def __init__(self, *running: str) -> None:
        self.running = running
        self.done: list[str] = []

    def __call__(self, _: Path, *arguments: str) -> str:
        if arguments[0] == "get":
            return " ".join(self.running)
        self.done.append(" ".join(arguments[:2]))
        return ""


def test_pods_with_an_older_image_of_the_same_name_start_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pods = Pods("sha256:new", "sha256:old")
    monkeypatch.setattr(module, "kubectl", pods)
    restart_stale(Path("/kubeconfig"), "sha256:new")
    assert pods.done == ["rollout restart", "rollout status"]


@pytest.mark.parametrize("running", [(), ("sha256:new", "localhost/banlieue@sha256:new")])
def test_pods_with_the_image_of_the_tree_are_left_in_peace(
    monkeypatch: pytest.MonkeyPatch, running: tuple[str, ...]
) -> None:
    pods = Pods(*running)
    monkeypatch.setattr(module, "kubectl", pods)
    restart_stale(Path("/kubeconfig"), "sha256:new")
    assert pods.done == []


@pytest.mark.parametrize("config", ["abc.json", "blobs/sha256/abc"])
def test_an_image_is_known_by_its_configuration(tmp_path: Path, config: str) -> None:
    archive = tmp_path / "image.tar"
    write_tar(archive, json.dumps([{"Config": config}]))
    assert image_id(archive) == "sha256:abc"


@pytest.mark.parametrize("manifest", ["[]", "no json", None])
def test_another_archive_is_refused(tmp_path: Path, manifest: str | None) -> None:
    archive = tmp_path / "image.tar"
    write_tar(archive, manifest)
    with pytest.raises(ImageError, match="no docker-archive of one image"):
        image_id(archive)


def write_tar(path: Path, manifest: str | None) -> None:
    with tarfile.open(path, "w") as tar:
        if manifest is not None:
            member = tarfile.TarInfo("manifest.json")
            member.size = len(manifest)
            tar.addfile(member, io.BytesIO(manifest.encode()))
