"""The twin over kind, against a stand-in for kind and its engine that keeps state in files."""

import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hack.cluster import choose
from hack.cluster.interface import ClusterError, Leave
from hack.cluster.kind import KindCluster

pytestmark = pytest.mark.slow

KIND = """\
#!{python}
import pathlib, sys
home = pathlib.Path({home!r})
words = sys.argv[1:]
name = words[words.index("--name") + 1] if "--name" in words else ""
clusters = home / "clusters"
clusters.mkdir(exist_ok=True)
with (home / "calls").open("a") as calls:
    calls.write("kind " + " ".join(words) + "\\n")
if words[:2] == ["get", "clusters"]:
    print("\\n".join(path.name for path in clusters.iterdir()))
elif words[:2] == ["create", "cluster"]:
    (clusters / name).write_text("true")
    if (home / "broken").exists():
        sys.exit("ERROR: failed to create cluster: no more space")
    pathlib.Path(words[words.index("--kubeconfig") + 1]).write_text("kind: Config")
elif words[:2] == ["export", "kubeconfig"]:
    pathlib.Path(words[words.index("--kubeconfig") + 1]).write_text("kind: Config")
elif words[:2] == ["delete", "cluster"]:
    (clusters / name).unlink()
elif words[:2] == ["load", "image-archive"]:
    if not pathlib.Path(words[2]).exists():
        sys.exit("ERROR: no such file: " + words[2])
"""
DOCKER = """\
#!{python}
import json, pathlib, sys
home = pathlib.Path({home!r})
words = sys.argv[1:]
with (home / "calls").open("a") as calls:
    calls.write("docker " + " ".join(words) + "\\n")
node = home / "clusters" / words[-1].removesuffix("-control-plane")
if words[:2] == ["network", "inspect"]:
    config = [{{"Subnet": "fc00::/64", "Gateway": "fc00::1"}}, {{"Gateway": "172.18.0.1"}}]
    print(json.dumps([{{"Name": "kind", "IPAM": {{"Config": config}}}}]))
elif words[0] == "inspect":
    print(node.read_text())
elif words[0] in ("start", "stop"):
    node.write_text("true" if words[0] == "start" else "false")
"""


class Engine:
    """The stand-in: what it was asked, and which clusters there are."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = {"PATH": str(home / "bin"), "HOME": str(home)}
        self.install("kind", KIND)
        self.install("docker", DOCKER)
        (home / "clusters").mkdir()

    def install(self, name: str, script: str) -> None:
        path = self.home / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(script.format(python=sys.executable, home=str(self.home)))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def cluster(self, name: str = "e2e") -> KindCluster:
        return KindCluster.named(name, environ=self.environ)

    def clusters(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in (self.home / "clusters").iterdir()}

    def calls(self, beginning: str) -> list[str]:
        lines = (self.home / "calls").read_text().splitlines()
        return [line for line in lines if line.startswith(beginning)]


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


def test_up_makes_a_cluster_with_a_kubeconfig_of_its_own_and_down_leaves_nothing(
    engine: Engine,
) -> None:
    cluster = engine.cluster()
    cluster.up()
    assert engine.clusters() == {"banlieue-e2e": "true"}
    assert cluster.kubeconfig.exists()
    assert cluster.host_address == "172.18.0.1"
    cluster.up()
    assert len(engine.calls("kind create")) == 1
    kinds = {**engine.environ, choose.VARIABLE: "kind"}
    assert choose.names_of_clusters(kinds) == ["e2e"]
    assert choose.names_of_clusters(engine.environ) == []

    cluster.down()
    assert engine.clusters() == {}
    assert choose.names_of_clusters(kinds) == []
    assert not cluster.directory.exists()
    cluster.down()


def test_a_kept_cluster_is_started_again(engine: Engine) -> None:
    cluster = engine.cluster()
    cluster.up()
    assert cluster.is_up()
    cluster.down(Leave.EVERYTHING)
    assert engine.clusters() == {"banlieue-e2e": "false"}
    assert not cluster.is_up()
    assert "kept: everything" in cluster.status()

    cluster.up()
    assert engine.clusters() == {"banlieue-e2e": "true"}
    assert len(engine.calls("kind create")) == 1


def test_a_cluster_that_could_not_be_made_is_removed(engine: Engine) -> None:
    (engine.home / "broken").touch()
    with pytest.raises(ClusterError, match=r"create cluster .* failed: ERROR: .*no more space"):
        engine.cluster().up()
    assert engine.clusters() == {}


def test_logs_of_a_cluster_that_is_not_there_are_no_success(engine: Engine) -> None:
    with pytest.raises(ClusterError, match="no kind cluster banlieue-e2e"):
        engine.cluster().save_logs(engine.home / "logs")


@pytest.mark.parametrize("said", ["no JSON", '["x"]', '[{"IPAM": {"Config": [{"Gateway": "x"}]}}]'])
def test_an_engine_that_cannot_be_understood_is_told(engine: Engine, said: str) -> None:
    (engine.home / "bin" / "docker").write_text(f"#!/bin/sh\necho '{said}'\n")
    with pytest.raises(ClusterError, match="cannot understand"):
        _ = engine.cluster().host_address


def test_a_cluster_whose_start_was_killed_is_ours(engine: Engine) -> None:
    engine.install("kind-killed", KIND)
    # Killed as soon as the cluster is there, so nobody cleans up.
    killing = f'{engine.home}/bin/kind-killed "$@"\nif [ $1 = create ]; then kill -9 $PPID; fi\n'
    (engine.home / "bin" / "kind").write_text(f"#!/bin/sh\n{killing}")
    script = (
        "from hack.cluster.kind import KindCluster; "
        f"KindCluster.named('e2e', environ={engine.environ!r}).up()"
    )
    killed = subprocess.run([sys.executable, "-c", script], check=False)
    assert killed.returncode == -signal.SIGKILL
    engine.install("kind", KIND)
    assert engine.clusters() == {"banlieue-e2e": "true"}
    engine.cluster().down()
    assert engine.clusters() == {}


def test_a_cluster_of_somebody_else_is_never_touched(engine: Engine) -> None:
    (engine.home / "clusters" / "banlieue-e2e").write_text("true")
    for action in (engine.cluster().up, engine.cluster().down):
        with pytest.raises(ClusterError, match="not made here"):
            action()
    assert engine.clusters() == {"banlieue-e2e": "true"}


def test_images_are_loaded_into_this_cluster(engine: Engine, tmp_path: Path) -> None:
    cluster = engine.cluster()
    cluster.up()
    archive = tmp_path / "image.tar"
    archive.touch()
    cluster.load(archive)
    (loaded,) = engine.calls("kind load")
    assert loaded == f"kind load image-archive {archive} --name banlieue-e2e"
    with pytest.raises(ClusterError, match="no such file"):
        cluster.load(tmp_path / "nothing.tar")


def test_what_is_missing_on_the_host_is_named(engine: Engine) -> None:
    (engine.home / "bin" / "docker").unlink()
    with pytest.raises(ClusterError, match="needs Docker or Podman"):
        _ = engine.cluster().host_address
    (engine.home / "bin" / "kind").unlink()
    with pytest.raises(ClusterError, match="kind is not on the PATH"):
        engine.cluster().up()
