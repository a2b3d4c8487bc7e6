"""A management cluster with Cluster API and banlieue, as `clusterctl init` makes it.

Tests load it by `pytest_plugins = ["test.kit.fixtures_clusterctl"]`.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from hack.cluster.choose import cluster_from_environment
from hack.cluster.clusterapi.clusterctl import Clusterctl
from hack.cluster.clusterapi.install import install
from hack.cluster.clusterapi.repository import PROVIDER
from test.kit.clusterwatch import cluster_watched
from test.kit.kube import Kube
from test.kit.managementcluster import INVENTORY, NAMESPACE, VERSION, Management
from test.kit.namespaces import create_namespace, discard_namespace

# Each worker of pytest-xdist has a session of its own.
NAME: Final = f"e2e-clusterctl{os.environ.get('PYTEST_XDIST_WORKER', '')}"
_LOGS: Final = Path("out") / "e2e" / NAME


@pytest.fixture(scope="session")
def management(request: pytest.FixtureRequest) -> Iterator[Management]:
    """A cluster of its own, so that no other test notices when the provider is deleted."""
    cluster = cluster_from_environment(NAME, _say)
    # One that a killed run left behind may be in any state.
    cluster.down()
    cluster.up()
    failed = request.session.testsfailed
    try:
        with cluster_watched(request.config, cluster):
            yield Management(cluster, install(cluster, _say))
    except BaseException:
        cluster.save_logs(request.config.rootpath / _LOGS)
        raise
    finally:
        try:
            if request.session.testsfailed > failed:
                cluster.save_logs(request.config.rootpath / _LOGS)
        finally:
            cluster.down()


@pytest.fixture
def client(management: Management) -> Iterator[Kube]:
    """An administrator of that cluster."""
    with Kube(management.cluster.kubeconfig) as kube:
        yield kube


@pytest.fixture
def clusterctl(management: Management, client: Kube) -> Clusterctl:
    """clusterctl, with banlieue installed in the version of this tree."""
    found = client.find(INVENTORY, PROVIDER, NAMESPACE)
    if found and found["version"] != VERSION:
        management.clusterctl.run("delete", "--infrastructure=banlieue")
        found = None
    if not found:
        management.clusterctl.init()
    return management.clusterctl


@pytest.fixture
def tenant(client: Kube) -> Iterator[str]:
    """A namespace for one test."""
    name = create_namespace(client)
    yield name
    discard_namespace(client, name)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
