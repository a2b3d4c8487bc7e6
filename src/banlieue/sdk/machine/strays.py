"""Machines that nothing made: no VirtualMachine, and nothing of Cluster API. Pure."""

from banlieue.api import names
from banlieue.api.infrastructure.machine import Machine


def is_stray(machine: Machine) -> bool:
    """Whether the object was written by hand: nobody owns it, and it belongs to no Cluster."""
    return (
        machine.spec.virtual_machine_ref is None
        and not machine.metadata.labels.get(names.CAPI_LABEL_CLUSTER_NAME)
        and not any(owner.controller for owner in machine.metadata.owner_references)
    )


def no_cluster(machine: Machine) -> str:
    """Why a machine without the label of its Cluster is left alone, and what to do."""
    label = names.CAPI_LABEL_CLUSTER_NAME
    if is_stray(machine):
        return (
            f"no VirtualMachine or Machine owns this object, and it has no label {label}; nothing "
            "is made for it: delete it and create a VirtualMachine, which makes its own"
        )
    return (
        f"label {label} is missing, so its Cluster is unknown; label the machine with the name of "
        "its Cluster"
    )
