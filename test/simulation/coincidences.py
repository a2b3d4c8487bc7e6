"""What is harmless alone and befalls one VM at once: rare by chance, and where bugs hide."""

from contextlib import suppress

from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.sdk.identity import Owner, backend_name
from banlieue.sdk.kube import Key, NotFound
from banlieue.sdk.simulated.faults import WorldFault
from banlieue.sdk.testing.memory_api import Backup
from test.simulation.actions import NAMES, Actor
from test.simulation.backend import SimWorld
from test.simulation.platform import NAMESPACE, virtual_machine


class Coincidences(Actor):
    """Two or three things at once."""

    def impatient(self) -> None:
        """Who has a VM made dies at the creating call, and the user loses patience."""
        if (name := self._create()) is None:
            return
        for world in self._worlds():
            world.deadly = "create"
        self._delete_later(name, self.rng.choice((0.5, 2.0, 10.0)))

    def failing_create(self) -> None:
        """The backend takes the order for a VM, and then cannot make it."""
        for world in self._worlds():
            rule = {"effect": "fail-task", "method": "create", "code": "GeneralFault", "count": 1}
            world.act("inject", rule=rule)
        self._create()

    def taken_name(self) -> None:
        """Somebody has a VM of the name that a new one of ours will want."""
        free = self._free()
        if not free:
            return
        name = self.rng.choice(free)
        owner = Owner(self.cluster.installation(), "VirtualMachine", NAMESPACE, name)
        for world in self._worlds():
            for domain in ("domain-a", "domain-b"):
                uuid = f"00000000-0000-4000-8000-{self.rng.getrandbits(48):012x}"
                with suppress(WorldFault):
                    made = world.act(
                        "make_foreign", name=backend_name(owner, 0), domain=domain, uuid=uuid
                    )
                    self.oracle.strangers.note(world, made["id"])
        self._create(name)

    def lost_and_wanted_again(self) -> None:
        """etcd is rolled back to before a VM was made, and its user creates it once more."""
        backup, later = self.cluster.backup(), self.cluster.later
        if (name := self._create()) is None:
            return
        after = self.rng.choice((3.0, 12.0))
        later(after, self._roll_back, backup)
        later(after + self.rng.choice((0.05, 2.0)), self._create, name)

    def disk_of_another(self) -> None:
        """Somebody attaches a disk to a VM whose user deletes it later."""
        if (found := self.any_vm()) is None:
            return
        world, vm = found
        owner = self.oracle.made[world.name, vm.id].owner
        if world.hypervisor.running(vm.id) is not None:
            return  # a hypervisor refuses that
        disk = world.act("attach_disk", vm=vm.id, content=f"pv-{self.rng.randrange(1000)}")
        self.oracle.strangers.note_disk(world, disk["id"], disk["content"])
        self._delete_later(owner, 70.0)

    def _worlds(self) -> list[SimWorld]:
        return list(self.cluster.worlds.values())

    def _free(self) -> list[str]:
        return [name for name in NAMES if self.cluster.virtual_machine(name) is None]

    def _create(self, name: str = "") -> str | None:
        free = self._free()
        if not name and not free:
            return None
        name = name or self.rng.choice(free)
        if name not in free:
            return None
        self.cluster.log(f"user creates {name}")
        self.cluster.api.put(VIRTUAL_MACHINES, virtual_machine(name, deletionPolicy="Delete"))
        return name

    def _roll_back(self, backup: Backup) -> None:
        self.cluster.log("etcd is rolled back at once")
        with self.oracle.restore():
            self.cluster.roll_back(backup)

    def _delete_later(self, name: str, after: float) -> None:
        self.cluster.later(after, self._delete, name)

    def _delete(self, name: str) -> None:
        with suppress(NotFound):
            self.cluster.api.drop(VIRTUAL_MACHINES, Key(NAMESPACE, name))
            self.cluster.log(f"user deletes {name}")
