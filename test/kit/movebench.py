"""A move as a machine's provider meets it: the second object, the roles, the marks."""

from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Mark, Owner
from banlieue.sdk.kube import Key
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.simulated.records import Vm
from test.kit.machinebench import MACHINE, NAMESPACE, MachineBench

NEXT = Key(NAMESPACE, "db-1-m1")
OWNER = Owner("installation-1", OWNER_VIRTUAL_MACHINE, NAMESPACE, MACHINE.name)


def role(epoch: int, name: str) -> dict[str, object]:
    """A machine's `spec.move` or `status.move`."""
    return {"epoch": epoch, "role": name}


def make_next(bench: MachineBench, key: Key = NEXT, **spec: object) -> None:
    """The second object of a move, as the controller makes it: same owner, its own epoch."""
    first = bench.machine()
    owner = first["metadata"]["ownerReferences"]
    bench.api.edit(
        VIRTUAL_MACHINES,
        MACHINE,
        lambda obj: obj["status"].update(
            incomingRef={
                "apiGroup": SIMULATED_MACHINES.group,
                "kind": SIMULATED_MACHINES.kind,
                "name": key.name,
                "namespace": key.namespace,
            }
        ),
    )
    kept = ("providerRef", "placement", "virtualMachineRef", "imageRef", "cpus", "memoryMiB")
    body = {name: first["spec"][name] for name in (*kept, "disks", "networkInterfaces")}
    bench.api.put(
        SIMULATED_MACHINES,
        {
            "apiVersion": SIMULATED_MACHINES.api_version,
            "kind": SIMULATED_MACHINES.kind,
            "metadata": {
                "namespace": key.namespace,
                "name": key.name,
                "ownerReferences": owner,
            },
            "spec": {**body, "move": role(1, "Incoming"), **spec},
        },
    )


def vm_of(bench: MachineBench, key: Key = MACHINE) -> Vm:
    """The VM of a machine object."""
    uuid = bench.machine(key)["spec"]["instance"]["uuid"]
    return next(vm for vm in bench.vms() if vm.uuid == uuid)


def mark_of(vm: Vm) -> Mark:
    """The mark on a VM."""
    mark = Mark.decode(vm.mark)
    assert mark is not None
    return mark


def stage(vm: Vm) -> tuple[int, bool]:
    """Epoch of a VM's mark, and whether it is incoming."""
    mark = mark_of(vm)
    return mark.epoch, mark.incoming


def told(bench: MachineBench, key: Key = MACHINE) -> dict[str, object]:
    """What a machine's status tells of its mark."""
    found: dict[str, object] = bench.machine(key)["status"]["move"]
    return found


async def in_move(bench: MachineBench) -> None:
    """A machine that runs, and the target of its move beside it."""
    bench.make_machine()
    await bench.run()
    make_next(bench)
    await bench.run(NEXT)
    bench.clock.advance(5)
    await bench.run(NEXT)


async def moved(bench: MachineBench) -> None:
    """The move is over: the target is Current, the first VM is left behind."""
    await in_move(bench)
    bench.edit(NEXT, move=role(1, "Current"))
    await bench.run(NEXT)
    bench.edit(move=role(0, "Previous"), powerState="PoweredOff")
    await bench.run()


async def lose_objects(bench: MachineBench) -> None:
    """A cluster made anew from Git after a move: the VMs are there, and no machine object."""
    await moved(bench)
    for key in (MACHINE, NEXT):
        bench.delete(key, mode="Release")
        await bench.run(key)
    bench.restart()


def looks(bench: MachineBench) -> list[Vm]:
    """All VMs as they are now."""
    return [vm.model_copy(deep=True) for vm in bench.vms()]
