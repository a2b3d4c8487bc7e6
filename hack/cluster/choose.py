"""Chooses what a cluster is made of: `E2E_CLUSTER=local` (default) or `kind`."""

import os
from collections.abc import Callable, Mapping
from typing import Final

from hack.cluster.interface import Cluster, ClusterError, is_name
from hack.cluster.kind import KindCluster
from hack.cluster.local.paths import clusters_directory
from hack.cluster.local.record import FILE

VARIABLE: Final = "E2E_CLUSTER"


def names_of_clusters(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Names of all clusters of the kind the environment asks for of which anything is kept."""
    if environ.get(VARIABLE) == "kind":
        return KindCluster.names(environ)
    folder = clusters_directory(environ)
    if not folder.is_dir():
        return []
    return sorted(
        entry.name
        for entry in folder.iterdir()
        if is_name(entry.name) and os.path.lexists(entry / FILE)
    )


def cluster_from_environment(
    name: str,
    say: Callable[[str], None] = lambda _: None,
    environ: Mapping[str, str] = os.environ,
) -> Cluster:
    """The cluster of that name, up or not, of the kind that the environment asks for.

    Args:
        name: Lower-case letters, digits and dashes.
        say: Is told every step.
        environ: Environment variables.

    Raises:
        ClusterError: The name is unfit, or the environment asks for an unknown kind.
    """
    kind = environ.get(VARIABLE) or "local"
    if kind == "local":
        # Imported late: whoever uses kind needs none of the libraries of the other.
        from hack.cluster.local.lifecycle import LocalCluster

        return LocalCluster.named(name, say, environ)
    if kind == "kind":
        return KindCluster.named(name, say, environ)
    raise ClusterError(f"{VARIABLE} is {kind!r}; it can be local or kind")
