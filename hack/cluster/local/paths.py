"""Where the files of a local cluster are, on the host and as its node sees them.

The node mounts a file system of its own over `/run`, `/var` and `/tmp`, and there finds the state
directory and the tools below one short root, wherever they are on the host.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from hack.cluster.interface import require_name
from hack.user_cache import user_cache

VARIABLE: Final = "E2E_CLUSTER_STATE"

INSIDE: Final = PurePosixPath("/run/banlieue")
INSIDE_STATE: Final = INSIDE / "state"
INSIDE_TOOLS: Final = INSIDE / "tools"
CONTAINERD_SOCKET: Final = PurePosixPath("/run/containerd/containerd.sock")

# Whatever the host holds of a cluster begins with one of these.
_LINK_MARK: Final = "blc-"
_CGROUP_MARK: Final = "banlieue-"
_DIGEST_LENGTH: Final = 8


def clusters_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of all clusters' state: in the user's cache directory, unless told otherwise."""
    named = environ.get(VARIABLE)
    if named:
        return Path(named).absolute()
    return user_cache(environ) / "clusters"


@dataclass(frozen=True, slots=True)
class Place:
    """The files of one cluster on the host.

    Attributes:
        clusters: The folder of all clusters.
        name: The cluster's name.
    """

    clusters: Path
    name: str

    @classmethod
    def of(cls, name: str, environ: Mapping[str, str] = os.environ) -> "Place":
        """The place of a cluster of that name; raises ClusterError when the name is unfit."""
        require_name(name)
        return cls(clusters_directory(environ).resolve(), name)

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.clusters / self.name

    @property
    def lock(self) -> Path:
        """Held by whoever changes the cluster. Outside of the state, which comes and goes."""
        return self.clusters / f".{self.name}.lock"

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of an administrator."""
        return self.state / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Certificates, keys, and the kubeconfigs of the daemons."""
        return self.state / "pki"

    @property
    def configuration(self) -> Path:
        """What the daemons are configured with."""
        return self.state / "configuration"

    @property
    def logs(self) -> Path:
        """What the daemons say, one file each."""
        return self.state / "logs"

    @property
    def pod_logs(self) -> Path:
        """What the pods say, as the kubelet keeps it."""
        return self.state / "var" / "log" / "pods"

    @property
    def link(self) -> str:
        """Name of the host's end of the link to the node; at most 15 characters."""
        return f"{_LINK_MARK}{self._digest}"

    @property
    def cgroup(self) -> str:
        """Name of the control group of its pods, in every hierarchy."""
        return f"{_CGROUP_MARK}{self.name}-{self._digest}"

    @property
    def _digest(self) -> str:
        # Two users, or two folders of clusters, may use one name.
        return hashlib.sha256(os.fsencode(self.state)).hexdigest()[:_DIGEST_LENGTH]


def inside(*parts: str) -> str:
    """Path of something in the state directory, as the node sees it."""
    return str(INSIDE_STATE.joinpath(*parts))
