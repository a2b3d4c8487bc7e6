"""Random accidents, one after the other: always at most one VM of one owner, at the end none."""

from collections import Counter
from random import Random

import pytest

from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.sdk.kube import Key, Obj
from test.kit.controllerworld import NAMESPACE, THAT, THIS, ControllerWorld, restored

VM = Key(NAMESPACE, "db-1")


class Accidents:
    """What can happen to one VirtualMachine, each by its method's name."""

    def __init__(self, world: ControllerWorld, rng: Random) -> None:
        self.world, self.rng = world, rng
        self._uid = 0
        self.lagging = False
        self._backup: Obj | None = None

    def crash(self) -> None:
        self.world.crash_at(self.rng.randint(1, 5), before_reply=self.rng.random() < 0.5)

    def restart(self) -> None:
        self.world.restart()

    def wipe_status(self) -> None:
        if self.world.vm():
            self.world.api.edit(VIRTUAL_MACHINES, VM, lambda it: it.pop("status", None))

    def delete_machine(self) -> None:
        self._drop_machines(force=False)

    def tear_machine_out(self) -> None:
        self._drop_machines(force=True)

    def restore_owner(self) -> None:
        """The VirtualMachine comes back with a new uid; what it owned is garbage by then."""
        vm = self.world.vm()
        if vm is not None:
            self._uid += 1
            status = self.rng.random() < 0.5
            self.world.api.drop(VIRTUAL_MACHINES, VM, force=True)
            fresh = restored(vm, uid=f"uid-{self._uid}", status=status)
            self.world.api.put(VIRTUAL_MACHINES, fresh)
            if self.rng.random() < 0.5:
                self.world.api.collect_garbage()

    def collect_garbage(self) -> None:
        self.world.api.collect_garbage()

    def outage(self) -> None:
        for provider in self.world.providers:
            provider.down = self.rng.random() < 0.5

    def edit(self) -> None:
        if self.world.vm():
            self.world.edit_vm(
                desiredPowerState=self.rng.choice(["PoweredOn", "PoweredOff"]),
                paused=self.rng.random() < 0.1,
            )

    def back_up_machine(self) -> None:
        machines = self.world.machines()
        if machines:
            self._backup = self.rng.choice(machines)

    def restore_machine(self) -> None:
        """What a backup tool does: bring back what is not there, spec and all."""
        if self._backup is None:
            return
        kind = THIS if self._backup["kind"] == THIS.kind else THAT
        if self.world.machine(kind=kind) is None:
            fresh = restored(self._backup)
            fresh.pop("status", None)
            self.world.api.put(kind, fresh)

    def cache_lags(self) -> None:
        self.world.api.cache.hold()
        self.lagging = True

    def cache_follows(self) -> None:
        self.world.api.cache.follow()
        self.lagging = False

    def full(self) -> None:
        provider = self.rng.choice(self.world.providers)
        provider.full = {f"{provider.key.name}-a"} if self.rng.random() < 0.5 else set()

    def _drop_machines(self, *, force: bool) -> None:
        for kind in (THIS, THAT):
            if self.world.machine(kind=kind):
                self.world.api.drop(kind, VM, force=force)


NAMES = [name for name in vars(Accidents) if not name.startswith("_")]


def _assert_single(world: ControllerWorld) -> None:
    owners = Counter(vm.owner for vm in world.vms())
    assert all(count == 1 for count in owners.values()), world.vms()


@pytest.mark.parametrize("seed", range(30))
async def test_one_vm_whatever_happens(seed: int) -> None:
    rng = Random(seed)
    world = ControllerWorld.ready(one={"domains": ["a", "b"]}, two={"backend": "that"})
    world.add_vm()
    accidents = Accidents(world, rng)
    for _ in range(rng.randint(3, 10)):
        getattr(accidents, rng.choice(NAMES))()
        await world.settle(seconds=rng.choice([0, 0.5, 5] if accidents.lagging else [0, 0.5, 700]))
        _assert_single(world)
    for provider in world.providers:
        provider.down, provider.full = False, set()
    world.api.cache.follow()
    world.edit_vm(paused=False)
    world.restart()
    await _play_on(world)
    _assert_single(world)
    assert len(world.vms()) == len(world.machines()) == 1
    assert world.condition("Ready")["status"] == "True", world.status()
    world.delete_vm()
    await _play_on(world)
    assert world.vm() is None
    assert not world.machines()
    assert not world.vms()


async def _play_on(world: ControllerWorld) -> None:
    """Run to the end, with providers looking at all their machines again and the collector on."""
    for _ in range(4):
        for kind in (THIS, THAT):
            for provider in world.providers:
                if provider.kind == kind:
                    await provider.step(VM)
        await world.settle()
        world.api.collect_garbage()
