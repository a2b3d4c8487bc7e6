"""What must hold at every moment, whatever happens. It sees everything and changes nothing."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES, VM_IMAGES
from banlieue.sdk.identity import Mark, may_replace, valid_mark
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change
from banlieue.sdk.simulated.records import ON, Vm
from banlieue.sdk.simulated.world import Params
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.statusrules import faults_between, faults_of
from test.simulation.backend import SimWorld
from test.simulation.cluster import Cluster
from test.simulation.custody import Custody
from test.simulation.kinds import MACHINE_KINDS
from test.simulation.platform import FIXED, NAMESPACE
from test.simulation.strangers import Strangers
from test.simulation.wishes import GRACE, Wish, policy_of

_JUDGED = frozenset({VIRTUAL_MACHINES, *MACHINE_KINDS, PROVIDERS, VM_IMAGES})
_HALF_GONE = re.compile(r"condition \w+: observedGeneration (is missing|went back from \d+ to 0)")


@dataclass(slots=True)
class Made:
    """A VM that a driver made.

    `left` is nobody's any more; `lost` with its VirtualMachine in a restore, and could be found.
    """

    world: str
    vm_id: str
    owner: str
    epoch: int
    uuid: str
    name: str
    mark: str
    left: bool = False
    lost: bool = False
    unmarked: bool = False
    mark_touched: float = -1e9


@dataclass(slots=True)
class Oracle:
    """Watches one cluster; the first violation halts it."""

    cluster: Cluster
    failure: str = ""
    made: dict[tuple[str, str], Made] = field(default_factory=dict)
    wishes: dict[str, Wish] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    torn: set[str] = field(default_factory=set)
    leaked: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    placed: set[str] = field(default_factory=set)
    unheld: dict[str, set[str]] = field(default_factory=dict)
    outdated: set[str] = field(default_factory=set)
    orphaned: set[str] = field(default_factory=set)
    coming_orphans: set[str] = field(default_factory=set)
    restoring: bool = False
    restored: bool = False
    put_back: bool = False
    late_calls: bool = False
    strangers: Strangers = field(init=False)
    custody: Custody = field(init=False)
    _late_before: bool = False
    _call: Call | None = None

    def __post_init__(self) -> None:
        now, late = self.cluster.loop.time, self._comes_late
        self.strangers = Strangers(now=now, blame=self.blame)
        self.custody = Custody(now=now, blame=self.blame, late=late, grace=GRACE)

    def watch(self) -> None:
        """Begin."""
        self.cluster.api.subscribe(self._written)
        self.cluster.api.intercept(self._around)
        self.cluster.network.on_answer = self._answered
        for world in self.cluster.worlds.values():
            self.watch_world(world)

    def watch_world(self, world: SimWorld) -> None:
        """Watch one backend."""
        world.on_call = self._called
        world.on_move = self._moved

    def blame(self, what: str) -> None:
        """Note a violation; the first one counts."""
        if not self.failure:
            self.failure = what
            self.cluster.log(f"VIOLATION {what}")
            self.cluster.loop.halt()

    # What actions of the schedule tell.

    def may_miss(self, name: str) -> bool:
        """Whether somebody removed the VM, or it was destroyed before its owner was restored."""
        return name in self.removed or (self.restored and name in self.ended)

    def _comes_late(self) -> bool:
        return self.late_calls or self._late_before

    def forget_calls(self) -> None:
        """Every process ended: no call of theirs is on its way, unless some may come late."""
        if not self._comes_late():
            for wish in self.wishes.values():
                wish.forget_calls()

    def begin_anew(self) -> None:
        """What may be missing already stays so; what else happened is over."""
        there = {obj["metadata"]["name"] for obj in self.cluster.virtual_machines()}
        self.removed = {name for name in there if self.may_miss(name)}
        self.torn &= there
        self._give_up_coming(set(self.cluster.being_made().values()) - there)
        self.ended.clear()
        self.restored = False
        self._late_before, self.late_calls = self.late_calls, False

    @contextmanager
    def restore(self) -> Iterator[None]:
        """What vanishes meanwhile, no user wanted gone."""
        before, self.restoring, self.restored = self.restoring, True, True
        self.put_back = True
        try:
            yield
        finally:
            self.restoring = before
            if not before:
                self._leave_lost()

    def _leave_lost(self) -> None:
        """VMs whose VirtualMachines did not come back are reported, and stay.

        They are nobody's until somebody creates an object of that name, which gets no other VM.
        """
        there = {obj["metadata"]["name"] for obj in self.cluster.virtual_machines()}
        for made in self.made.values():
            if not made.left and made.owner not in there:
                made.left = made.lost = True
            if not made.left and self._is_forgotten(made):
                made.left = True

    def _is_forgotten(self, made: Made) -> bool:
        """Whether it was made for a move of which no object tells any more: reported, and stays."""
        mark, machines = Mark.decode(made.mark), self.cluster.machines()
        named = {(it["spec"].get("instance") or {}).get("uuid") for it in machines}
        return mark is not None and bool(mark.incoming) and made.uuid not in named

    def give_away(self, world: SimWorld, vm_id: str) -> None:
        """A VM that was left to its user counts as any other that is not ours."""
        self.made.pop((world.name, vm_id))
        self.strangers.note(world, vm_id)

    def note_removed(self, world: SimWorld, vm_id: str) -> None:
        """Somebody else removes this VM, with its disks."""
        self.strangers.note_removed(world, vm_id)
        vm = world.state.vms.get(vm_id)
        for disk in vm.disks if vm else ():
            self.custody.note_removed(world, disk.id)
        made = self.made.pop((world.name, vm_id), None)
        if made is not None:
            self.ended.add(made.owner)
            if not made.left:
                self.removed.add(made.owner)

    def note_mark(self, world: SimWorld, vm_id: str) -> None:
        """An admin changed what tells whose this VM is."""
        made = self.made.get((world.name, vm_id))
        if made is not None:
            made.mark_touched = self.cluster.loop.time()
            made.lost = False

    # The API.

    def _around(self, call: Call, moment: Moment) -> None:
        if moment is Moment.BEFORE:
            self._call = call

    def _answered(self) -> None:
        self._call = None

    def _written(self, change: Change) -> None:
        if change.resource == VIRTUAL_MACHINES:
            self._follow_wish(change)
            self.custody.follow_machine(change)
        if change.resource == PROVIDERS:
            self.custody.follow_provider(change)
            if not self.restoring:
                self._follow_provider(change)
        if change.resource in MACHINE_KINDS:
            if change.new is not None:
                self._follow_rebind(change.new)
            elif not self.restoring:
                self._follow_release((change.old or {}).get("spec") or {})
        new, old = change.new, change.old
        if self._call is None or new is None or change.resource not in _JUDGED:
            return
        same = old is not None and old["metadata"]["uid"] == new["metadata"]["uid"]
        faults = list(faults_of(new, old if same else None))
        if same and old is not None:
            faults += faults_between(old, new)
            faults = [it for it in faults if not self._may_say(it, old)]
        if faults:
            self.blame(f"{change.resource.kind} {change.key}: {'; '.join(faults)}")

    def _may_say(self, fault: str, old: Obj) -> bool:
        """What a restore explains.

        An old backup may have named a VM that is gone, and its owner has another one since. Fields
        that a backup tool put back are its own, too: a condition that ends goes in two writes.
        """
        was = str((old.get("status") or {}).get("providerID", "")).rpartition("/")[2]
        worlds = self.cluster.worlds.values()
        gone = all(vm.uuid != was for world in worlds for vm in world.state.vms.values())
        if not self.put_back:
            return False
        named = gone and fault.startswith("status.providerID was")
        return named or bool(_HALF_GONE.fullmatch(fault))

    def _follow_wish(self, change: Change) -> None:
        name, now = change.key.name, self.cluster.loop.time()
        if change.new is not None and (change.new.get("status") or {}).get("infrastructureRef"):
            self.placed.add(change.new["metadata"]["uid"])
        wish = self.wishes.setdefault(name, Wish())
        doomed = wish.destroy.said
        wish.follow(change.new, now)
        if wish.destroy.said and not doomed:
            self.unheld[name] = self._unheld(name)
        if change.new is not None:
            self.orphaned.discard(name)
        elif not self.restoring:
            self._gone(name, change.old or {})

    def _gone(self, name: str, last: Obj) -> None:
        """The VirtualMachine went as the user wanted; what is left of it is nobody's."""
        policy = policy_of(last.get("spec") or {})
        # Created again after a restore and deleted before it was placed: its VM is reported, and
        # stays.
        unseen = last["metadata"].get("uid") not in self.placed
        for made in self.made.values():
            if made.owner == name and not made.left:
                made.left = True
                forgotten = self.put_back and self._is_forgotten(made)
                known = self._is_marked(made) and not forgotten
                known = known and made.uuid not in self.unheld.get(name, set())
                if policy == "Delete" and name not in self.torn and known and not unseen:
                    self.leaked[made.uuid] = f"{made.world}/{made.vm_id} of {name}"
        if policy == "Orphan":
            self.orphaned.add(name)  # and what is being made of it right now, too
            self._give_up_coming({name})
        if name in self.removed:
            self.ended.add(name)  # should a backup bring its owner back
        self.removed.discard(name)
        self.torn.discard(name)
        self.unheld.pop(name, None)
        self.outdated.discard(name)

    def _give_up_coming(self, owners: set[str]) -> None:
        """What is being made of them is nobody's, whoever gets their names meanwhile."""
        coming = self.cluster.being_made().items()
        self.coming_orphans |= {uuid for uuid, owner in coming if owner in owners}

    def _unheld(self, name: str) -> set[str]:
        """VMs of an owner whose end begins that no machine object has taken up yet.

        The user is told that they stay (`Orphaned`), and their Provider lists them.
        """
        taken = {(it["spec"].get("instance") or {}).get("uuid") for it in self.cluster.machines()}
        return {it.uuid for it in self.made.values() if it.owner == name} - taken

    def _is_marked(self, made: Made) -> bool:
        """Whether a driver can tell whose this VM is; one that cannot leaves it where it is."""
        vm = self._vm(made)
        mark = Mark.decode(vm.mark) if vm else None
        return vm is not None and mark is not None and valid_mark(mark, vm.uuid)

    def _follow_rebind(self, machine: Obj) -> None:
        uuid = ((machine.get("spec") or {}).get("instance") or {}).get("uuid")
        for made in self.made.values():
            given = made.left and not made.unmarked
            if made.uuid == uuid and given and not self._has_other(made):
                made.left = made.lost = False
                self.leaked.pop(made.uuid, None)

    def _follow_release(self, spec: Obj) -> None:
        """What a move left is its user's, whether or not its backend could be told."""
        behind = (spec.get("move") or {}).get("role") == "Previous"
        let_go = (spec.get("teardown") or {}).get("mode") == "Release"
        owner = self.cluster.api.look_at(
            VIRTUAL_MACHINES,
            Key(NAMESPACE, (spec.get("virtualMachineRef") or {}).get("name", "")),
        )
        if not (behind and let_go and owner and policy_of(owner["spec"]) == "Orphan"):
            return
        for made in self.made.values():
            if made.uuid == (spec.get("instance") or {}).get("uuid"):
                made.left = True

    def _follow_provider(self, change: Change) -> None:
        """Nobody tells of the VMs on a Provider that is gone or goes."""
        if change.new is None or change.new["metadata"].get("deletionTimestamp"):
            for made in self.made.values():
                if made.world == change.key.name:
                    made.lost = False

    def _has_other(self, made: Made) -> bool:
        """Whether its owner got another VM since this one was left."""
        same = (it for it in self.made.values() if it.owner == made.owner and it is not made)
        return any(it.epoch == made.epoch and not it.left for it in same)

    # The backends.

    def _called(self, world: SimWorld, method: str, params: Params) -> None:
        vm_id = str(params.get("vm", ""))
        if method == "take_over":
            self._judge_heir(world, vm_id, params)
        foreign = (world.name, vm_id) in self.strangers.vms
        self.custody.called(world, method, params, foreign=foreign)
        if self.strangers.called(world, method, vm_id):
            return
        if method == "create":
            self._judge_create(world, str(params["uuid"]))
        if method == "destroy":
            self._judge_destroy(world, vm_id)
        if method == "remove_mark":
            self._judge_unmark(world, vm_id)

    def _judge_heir(self, world: SimWorld, vm_id: str, params: Params) -> None:
        """What was left to its user another object may adopt; nothing else changes hands."""
        made = self.made.get((world.name, vm_id))
        mark = Mark.decode(str(params["wanted"]["mark"]))
        if made is None or mark is None or mark.owner.name == made.owner:
            return
        if made.left or made.unmarked:
            self.give_away(world, vm_id)
        else:
            self.blame(f"VM of {made.owner} is taken over by {mark.owner.name}")

    def _judge_create(self, world: SimWorld, uuid: str) -> None:
        """Nobody makes a VM again that was seen once and is gone."""
        if any(vm.uuid == uuid for vm in world.state.vms.values()):
            return  # the backend refuses it
        for machine in self.cluster.machines():
            spec = machine["spec"]
            if (spec.get("instance") or {}).get("uuid") == uuid and spec.get("providerID"):
                self.blame(f"the VM of {Key.of(machine)} was seen, is gone, and is made again")

    def _judge_destroy(self, world: SimWorld, vm_id: str) -> None:
        now, vm = self.cluster.loop.time(), world.state.vms.get(vm_id)
        if vm is None:
            return
        made = self.made.get((world.name, vm_id))
        if made is None:
            self.blame(f"VM {world.name}/{vm_id} is destroyed, and no driver made it")
            return
        if not self._may_end(made, vm):
            self.blame(f"VM of {made.owner} is destroyed, and nobody asked for it")
        if made.left:
            self.blame(f"VM of {made.owner} is destroyed, and was left to its user")
        mark = Mark.decode(vm.mark)
        ours = mark is not None and valid_mark(mark, vm.uuid) and mark.owner.name == made.owner
        if not ours and now > made.mark_touched + GRACE:
            self.blame(f"VM {world.name}/{vm_id} is destroyed without a valid mark")

    def _may_end(self, made: Made, vm: Vm) -> bool:
        """Whether its user lets it go, or it was made for a move that came to nothing."""
        now, wish = self.cluster.loop.time(), self.wishes.get(made.owner, Wish())
        if wish.destroy.holds(now):
            return True
        mark = Mark.decode(vm.mark)
        if mark is not None and mark.incoming:
            return True
        return wish.release.holds(now) and self._is_behind(vm)

    def _is_behind(self, vm: Vm) -> bool:
        """Whether its machine object says that a move left it behind."""
        for machine in self.cluster.machines():
            spec = machine["spec"]
            if (spec.get("instance") or {}).get("uuid") == vm.uuid:
                return bool((spec.get("move") or {}).get("role") == "Previous")
        return False

    def _judge_unmark(self, world: SimWorld, vm_id: str) -> None:
        made = self.made.get((world.name, vm_id))
        if made is None:
            self.blame(f"the mark is taken off {world.name}/{vm_id}, which no driver made")
            return
        made.unmarked = True
        now, wish = self.cluster.loop.time(), self.wishes.get(made.owner, Wish())
        vm = self._vm(made)
        if wish.release.holds(now) and vm and self._is_behind(vm):
            made.left = True  # a move left it behind, and its user keeps such VMs
            return
        if not wish.orphan.holds(now):
            self.blame(f"the mark is taken off the VM of {made.owner}, which lives")

    def _moved(self, world: SimWorld) -> None:
        self._take_over(world)
        self._take_in(world)
        self.custody.moved(world)
        self._lose_sight(world)
        self._check_single()
        self.strangers.moved(world)

    def _take_over(self, world: SimWorld) -> None:
        """VMs that were adopted are somebody's from now on."""
        for key in [key for key in self.custody.taken if key[0] == world.name]:
            vm = world.state.vms.get(key[1])
            mark = Mark.decode(vm.mark) if vm else None
            if vm is None or key not in self.strangers.vms:
                self.custody.taken.discard(key)
            elif mark is not None and valid_mark(mark, vm.uuid):
                self.custody.taken.discard(key)
                del self.strangers.vms[key]
                world.by_admins.discard(vm.id)

    def _take_in(self, world: SimWorld) -> None:
        for key in [key for key in self.made if key[0] == world.name]:
            if key[1] not in world.state.vms:
                gone = self.made.pop(key)
                self.ended.add(gone.owner)
                self.leaked.pop(gone.uuid, None)
                if not gone.left:
                    self.removed.add(gone.owner)
        for vm in world.state.vms.values():
            key = (world.name, vm.id)
            if key in self.made:
                self._follow_mark(self.made[key], vm)
            if key in self.made or key in self.strangers.vms or vm.id in world.by_admins:
                continue
            mark = Mark.decode(vm.mark)
            if mark is None:
                self.blame(f"a driver made {world.name}/{vm.id} without a mark")
                return
            self.made[key] = Made(
                world.name, vm.id, mark.owner.name, mark.epoch, vm.uuid, vm.name, vm.mark or ""
            )
            orphan = mark.owner.name in self.orphaned or vm.uuid in self.coming_orphans
            self.made[key].left = orphan
            self._judge_second(self.made[key])

    def _follow_mark(self, made: Made, vm: Vm) -> None:
        """A move changes a mark's epoch and whether it is incoming, and nothing else."""
        known, found = Mark.decode(made.mark), Mark.decode(vm.mark)
        if found is not None and found != known and may_replace(known, found):
            made.mark, made.epoch = vm.mark or "", found.epoch

    def _judge_second(self, fresh: Made) -> None:
        """An owner whose VM was lost with a restore, and can be seen, gets no second one."""
        for made in self.made.values():
            same = (made.owner, made.epoch) == (fresh.owner, fresh.epoch)
            if made is not fresh and made.lost and same:
                lost = f"the one it lost is on {made.world}"
                self.blame(f"{fresh.owner} got a VM on {fresh.world}, and {lost}")

    def _lose_sight(self, world: SimWorld) -> None:
        """What is hidden, or on a backend that is not told from another, cannot be found."""
        strange = world.state.identity != f"backend-{world.name}"
        for made in self.made.values():
            if made.world == world.name and made.lost:
                made.lost = not (strange or world.state.vms[made.vm_id].hidden)

    def _check_single(self) -> None:
        owners = Counter((it.owner, it.epoch) for it in self.made.values() if not it.left)
        for (owner, epoch), count in owners.items():
            if count > 1:
                self.blame(f"{count} VMs of {owner}, epoch {epoch}")
        kept = (self._vm(it) for it in self.made.values() if not it.left)
        running = [vm for vm in kept if vm and vm.power == ON]
        uuids = Counter(vm.uuid for vm in running)
        uuids.update(f"{vm.name}" for vm in running)
        uuids.update(
            address
            for vm in running
            for nic in vm.nics
            for address in (nic.addresses if nic.connected else ())
            if address.startswith(FIXED)
        )
        for word, count in uuids.items():
            if count > 1:
                self.blame(f"{count} running VMs are {word}")

    def _vm(self, made: Made) -> Vm | None:
        return self.cluster.worlds[made.world].state.vms.get(made.vm_id)
