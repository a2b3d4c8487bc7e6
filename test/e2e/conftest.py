"""The cluster of the end-to-end tests, whatever it is made of."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hack.cluster.choose import cluster_from_environment
from hack.cluster.interface import Cluster
from test.kit.clusterwatch import check_clusters, cluster_watched
from test.kit.kube import Kube
from test.kit.tools import tool

NAME_VARIABLE = "E2E_CLUSTER_NAME"
# The first test waits for the cluster too.
_TEST_SECONDS = 900
_HERE = Path(__file__).parent
_TOP = _HERE.parents[1]
_WITHOUT_NODE = frozenset(
    {"test_guest_player.py", "test_templates_in_core.py", "test_workload_cluster.py"}
)
"""Their controllers are processes of the host; `-n 2 --dist loadgroup` runs them beside others."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.e2e)
            group = "processes" if item.path.name in _WITHOUT_NODE else "node"
            item.add_marker(pytest.mark.xdist_group(group))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_TEST_SECONDS))


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster that all tests share. One that is up already is used as it is, and left up."""
    # Workers of one run would end each other's, unless the caller sees to it that one has them all.
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    name = os.environ.get(NAME_VARIABLE) or "-".join(filter(None, ("e2e", worker)))
    found = cluster_from_environment(name, _say)
    ours = not found.is_up()
    found.up()
    try:
        with cluster_watched(request.config, found):
            yield found
    finally:
        _end(found, keep=not ours, failed=bool(request.session.testsfailed))


def _end(cluster: Cluster, *, keep: bool, failed: bool) -> None:
    try:
        if failed:
            cluster.save_logs(_TOP / "out" / "e2e" / cluster.name)
    finally:
        if not keep:
            cluster.down()


@pytest.fixture(autouse=True)
def nothing_untoward(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test in which something was said that should not have been."""
    yield
    check_clusters(request.config)


@pytest.fixture(scope="session")
def kube(cluster: Cluster) -> Iterator[Kube]:
    """A client with all rights in that cluster."""
    with Kube(cluster.kubeconfig) as client:
        yield client


@pytest.fixture(scope="session")
def kubectl(cluster: Cluster) -> Callable[..., str]:
    """Runs kubectl as an administrator of that cluster and returns what it printed."""

    def run(*arguments: str, stdin: str | None = None, timeout: float = 120.0) -> str:
        result = subprocess.run(
            [tool("kubectl"), f"--kubeconfig={cluster.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert result.returncode == 0, f"kubectl {' '.join(arguments)}: {result.stderr}"
        return result.stdout

    return run


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
