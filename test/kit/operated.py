"""banlieue with its operator at work on an API server that has no node.

What a Deployment would run is started by tests, by the account that was made for it.
"""

from typing import Any, Final

from banlieue.sdk.simulated.world import USERNAME
from test.kit.kube import Kube
from test.kit.simulated import PLANTED_PASSWORD
from test.kit.stack import Object, Role, Stack, credentials, provider

OWNED: Final = ("deployments", "serviceaccounts", "roles", "rolebindings")
BINDING: Final = "clusterrolebindings"
PROVIDERS: Final = "providers.banlieue.io"


class Operated:
    """banlieue installed, with the operator at work."""

    def __init__(self, stack: Stack, operator: Role) -> None:
        self.stack = stack
        self.operator = operator
        self.kube: Kube = stack.kube

    def register(
        self,
        name: str,
        namespace: str,
        *,
        endpoint: str,
        of: str = "simulated",
        **connection: object,
    ) -> None:
        """A Provider and its Secret, and nothing else."""
        self.kube.apply(credentials(namespace, f"{name}-creds", USERNAME, PLANTED_PASSWORD))
        made = provider(
            namespace,
            name,
            backend=of,
            connection={"endpoint": endpoint, **connection},
            storage={"pool": "fast"},
            network={"network": "lan"},
        )
        self.kube.apply(made)

    def workload(self, name: str, namespace: str, /, **wanted: object) -> dict[str, Any]:
        """Wait until `status.workload` has these values, and give it."""
        found = self.kube.wait_for(
            PROVIDERS,
            name,
            namespace,
            until=lambda obj: wanted.items() <= workload_of(obj).items() and workload_of(obj),
            what=f"with a workload {wanted}",
        )
        return workload_of(found)

    def five(self, workload: str, namespace: str, where: str = "") -> dict[str, Object]:
        """The objects of that name, by kind; they have to be there."""
        places = dict.fromkeys(OWNED, namespace)
        places |= dict.fromkeys(("deployments", "serviceaccounts"), where or namespace)
        found = {kind: self.kube.get(kind, workload, place) for kind, place in places.items()}
        return {**found, BINDING: self.kube.get(BINDING, workload)}

    def left(self, workload: str) -> list[str]:
        """Kinds of all objects of that name that are there, in whatever namespace."""
        return [
            f"{kind} {obj['metadata'].get('namespace', '')}"
            for kind in (*OWNED, BINDING)
            for obj in self.kube.list(kind)
            if obj["metadata"]["name"] == workload
        ]

    def gone(self, name: str, namespace: str, workload: str) -> None:
        """Wait until a Provider is gone; nothing of its workload may be there then."""
        self.kube.wait_gone(PROVIDERS, name, namespace)
        assert self.left(workload) == []


def workload_of(obj: Object) -> dict[str, Any]:
    """What the operator says of a Provider's workload."""
    found = (obj.get("status") or {}).get("workload") or {}
    return dict(found)
