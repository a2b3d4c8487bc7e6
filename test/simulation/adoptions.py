"""VMs that exist already and are taken over: looked at first, accepted later, lost in between."""

from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.sdk.kube import Key
from banlieue.sdk.simulated.records import Vm
from test.simulation.actions import SYSTEM, Actor
from test.simulation.backend import SimWorld
from test.simulation.kinds import BY_NAME
from test.simulation.platform import virtual_machine

ADOPTERS = ("old-1", "old-2")
"""Names of VirtualMachines that adopt."""


class Adoptions(Actor):
    """What users who adopt do, and what befalls them."""

    def adopt(self) -> None:
        """A user names a VM that is there, and has it taken over at once or looks first."""
        free = [name for name in ADOPTERS if self.cluster.virtual_machine(name) is None]
        if free:
            world = self.world()
            vm = self._orphan(world) or self._stranger(world)
            self._create(self.rng.choice(free), world, vm)

    def accept(self) -> None:
        """A user who looked accepts."""
        for obj in self.cluster.virtual_machines():
            adopt = obj["spec"].get("adopt")
            if adopt and not adopt.get("accepted"):
                self.edit(obj["metadata"]["name"], adopt={**adopt, "accepted": True})
                return

    def rival(self) -> None:
        """Somebody wants a VM that another one wants, or has taken over already."""
        free = [name for name in ADOPTERS if self.cluster.virtual_machine(name) is None]
        for obj in self.cluster.virtual_machines():
            adopt = obj["spec"].get("adopt")
            found = self.find(adopt["id"]) if adopt else None
            if found is not None and free:
                self._create(free[0], *found)
                return

    def lose_object(self) -> None:
        """The machine object of an adopted VM is deleted, or vanishes."""
        adopters = [it for it in self.cluster.machines() if it["spec"].get("adopt")]
        if not adopters:
            return
        obj = self.rng.choice(adopters)
        key, vanishes = Key.of(obj), self.rng.random() < 0.5
        self.cluster.log(f"adopting machine {key} {'vanishes' if vanishes else 'is deleted'}")
        if not vanishes:
            self.cluster.api.drop(BY_NAME[obj["kind"]], key)
            return
        self.oracle.torn.add(obj["spec"]["virtualMachineRef"]["name"])
        with self.oracle.restore():
            self.cluster.api.drop(BY_NAME[obj["kind"]], key, force=True)

    def vanish(self) -> None:
        """An admin removes a VM before it is taken over."""
        for obj in self.cluster.virtual_machines():
            adopt = obj["spec"].get("adopt")
            found = self.find(adopt["id"]) if adopt else None
            if found is not None and (found[0].name, found[1].id) in self.oracle.strangers.vms:
                world, vm = found
                self.oracle.note_removed(world, vm.id)
                world.act("remove", vm=vm.id)
                return

    def copy_adopted(self) -> None:
        """A backup tool restores a second one of an adopted VM, UUID, mark and all."""
        for obj in self.cluster.virtual_machines():
            adopt = obj["spec"].get("adopt")
            found = self.find(adopt["id"]) if adopt else None
            if found is None:
                continue
            world, vm = found
            name = f"copy-{self.rng.randrange(1000)}-{vm.name}"
            keep, power = self.rng.random() < 0.5, self.rng.choice(("PoweredOn", "PoweredOff"))
            made = world.act("copy", vm=vm.id, name=name, keep_uuid=keep, power=power)
            self.oracle.strangers.note(world, made["id"])
            return

    def _orphan(self, world: SimWorld) -> Vm | None:
        """A VM that was left to its user, and is nobody's now."""
        for (name, vm_id), made in list(self.oracle.made.items()):
            vm = world.state.vms.get(vm_id)
            free = made.left and made.unmarked and vm is not None and vm.mark is None
            if name == world.name and free and world.hypervisor.running(vm_id) is None:
                self.oracle.give_away(world, vm_id)
                return vm
        return None

    def _stranger(self, world: SimWorld) -> Vm:
        number = self.rng.getrandbits(24)
        made = world.act(
            "make_foreign",
            name=f"legacy-{number}",
            domain=self.rng.choice(("domain-a", "domain-b")),
            uuid=f"00000000-0000-4000-9000-{number:012x}",
            power=self.rng.choice(("PoweredOn", "PoweredOff")),
        )
        self.oracle.strangers.note(world, made["id"])
        return world.state.vms[made["id"]]

    def _create(self, name: str, world: SimWorld, vm: Vm) -> None:
        adopt = {"id": vm.uuid, "accepted": self.rng.random() < 0.5}
        spec: dict[str, object] = {
            "adopt": adopt,
            "providerRef": {"name": world.name, "namespace": SYSTEM},
        }
        if self.rng.random() < 0.5:
            spec["desiredPowerState"] = self.rng.choice(("PoweredOn", "PoweredOff"))
        if self.rng.random() < 0.3:
            spec["deletionPolicy"] = self.rng.choice(("Delete", "Orphan"))
        obj = virtual_machine(name, **spec)
        if self.rng.random() < 0.5:
            del obj["spec"]["classRef"], obj["spec"]["imageRef"]
        self.cluster.log(f"user creates {name}: {obj['spec']}")
        self.cluster.api.put(VIRTUAL_MACHINES, obj)


class Settlement(Actor):
    """What users who adopt do at the end."""

    def accept_all(self) -> None:
        """At the end everybody has looked, and those who pointed at the wrong place know it."""
        for obj in self.cluster.virtual_machines():
            adopt, name = obj["spec"].get("adopt"), obj["metadata"]["name"]
            if not adopt or obj["metadata"].get("deletionTimestamp"):
                continue
            found = self.find(adopt["id"])
            if not adopt.get("accepted"):
                self.edit(name, adopt={**adopt, "accepted": True})
            if found is not None and (found[0].name, found[1].id) in self.oracle.strangers.vms:
                self.edit(name, providerRef={"name": found[0].name, "namespace": SYSTEM})
