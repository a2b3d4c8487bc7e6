"""A machine bench with VMs that somebody made long ago, and machine objects that adopt them."""

from typing import Any

from banlieue.api import names
from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.simulated.records import Vm
from test.kit.machinebench import MACHINE, NAMESPACE, PROVIDER, MachineBench

OTHER = Key(NAMESPACE, "db-2")
MADE_FOR_A_CREATE = ("imageRef", "cpus", "memoryMiB", "disks", "networkInterfaces", "placement")
ALLOWED = {"adoption": {"allowedNamespaces": {"from": "All"}}}


def policy(bench: MachineBench, value: dict[str, Any]) -> None:
    bench.api.edit(PROVIDERS, PROVIDER, lambda obj: obj["spec"].update(policy=value))


def existing(bench: MachineBench, name: str = "legacy", **how: object) -> Vm:
    """A VM that somebody made long ago: one CPU, 1024 MiB, a disk, an interface."""
    bench.control("make_foreign", name=name, domain="domain-a", **how)
    (vm,) = [vm for vm in bench.vms() if vm.name == name]
    return vm


def adopting(
    bench: MachineBench,
    vm_id: str,
    key: Key = MACHINE,
    *,
    accepted: bool = False,
    **spec: Any,  # noqa: ANN401 - JSON
) -> None:
    """A machine object as the controller makes it for a VirtualMachine that adopts."""
    adopt = {"id": vm_id, **({"accepted": True} if accepted else {})}
    bench.make_machine(key, adopt=adopt, **spec)

    def bare(obj: Obj) -> None:
        for name in set(MADE_FOR_A_CREATE) - set(spec):
            obj["spec"].pop(name)

    bench.api.edit(SIMULATED_MACHINES, key, bare)
    bench.api.edit(VIRTUAL_MACHINES, key, lambda obj: obj.update(spec={"adopt": {"id": vm_id}}))


def accept(bench: MachineBench, key: Key = MACHINE) -> None:
    adopt = bench.machine(key)["spec"]["adopt"]
    bench.edit(key, adopt={**adopt, "accepted": True})


def hold_owner(bench: MachineBench) -> None:
    """Keep the VirtualMachine there while it is being deleted, as its controller does."""
    bench.api.edit(
        VIRTUAL_MACHINES,
        MACHINE,
        lambda obj: obj["metadata"].update(finalizers=[names.FINALIZER_VIRTUAL_MACHINE]),
    )


def snapshot(bench: MachineBench) -> list[dict[str, Any]]:
    """All VMs with everything that is not the guest's own doing."""
    passing = {"guest_due", "guest_up"}
    return [vm.model_dump(exclude=passing) for vm in bench.vms()]


def ready_message(bench: MachineBench, key: Key = MACHINE) -> str:
    found = bench.machine(key)["status"]["conditions"]
    return next(str(it["message"]) for it in found if it["type"] == "Ready")
