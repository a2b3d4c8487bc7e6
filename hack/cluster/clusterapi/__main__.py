"""Cluster API in a cluster that is up: `python -m hack.cluster.clusterapi init [--name NAME]`."""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from hack.cluster.choose import cluster_from_environment
from hack.cluster.clusterapi.clusterctl import ClusterctlError
from hack.cluster.clusterapi.install import install, kept_repository
from hack.cluster.clusterapi.kubectl import KubectlError
from hack.cluster.clusterapi.repository import CONFIGURATION, RepositoryError
from hack.cluster.clusterapi.webhooks import WebhookError, await_webhooks
from hack.cluster.interface import ClusterError
from hack.components import ReleaseError
from hack.images.store import ImageError
from hack.tools.catalog import ToolError, find_tool

_FAILURES: Final = (
    ClusterError,
    ClusterctlError,
    ImageError,
    KubectlError,
    OSError,
    ReleaseError,
    RepositoryError,
    ToolError,
    WebhookError,
)
_PROBE_SECONDS: Final = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        if chosen.command == "repository":
            print(kept_repository())
        else:
            _in_cluster(chosen.command, chosen.name)
    except _FAILURES as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; running it again goes on from here", file=sys.stderr)
        return 130
    return 0


def _in_cluster(command: str, name: str) -> None:
    cluster = cluster_from_environment(name, _say)
    # A cluster that is not up has no such address, and says so.
    _say(f"cluster {name}, in which this host is {cluster.host_address}")
    if command == "probe":
        seconds = await_webhooks(cluster.kubeconfig, _PROBE_SECONDS)
        print(f"every webhook answers, after {seconds:.1f} s")
        return
    clusterctl = install(cluster, _say)
    print(f"""
to use clusterctl and kubectl yourself:
  export KUBECONFIG={cluster.kubeconfig}
  export REPO={clusterctl.repository} CLUSTERCTL_DISABLE_VERSIONCHECK=true
  {find_tool("clusterctl")} --config {CONFIGURATION} upgrade plan""")


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack.cluster.clusterapi",
        description="Cluster API and banlieue in a local management cluster, by clusterctl.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    init = commands.add_parser("init", help="load the images, install everything, wait for it")
    probe = commands.add_parser("probe", help="wait until the webhooks of Cluster API answer")
    for command in (init, probe):
        command.add_argument(
            "--name", default="banlieue", help="of the cluster (default: %(default)s)"
        )
    commands.add_parser("repository", help="render the clusterctl repository, print its folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
