"""Everybody who is there, from what a cache or a snapshot knows. Pure."""

from collections.abc import Iterator

from banlieue.api.resources import VIRTUAL_MACHINES, VM_CLASSES
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.api.v1alpha1.vmclass import VMClass
from banlieue.controller.scheduling import facts
from banlieue.controller.scheduling.placement import Resident
from banlieue.sdk.kube import Key, ObjectReader


def residents(reader: ObjectReader, installation_id: str) -> Iterator[Resident]:
    """Every VirtualMachine as the others' neighbour; those that are nowhere yet included."""
    classes = {Key.of(obj).name: VMClass.from_api(obj) for obj in reader.list(VM_CLASSES)}
    for obj in reader.list(VIRTUAL_MACHINES):
        vm = VirtualMachine.from_api(obj)
        used = classes.get(vm.spec.class_ref.name) if vm.spec.class_ref else None
        yield facts.resident(vm, used, installation_id=installation_id)
