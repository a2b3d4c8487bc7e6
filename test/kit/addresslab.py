"""The controller role, a Provider whose network has a pool, and VMs with addresses out of it."""

from banlieue.api import names
from banlieue.api.resources import IP_ADDRESS_CLAIMS, PROVIDERS
from banlieue.sdk.kube import Key, Obj
from test.kit.addresspool import AddressPool
from test.kit.controllerworld import NAMESPACE, SYSTEM, THIS, ControllerWorld

POOLED = [{"name": "eth0", "ipam": [{"family": "IPv4", "source": "pool"}]}]


class Lab:
    """A world with a Provider whose network has a pool."""

    def __init__(self, **pool: object) -> None:
        self.world = ControllerWorld()
        self.pool = AddressPool(self.world.api, **pool)  # type: ignore[arg-type]  # its own fields
        self.world.others.append(self.pool.step)
        self.world.add_class()
        self.world.add_image()
        self.add_provider("one", self.pool)

    def add_provider(self, name: str, pool: AddressPool) -> None:
        classes = [{"name": "prod", "target": {}, "subnets": [pool.subnet()]}]
        self.world.add_provider(name, capabilities={"networkClasses": classes})

    def declare(self, *subnets: object) -> None:
        """Edit what Provider `one` says of its network."""
        classes = [{"name": "prod", "subnets": list(subnets)}]
        self.world.api.edit(
            PROVIDERS,
            Key(SYSTEM, "one"),
            lambda obj: obj["spec"].update(capabilities={"networkClasses": classes}),
        )

    async def vm(self, name: str = "db-1", **spec: object) -> None:
        self.world.add_vm(name, labels=None, networkInterfaces=POOLED, **spec)
        await self.world.settle(seconds=600)

    def put_cluster_machine(self) -> Obj:
        """A stamped machine of Cluster API, whose provider is away."""
        self.world.providers[0].down = True
        machine = {
            "apiVersion": THIS.api_version,
            "kind": THIS.kind,
            "metadata": {
                "namespace": NAMESPACE,
                "name": "cp-0",
                "labels": {names.CAPI_LABEL_CLUSTER_NAME: "prod"},
            },
            "spec": {
                "providerRef": {"name": "one", "namespace": SYSTEM},
                "placement": {"failureDomain": "one-a"},
                "networkInterfaces": [{**POOLED[0], "networkClass": "prod"}],
            },
        }
        return self.world.api.put(THIS, machine)

    @property
    def claims(self) -> list[Obj]:
        return self.world.api.peek_all(IP_ADDRESS_CLAIMS)

    def address_of(self, name: str = "db-1") -> str | None:
        machine = self.world.machine(name) or {}
        wishes = [it for nic in machine["spec"]["networkInterfaces"] for it in nic["ipam"]]
        found: str | None = wishes[0].get("address")
        return found

    def guests(self) -> list[str]:
        """The addresses VMs answer to."""
        return sorted(it for vm in self.world.vms() for it in vm.addresses.values())
