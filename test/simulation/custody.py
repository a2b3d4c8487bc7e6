"""What must hold of data, of VMs to be taken over, and of Providers that only look."""

from collections.abc import Callable
from dataclasses import dataclass, field

from banlieue.sdk.identity import Mark
from banlieue.sdk.kube import Obj
from banlieue.sdk.reconcile import Change
from banlieue.sdk.simulated.records import Disk
from banlieue.sdk.simulated.world import Params
from test.simulation.backend import SimWorld

CHANGING = frozenset(
    {
        "create",
        "destroy",
        "detach",
        "power_off",
        "power_on",
        "reboot",
        "reconfigure",
        "remove_mark",
        "reset",
        "shutdown",
        "suspend",
        "take_over",
    }
)
"""Calls that change something on a backend."""


@dataclass(slots=True)
class Kept:
    """A disk with data, and since when it is certain that its user keeps it."""

    owner: str
    name: str
    content: str
    kept_since: float | None


@dataclass(slots=True)
class Custody:
    """Sees every change of VirtualMachines and Providers, every call and every move of a world.

    `grace` is for how long what was right when it was decided may still happen; `late` tells
    whether calls may arrive after their process ended.
    """

    now: Callable[[], float]
    blame: Callable[[str], None]
    late: Callable[[], bool]
    grace: float
    disks: dict[tuple[str, str], Kept] = field(default_factory=dict)
    strange: set[tuple[str, str]] = field(default_factory=set)
    drills: dict[str, float] = field(default_factory=dict)
    accepted: dict[str, tuple[str, float]] = field(default_factory=dict)
    policies: dict[tuple[str, str], bool] = field(default_factory=dict)
    taken: set[tuple[str, str]] = field(default_factory=set)

    # What actions of the schedule tell.

    def note_written(self, world: SimWorld, disk: Disk, content: str, owner: str) -> None:
        """A guest writes on the disk what is found nowhere else."""
        name = disk.name or ""
        since = self.now() if self.policies.get((owner, name)) else None
        self.disks[world.name, disk.id] = Kept(owner, name, content, since)

    def note_strange(self, world: SimWorld, disk_id: str) -> None:
        """This disk is kept for somebody else, and stays where it is."""
        self.strange.add((world.name, disk_id))

    def note_removed(self, world: SimWorld, disk_id: str) -> None:
        """An admin destroys the disk."""
        self.disks.pop((world.name, disk_id), None)

    def note_drill(self, provider: str) -> None:
        """From now on nothing may change there: no process lives that knows otherwise."""
        self.drills[provider] = self.now() + (self.grace if self.late() else 0.0)

    # The API.

    def follow_machine(self, change: Change) -> None:
        """A VirtualMachine changed."""
        name, spec = change.key.name, (change.new or {}).get("spec") or {}
        adopt = spec.get("adopt") or {}
        if adopt.get("accepted") and not _leaves(change.new):
            self.accepted[name] = (str(adopt["id"]).lower(), float("inf"))
        elif name in self.accepted and self.accepted[name][1] == float("inf"):
            self.accepted[name] = (self.accepted[name][0], self.now() + self.grace)
        for disk in spec.get("disks") or ():
            policy = disk.get("reclaimPolicy") or ("Retain" if disk.get("existing") else "Delete")
            self._follow_policy(name, str(disk["name"]), keeps=policy == "Retain")

    def _follow_policy(self, owner: str, name: str, *, keeps: bool) -> None:
        self.policies[owner, name] = keeps
        for disk in self.disks.values():
            if (disk.owner, disk.name) != (owner, name):
                continue
            if not keeps:
                disk.kept_since = None
            elif disk.kept_since is None:
                disk.kept_since = self.now() + self.grace

    def follow_provider(self, change: Change) -> None:
        """A Provider changed: one that may work again, or is another one, is in no drill."""
        if ((change.new or {}).get("spec") or {}).get("mode") != "ReadOnly":
            self.drills.pop(change.key.name, None)

    # The backends.

    def called(self, world: SimWorld, method: str, params: Params, *, foreign: bool) -> None:
        """A driver calls."""
        since = self.drills.get(world.name)
        if since is not None and method in CHANGING and self.now() >= since:
            self.blame(f"{method} on {world.name}, which is only to be looked at")
        if method == "take_over" and foreign:
            self._judge_take_over(world, params)

    def _judge_take_over(self, world: SimWorld, params: Params) -> None:
        vm = world.state.vms.get(str(params["vm"]))
        mark = Mark.decode(str(params["wanted"]["mark"]))
        if vm is None or mark is None:
            return
        uuid, until = self.accepted.get(mark.owner.name, ("", 0.0))
        if uuid != vm.uuid or self.now() > until:
            self.blame(f"VM {world.name}/{vm.id} is taken over, and nobody accepted that")
        self.taken.add((world.name, vm.id))

    def moved(self, world: SimWorld) -> None:
        """Something moved on a backend: is everything there that must be?"""
        if not (self.disks or self.strange):
            return
        attached = [disk for vm in world.state.vms.values() for disk in vm.disks]
        there: dict[str, Disk] = {}
        for disk in (*attached, *world.state.detached.values()):
            if disk.id in there:
                self.blame(f"disk {world.name}/{disk.id} is attached twice")
            there[disk.id] = disk
        for name, disk_id in self.strange:
            if name == world.name and disk_id not in world.state.detached:
                self.blame(f"disk {name}/{disk_id} of another namespace was taken")
        for (name, disk_id), kept in list(self.disks.items()):
            if name == world.name:
                self._check_kept(name, disk_id, kept, there.get(disk_id))

    def _check_kept(self, world: str, disk_id: str, kept: Kept, found: Disk | None) -> None:
        if found is not None:
            if found.content != kept.content:
                self.blame(f"what is on disk {world}/{disk_id} of {kept.owner} was changed")
            return
        del self.disks[world, disk_id]
        if kept.kept_since is not None and self.now() >= kept.kept_since:
            self.blame(f"disk {kept.name} of {kept.owner} is gone, and was to be retained")


def _leaves(obj: Obj | None) -> bool:
    return obj is None or bool(obj["metadata"].get("deletionTimestamp"))
