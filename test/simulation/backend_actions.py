"""What befalls backends: faults on the wire, admins at work, lost rights."""

from banlieue.sdk.identity import Mark, Owner, backend_name
from banlieue.sdk.simulated.faults import WorldFault
from test.simulation.actions import NAMES, Actor
from test.simulation.backend import SimWorld
from test.simulation.platform import NAMESPACE

EFFECTS = ("lose-reply", "lose-reply", "cut", "late", "late", "fail-task", "slow-task", "refuse")
METHODS = (
    "create",
    "create",
    "*",
    "find",
    "power_*",
    "destroy",
    "about",
    "creating",
    "remove_mark",
)
CODES = ("GeneralFault", "TaskInProgress", "InsufficientMemory", "NoPermission", "NoDiskSpace")


class BackendAccidents(Actor):
    """What happens to backends behind everybody's back."""

    def fault(self) -> None:
        """The next calls meet a fault."""
        rng = self.rng
        effect, seconds = rng.choice(EFFECTS), rng.choice((1.0, 15.0, 60.0))
        # A call that arrives long after everybody gave it up is more than anybody can promise for.
        rule = {
            "effect": effect,
            "method": rng.choice(METHODS),
            "code": rng.choice(CODES),
            "seconds": min(seconds, 15.0) if effect == "late" else seconds,
            "after": rng.choice((0, 0, 1, 3)),
            "count": rng.choice((1, 1, 2, 6)),
        }
        self.oracle.late_calls |= effect == "late"
        self.world().act("inject", rule=rule)

    def outage(self) -> None:
        """The endpoint answers nobody, or again."""
        world = self.world()
        world.down = self.rng.random() < 0.6
        self.cluster.log(f"{world.name} is {'down' if world.down else 'up'}")

    def expire(self) -> None:
        """All logins end."""
        self.world().act("expire_sessions")

    def hide(self) -> None:
        """The account may not see a VM any more, or again."""
        if (found := self.any_vm()) is not None:
            world, vm = found
            world.act("unhide" if vm.hidden else "hide", vm=vm.id)

    def lose_rights(self) -> None:
        """The account loses a right, or gets all back."""
        right = self.rng.choice((None, "Read", "Create", "Delete", "Power"))
        if right is None:
            self.world().act("allow")
        else:
            self.world().act("deny", privilege=right)

    def remove(self) -> None:
        """An admin destroys a VM."""
        if (found := self.any_vm()) is not None:
            world, vm = found
            self.oracle.note_removed(world, vm.id)
            world.act("remove", vm=vm.id)

    def rename(self) -> None:
        """An admin renames a VM."""
        if (found := self.any_vm()) is not None:
            world, vm = found
            self.oracle.note_mark(world, vm.id)
            self._try(world, "rename", vm=vm.id, name=f"renamed-{vm.id}")

    def move(self) -> None:
        """An admin moves a VM to another failure domain."""
        if (found := self.any_vm()) is not None:
            world, vm = found
            self._try(world, "move", vm=vm.id, domain=self.rng.choice(("domain-a", "domain-b")))

    def switch(self) -> None:
        """An admin switches a VM."""
        if (found := self.any_vm()) is not None:
            world, vm = found
            world.act("set_power", vm=vm.id, power=self.rng.choice(("PoweredOn", "PoweredOff")))

    def unmark(self) -> None:
        """An admin damages or takes the mark off a VM."""
        if (found := self.any_vm()) is not None:
            world, vm = found
            self.oracle.note_mark(world, vm.id)
            world.act("set_mark", vm=vm.id, mark=self.rng.choice((None, "rubbish")))

    def copy(self) -> None:
        """An admin copies a VM, mark and all; or a backup tool restores a second one of it."""
        if (found := self.any_vm()) is not None:
            world, vm = found
            self._copy(world, vm.id, f"copy-{self.rng.randrange(1000)}-{vm.name}")

    def _copy(self, world: SimWorld, vm_id: str, name: str) -> None:
        keep = self.rng.random() < 0.5
        domain = self.rng.choice(("domain-a", "domain-b"))
        vm = world.state.vms[vm_id]
        same_name = vm.domain != domain and self.rng.random() < 0.5
        made = self._try(
            world,
            "copy",
            vm=vm_id,
            name=vm.name if same_name else name,
            domain=domain,
            keep_uuid=keep,
            power=self.rng.choice(("PoweredOn", "PoweredOff")),
        )
        if made is not None:
            self.oracle.strangers.note(world, made)

    def squat(self) -> None:
        """Somebody makes a VM of a name that ours will want, perhaps with a mark of ours."""
        config = self.cluster.installation()
        owner = Owner(config, "VirtualMachine", NAMESPACE, self.rng.choice(NAMES))
        uuid = f"00000000-0000-4000-8000-{self.rng.getrandbits(40):011x}"
        mark = self.rng.choice((None, None, Mark(owner, f"{uuid}0").encode()))
        world = self.world()
        made = self._try(
            world,
            "make_foreign",
            name=backend_name(owner, 0),
            domain=self.rng.choice(("domain-a", "domain-b")),
            uuid=f"{uuid}1",
            mark=mark,
        )
        if made is not None:
            self.oracle.strangers.note(world, made)

    def hot_add(self) -> None:
        """A storage driver or a backup attaches a disk."""
        if (found := self.any_vm()) is not None:
            world, vm = found
            if world.hypervisor.running(vm.id) is not None:
                return  # a hypervisor refuses that
            disk = world.act("attach_disk", vm=vm.id, content=f"pv-{self.rng.randrange(1000)}")
            self.oracle.strangers.note_disk(world, disk["id"], disk["content"])

    def hold(self) -> None:
        """An admin's hold on a VM."""
        if (found := self.any_vm()) is not None:
            world, vm = found
            world.act("hold", vm=vm.id, held=not vm.held)

    def busy(self) -> None:
        """Somebody else's task runs on a VM."""
        if (found := self.any_vm()) is not None:
            world, vm = found
            if world.hypervisor.running(vm.id) is None:
                world.act("run_task", vm=vm.id, seconds=self.rng.choice((5.0, 100.0)))

    def maintain(self) -> None:
        """A host goes into maintenance, or comes back."""
        host = self.rng.choice(("host-a1", "host-a2", "host-b1", "host-b2"))
        self.world().act("set_host", host=host, maintenance=self.rng.random() < 0.6)

    def swap_backend(self) -> None:
        """Another installation answers at the endpoint, or the right one again."""
        world = self.world()
        own = f"backend-{world.name}"
        other = world.state.identity == own and self.rng.random() < 0.7
        if other or world.state.identity != own:
            world.act("set_identity", identity=f"stranger-{world.name}" if other else own)

    def _try(self, world: SimWorld, method: str, **params: object) -> str | None:
        try:
            answer = world.act(method, **params)
        except WorldFault as fault:
            self.cluster.log(f"   {fault}")
            return None
        return str(answer["id"]) if isinstance(answer, dict) else ""
