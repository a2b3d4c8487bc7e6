"""The part of an IPAM provider, played against a real API server: a pool of few addresses."""

from dataclasses import dataclass, field
from typing import Final

from test.kit.kube import Kube, Object

GROUP: Final = "ipam.cluster.x-k8s.io"
CLAIMS: Final = f"ipaddressclaims.{GROUP}"
ADDRESSES: Final = f"ipaddresses.{GROUP}"
REFERENCE: Final = {"apiGroup": "ipam.example.com", "kind": "LabPool", "name": "lab"}
SUBNET: Final = {"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "pool": REFERENCE}


@dataclass(slots=True)
class PlayedPool:
    """Gives its first free address, and takes one back when its claim goes.

    Attributes:
        kube: a client with all rights.
        namespace: where claims are answered.
        free: what it can still give.
        given: what it gave, by the uid of the claim.
    """

    kube: Kube
    namespace: str
    free: list[str]
    given: dict[str, str] = field(default_factory=dict)

    def step(self) -> None:
        """Do what is due now."""
        claims = {it["metadata"]["uid"]: it for it in self.kube.list(CLAIMS, self.namespace)}
        living = {uid for uid, it in claims.items() if "deletionTimestamp" not in it["metadata"]}
        for uid in [uid for uid in self.given if uid not in living]:
            self.free.append(self.given.pop(uid))
        for uid in living - set(self.given):
            self._answer(uid, claims[uid])

    def _answer(self, uid: str, claim: Object) -> None:
        name = claim["metadata"]["name"]
        if not self.free:
            full = {"reason": "PoolExhausted", "message": "no address left"}
            self._tell(name, {"conditions": [_condition("False", **full)]})
            return
        self.given[uid] = self.free.pop(0)
        self.kube.delete(ADDRESSES, name, self.namespace, missing_ok=True)
        self.kube.create(
            {
                "apiVersion": f"{GROUP}/v1beta2",
                "kind": "IPAddress",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {
                    "claimRef": {"name": name},
                    "poolRef": REFERENCE,
                    "address": self.given[uid],
                    "prefix": 24,
                    "gateway": "10.0.0.1",
                },
            }
        )
        self._tell(name, {"addressRef": {"name": name}, "conditions": [_condition("True")]})

    def _tell(self, name: str, status: Object) -> None:
        self.kube.patch(CLAIMS, name, {"status": status}, self.namespace, subresource="status")


def _condition(status: str, reason: str = "Ready", message: str = "") -> Object:
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
