"""An IPAM provider for tests of claims: a pool that gives its lowest free address, and takes an
address back as soon as its claim is being deleted, whatever else holds that claim.
"""

from dataclasses import dataclass, field
from typing import Any

from banlieue.api.resources import IP_ADDRESS_CLAIMS, IP_ADDRESSES
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.testing.memory_api import MemoryApi
from test.kit.fakeprovider import conditions

GROUP = "ipam.example.com"
KIND = "LabPool"


@dataclass(slots=True)
class AddressPool:
    """One pool, by the name that claims call it."""

    api: MemoryApi
    name: str = "lab"
    free: list[str] = field(default_factory=lambda: ["10.0.0.10", "10.0.0.11"])
    prefix: int = 24
    gateway: str = "10.0.0.1"
    given: dict[Key, str] = field(default_factory=dict)
    uids: dict[Key, str] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)

    @property
    def reference(self) -> dict[str, str]:
        """How a Provider's network class names the pool."""
        return {"apiGroup": GROUP, "kind": KIND, "name": self.name}

    def subnet(self, cidr: str = "10.0.0.0/24") -> dict[str, Any]:
        """A subnet whose addresses come from here."""
        return {"cidr": cidr, "gateway": self.gateway, "pool": self.reference}

    def step(self) -> bool:
        """Give and take back what is due; whether anything was."""
        mine = {
            Key.of(obj): obj
            for obj in self.api.peek_all(IP_ADDRESS_CLAIMS)
            if obj["spec"]["poolRef"] == self.reference
        }
        leaving = {key for key, it in mine.items() if it["metadata"].get("deletionTimestamp")}
        over = [
            key
            for key in self.given
            if key in leaving or key not in mine or mine[key]["metadata"]["uid"] != self.uids[key]
        ]
        for key in over:
            self._take_back(key)
        waiting = [
            key
            for key, obj in sorted(mine.items())
            if key not in leaving and key not in self.given and not self._answered(obj)
        ]
        for key in waiting:
            self._answer(key)
        return bool(over or waiting)

    def _answered(self, obj: Obj) -> bool:
        return bool((obj.get("status") or {}).get("conditions")) and not self.free

    def _take_back(self, key: Key) -> None:
        address = self.given.pop(key)
        self.free = sorted([*self.free, address])
        self.api.drop(IP_ADDRESSES, key)

    def _answer(self, key: Key) -> None:
        if not self.free:
            told = conditions(Ready=("False", "PoolExhausted", "no address left"))
            self.api.edit(IP_ADDRESS_CLAIMS, key, lambda obj: obj.update(status=told))
            return
        address = self.given[key] = self.free.pop(0)
        claim = self.api.peek(IP_ADDRESS_CLAIMS, key) or {}
        self.uids[key] = claim["metadata"]["uid"]
        self.history.append(address)
        self.api.put(
            IP_ADDRESSES,
            {
                "metadata": {"namespace": key.namespace, "name": key.name},
                "spec": {
                    "claimRef": {"name": key.name},
                    "poolRef": self.reference,
                    "address": address,
                    "prefix": self.prefix,
                    "gateway": self.gateway,
                },
            },
        )
        told = {**conditions(Ready=("True", "Ready")), "addressRef": {"name": key.name}}
        self.api.edit(IP_ADDRESS_CLAIMS, key, lambda obj: obj.update(status=told))
