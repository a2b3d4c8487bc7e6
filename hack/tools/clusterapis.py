"""Which versions of Cluster API the end-to-end tests can stand on, and where each is pinned."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

VARIABLE: Final = "CAPI"
USUAL: Final = "1.14"
PATH: Final = "sigs.k8s.io/cluster-api"


@dataclass(frozen=True, slots=True)
class ClusterApi:
    """One version of Cluster API.

    Attributes:
        module: Folder under `hack/tools` whose go.mod pins it.
        version: What is pinned, which is the tag of our images of its managers, too.
        core: Folder of the core manager in its Go module, empty for the top.
    """

    module: str
    version: str
    core: str

    @property
    def package(self) -> str:
        """Import path of the core manager."""
        return "/".join(filter(None, (PATH, self.core)))

    @property
    def core_config(self) -> str:
        """Folder of the kustomization of core, below that of the module."""
        return "/".join(filter(None, (self.core, "config/default")))


CLUSTER_APIS: Final = {
    USUAL: ClusterApi("cluster-api", "v1.14.2", "core"),
    # The first with contract v1beta2, thus the oldest that banlieue can be used with.
    "1.11": ClusterApi("cluster-api-1.11", "v1.11.0", ""),
}


def cluster_api(environ: Mapping[str, str] = os.environ) -> ClusterApi:
    """The version that the environment asks for by `CAPI=1.11`, else the usual one.

    Raises:
        SystemExit: It is none of those that are pinned; nothing can be built then.
    """
    wanted = environ.get(VARIABLE) or USUAL
    if wanted not in CLUSTER_APIS:
        known = ", ".join(sorted(CLUSTER_APIS))
        raise SystemExit(f"the environment has {VARIABLE}={wanted}: there are {known}")
    return CLUSTER_APIS[wanted]
