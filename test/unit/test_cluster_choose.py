from pathlib import Path

import pytest

from hack.cluster.choose import VARIABLE, cluster_from_environment, names_of_clusters
from hack.cluster.interface import Cluster, ClusterError
from hack.cluster.kind import KindCluster
from hack.cluster.local import paths
from hack.cluster.local.lifecycle import LocalCluster
from hack.cluster.local.ranges import Range
from hack.cluster.local.record import Phase, Record


def chosen(tmp_path: Path, **environ: str) -> Cluster:
    environ = {"HOME": str(tmp_path), **environ}
    return cluster_from_environment("dev", environ=environ)


def test_the_environment_chooses_what_a_cluster_is_made_of(tmp_path: Path) -> None:
    assert isinstance(chosen(tmp_path), LocalCluster)
    assert isinstance(chosen(tmp_path, **{VARIABLE: "local"}), LocalCluster)
    assert isinstance(chosen(tmp_path, **{VARIABLE: "kind"}), KindCluster)
    with pytest.raises(ClusterError, match="can be local or kind"):
        chosen(tmp_path, **{VARIABLE: "minikube"})


@pytest.mark.parametrize("kind", ["local", "kind"])
@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a/b", "..", "../../a", "x" * 31, "a b"])
def test_an_unfit_name_is_refused_whatever_the_cluster_is_made_of(kind: str, name: str) -> None:
    with pytest.raises(ClusterError, match="no name for a cluster"):
        cluster_from_environment(name, environ={VARIABLE: kind, "HOME": "/h"})


def test_what_is_not_there_is_not_up(tmp_path: Path) -> None:
    cluster = chosen(tmp_path)
    assert not cluster.is_up()
    assert cluster.status() == "dev: not there"
    with pytest.raises(ClusterError, match="up --name dev"):
        _ = cluster.host_address
    with pytest.raises(ClusterError, match="up --name dev"):
        cluster.load(tmp_path / "image.tar")


def test_all_clusters_are_known_by_their_records(tmp_path: Path) -> None:
    environ = {paths.VARIABLE: str(tmp_path)}
    assert names_of_clusters({paths.VARIABLE: str(tmp_path / "missing")}) == []
    for name in ("two", "one"):
        (tmp_path / name).mkdir()
        Record(name, Range.parse("10.90.0.0/16"), Phase.DOWN).write(tmp_path / name)
    (tmp_path / "kind-e2e").mkdir()
    (tmp_path / ".one.lock").touch()
    assert names_of_clusters(environ) == ["one", "two"]
    one = cluster_from_environment("one", environ=environ)
    assert one.status() == "one: down, kept: images"
