"""Disks with data on them: retained, attached again, wanted by several."""

from typing import Any

from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.records import Disk, Vm
from test.simulation.actions import NAMES, Actor
from test.simulation.backend import SimWorld
from test.simulation.platform import NAMESPACE, virtual_machine

DATA = "data"
"""Name of the disk that users list."""

STRANGE = "team-b"
"""A namespace whose disks nobody here may have."""


class Data(Actor):
    """What users do with disks, and their guests."""

    def create_with_disk(self) -> None:
        """Create a VirtualMachine with a disk of its own, which is to outlive it or not."""
        policy = self.rng.choice(("Retain", "Retain", "Delete"))
        disk = {"name": DATA, "sizeGiB": 10, "storageClass": "fast", "reclaimPolicy": policy}
        self._create([disk])

    def write(self) -> None:
        """A guest writes what must not get lost."""
        if (found := self._with_disk()) is not None:
            world, vm, disk = found
            content = f"written-{self.rng.randrange(10**6)}"
            made = self.oracle.made[world.name, vm.id]
            self.oracle.custody.note_written(world, disk, content, made.owner)
            world.act("write_disk", vm=vm.id, disk=disk.name, content=content)

    def keep(self) -> None:
        """A user has a disk outlive its machine, or no longer."""
        policy = self.rng.choice(("Retain", "Delete"))
        self._edit_disk(lambda disk: disk.update(reclaimPolicy=policy))

    def drop(self) -> None:
        """A user lists a disk no more."""
        for obj in self.cluster.virtual_machines():
            if obj["spec"].get("disks"):
                self.edit(obj["metadata"]["name"], disks=None)
                return

    def attach_again(self) -> None:
        """A user has a retained disk attached to another machine."""
        if (kept := self._kept()) is not None:
            self._create([{"name": "old", "existing": kept}])

    def attach_twice(self) -> None:
        """Two users want the same disk at once."""
        if (kept := self._kept()) is not None:
            for name in ("old", "older"):
                self._create([{"name": name, "existing": kept}])

    def steal(self) -> None:
        """A user names a disk that is kept for somebody else."""
        world, number = self.world(), self.rng.getrandbits(24)
        kept = f"theirs-{number}"
        keeper = f"{self.cluster.installation()}/{STRANGE}"
        disk = world.hypervisor.new_disk("fast", 5, f"secret-{number}", None)
        world.state.detached[disk.id] = disk.model_copy(update={"kept": kept, "keeper": keeper})
        self.oracle.custody.note_strange(world, disk.id)
        self._create([{"name": "old", "existing": kept}])

    def _create(self, disks: list[dict[str, Any]]) -> None:
        free = [name for name in NAMES if self.cluster.virtual_machine(name) is None]
        if not free:
            return
        name = self.rng.choice(free)
        policy = self.rng.choice(("Delete", "Delete", "Orphan"))
        self.cluster.log(f"user creates {name} with {disks}")
        obj = virtual_machine(name, disks=disks, deletionPolicy=policy)
        self.cluster.api.put(VIRTUAL_MACHINES, obj)

    def _edit_disk(self, change: Any) -> None:  # noqa: ANN401 - a function of a disk
        for obj in self.cluster.virtual_machines():
            if any(disk["name"] == DATA for disk in obj["spec"].get("disks") or ()):
                name = obj["metadata"]["name"]

                def edit(it: Obj) -> None:
                    for disk in it["spec"]["disks"]:
                        change(disk)

                self.cluster.log(f"user edits the disks of {name}")
                self.cluster.api.edit(VIRTUAL_MACHINES, Key(NAMESPACE, name), edit)
                return

    def _with_disk(self) -> tuple[SimWorld, Vm, Disk] | None:
        for name, vm_id in self.oracle.made:
            world = self.cluster.worlds[name]
            for disk in world.state.vms[vm_id].disks:
                if disk.name in {DATA, "old"}:
                    return world, world.state.vms[vm_id], disk
        return None

    def _kept(self) -> str | None:
        keeper = f"{self.cluster.installation()}/{NAMESPACE}"
        found = [
            disk.kept
            for world in self.cluster.worlds.values()
            for disk in world.state.detached.values()
            if disk.keeper == keeper and disk.kept
        ]
        return self.rng.choice(found) if found else None


class Settlement(Actor):
    """What users with disks do at the end."""

    def settle(self) -> None:
        """At the end nobody asks for what cannot be had, and those who move know what they lose."""
        taken: set[str] = set()
        for obj in self.cluster.virtual_machines():
            name, disks = obj["metadata"]["name"], obj["spec"].get("disks") or ()
            wanted = {str(disk["existing"]) for disk in disks if disk.get("existing")}
            if obj["metadata"].get("deletionTimestamp"):
                continue
            if disks:
                self.edit(name, providerRef=None)
            if wanted and (wanted & taken or not self._can_have(obj, wanted)):
                self.cluster.log(f"user gives {name} up, as it cannot have {sorted(wanted)}")
                self.cluster.api.drop(VIRTUAL_MACHINES, Key(NAMESPACE, name))
            taken |= wanted

    def _can_have(self, obj: Obj, wanted: set[str]) -> bool:
        """Whether the disks are where the machine was placed, or it has them already."""
        keeper = f"{self.cluster.installation()}/{NAMESPACE}"
        placed = ((obj.get("status") or {}).get("scheduled") or {}).get("providerName")
        there = {
            disk.kept
            for world in self.cluster.worlds.values()
            for disk in world.state.detached.values()
            if disk.keeper == keeper and placed in {None, world.name}
        }
        for key, made in self.oracle.made.items():
            if made.owner == obj["metadata"]["name"]:
                there |= {it.kept for it in self.cluster.worlds[key[0]].state.vms[key[1]].disks}
        return wanted <= there
