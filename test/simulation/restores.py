"""Backups that are restored: whole, in parts, in any order, with or without status."""

from random import Random

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import CONFIG_MAPS, VIRTUAL_MACHINES
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.testing.memory_api import Backup
from banlieue.sdk.testing.plain import clone
from test.simulation.actions import Actor
from test.simulation.cluster import CONTROLLER, Cluster
from test.simulation.kinds import BY_NAME, MACHINE_KINDS
from test.simulation.oracle import Oracle
from test.simulation.platform import NAMESPACE, SYSTEM

_KINDS: tuple[Resource, ...] = (VIRTUAL_MACHINES, *MACHINE_KINDS)
_STRIPPED = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


class Restores(Actor):
    """What admins and backup tools do to the API server's data."""

    etcd: list[Backup]
    files: list[list[tuple[Resource, Obj]]]

    def __init__(self, cluster: Cluster, oracle: Oracle, rng: Random) -> None:
        super().__init__(cluster, oracle, rng)
        self.etcd = []
        self.files = []

    def save_etcd(self) -> None:
        """Save everything."""
        self.etcd.append(self.cluster.backup())
        self.cluster.log(f"etcd is saved ({len(self.etcd)})")

    def save_objects(self) -> None:
        """Save VirtualMachines and machines, as a backup tool does."""
        found = [(kind, clone(obj)) for kind in _KINDS for obj in self.cluster.api.look(kind)]
        self.files.append(found)
        self.cluster.log(f"objects are saved ({len(self.files)})")

    def roll_back(self) -> None:
        """Let etcd be as it was."""
        if not self.etcd:
            return
        number = self.rng.randrange(len(self.etcd))
        self.cluster.log(f"etcd is rolled back to {number + 1}")
        with self.oracle.restore():
            self.cluster.roll_back(self.etcd[number])
        if self.rng.random() < 0.5:
            self._begin_recovery()
            self._restart_all()

    def begin_recovery(self) -> None:
        """`banlieue recover --begin`, whether that is right or not."""
        self.cluster.log("recovery begins")
        self._begin_recovery()

    def wipe_status(self) -> None:
        """Statuses are lost."""
        for kind in _KINDS:
            for obj in list(self.cluster.api.look(kind)):
                if self.rng.random() < 0.5:
                    self.cluster.log(f"status of {kind.kind} {Key.of(obj)} is lost")
                    self.cluster.api.edit(kind, Key.of(obj), lambda it: it.pop("status", None))

    def tear_machine_out(self) -> None:
        """A machine object vanishes, finalizer or not."""
        machines = self.cluster.machines()
        if machines:
            obj = self.rng.choice(machines)
            self._force(BY_NAME[obj["kind"]], Key.of(obj))

    def second_thoughts(self) -> None:
        """A deletion that cannot go on is taken back from a backup made in the middle of it."""
        if (name := self.any_name()) is None:
            return
        for world in self.cluster.worlds.values():
            world.act("deny", privilege="Delete")
        self.cluster.log(f"user deletes {name}")
        self.cluster.api.drop(VIRTUAL_MACHINES, Key(NAMESPACE, name))
        self.cluster.later(self.rng.choice((0.1, 0.9)), self._take_back)

    def _take_back(self) -> None:
        self.save_objects()
        self._restore(self.files[-1], everything=True)
        for world in self.cluster.worlds.values():
            world.act("allow")

    def restore_objects(self) -> None:
        """A backup tool brings back what was there, in some order, after all or some is lost."""
        if self.files:
            self._restore(self.rng.choice(self.files), everything=self.rng.random() < 0.5)

    def _restore(self, file: list[tuple[Resource, Obj]], *, everything: bool) -> None:
        saved, drawn = list(file), self.rng.random()
        status, owners = drawn < 0.5, not 0.35 < drawn < 0.65
        how = f"with status: {status}, with owners: {owners}"
        self.cluster.log(f"objects are restored, all: {everything}, {how}")
        with self.oracle.restore():
            if everything:
                for kind in _KINDS:
                    for obj in list(self.cluster.api.look(kind)):
                        self._force(kind, Key.of(obj))
            if self.rng.random() < 0.5:
                self._begin_recovery()
                self._restart_all()
            self.rng.shuffle(saved)
            for kind, obj in saved:
                if self.cluster.api.look_at(kind, Key.of(obj)) is None:
                    self.cluster.log(f"restored {kind.kind} {Key.of(obj)}")
                    self.cluster.api.put(kind, _stripped(obj, status=status, owners=owners))
                    if self.rng.random() < 0.4 and self.cluster.api.collect_garbage():
                        self.cluster.log("garbage collected at once")

    def rebuild_from_git(self) -> None:
        """A new cluster with the same installation: VirtualMachines as their users wrote them."""
        written = [
            {**clone({k: v for k, v in obj.items() if k != "status"})}
            for obj in self.cluster.virtual_machines()
            if not obj["metadata"].get("deletionTimestamp")
        ]
        self.cluster.log(f"the cluster is rebuilt with {len(written)} VirtualMachines")
        with self.oracle.restore():
            for process in self.cluster.processes:
                if not process.dead:
                    self.cluster.kill(process)
            for kind in _KINDS:
                for obj in list(self.cluster.api.look(kind)):
                    self._force(kind, Key.of(obj))
            self._recover()
            for obj in written:
                fresh = _stripped(obj, status=False)
                fresh["metadata"].pop("finalizers", None)
                self.cluster.api.put(VIRTUAL_MACHINES, fresh)
        for role in (CONTROLLER, *self.cluster.names):
            self.cluster.start(role)

    def _begin_recovery(self) -> None:
        """What an admin says when no process lives on that saw what was there before."""
        key = Key(SYSTEM, names.INSTALLATION_CONFIG_MAP)
        if self.cluster.api.look_at(CONFIG_MAPS, key) is not None:
            recovery = {names.INSTALLATION_RECOVERY: "true"}
            self.cluster.api.edit(CONFIG_MAPS, key, lambda it: it["data"].update(recovery))

    def _recover(self) -> None:
        self._begin_recovery()
        for world in self.cluster.worlds.values():
            # Who registers a Provider anew looks first that the right backend answers.
            own = f"backend-{world.name}"
            if world.state.identity != own:
                world.act("set_identity", identity=own)
        self.cluster.forget_providers()

    def _force(self, kind: Resource, key: Key) -> None:
        self.cluster.log(f"{kind.kind} {key} vanishes")
        if kind in MACHINE_KINDS:
            made_by = (self.cluster.api.look_at(kind, key) or {})["spec"]["virtualMachineRef"]
            self.oracle.torn.add(made_by["name"])
        with self.oracle.restore():
            self.cluster.api.drop(kind, key, force=True)

    def _restart_all(self) -> None:
        for process in list(self.cluster.processes):
            if not process.dead:
                self.cluster.kill(process)
        self.oracle.forget_calls()
        for role in (CONTROLLER, *self.cluster.names):
            self.cluster.start_after(role, self.rng.choice((0.0, 0.0, 8.0)))


def _stripped(obj: Obj, *, status: bool, owners: bool = True) -> Obj:
    """An object as a backup tool puts it back: somebody new, with what it carried, or less."""
    fresh = clone(obj)
    for name in _STRIPPED:
        fresh["metadata"].pop(name, None)
    if not status:
        fresh.pop("status", None)
    if not owners:
        fresh["metadata"].pop("ownerReferences", None)
    return fresh
