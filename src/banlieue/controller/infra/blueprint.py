"""The infrastructure machine of a VirtualMachine as plain data, and what of it may change. Pure."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from banlieue.api import names
from banlieue.api.infrastructure.machine import (
    ClassSnapshot,
    DataFormat,
    Machine,
    MachineAdopt,
    MachineDriftPolicy,
    MachineNetworkData,
    MachinePlacement,
    MachineSpec,
    MachineUserData,
    Move,
    MoveRole,
    VirtualMachineRef,
)
from banlieue.api.meta import NameRef, NamespacedRef, Resource
from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.api.v1alpha1.vmclass import Hardware, VMClass
from banlieue.api.v1alpha1.vmimage import BootstrapFormat, VMImage
from banlieue.controller.infra import devices
from banlieue.controller.scheduling.facts import class_hash
from banlieue.controller.scheduling.placement import TOPOLOGY_HOST, Place
from banlieue.controller.vm.removed_disks import removed_disks
from banlieue.sdk.kube import Key, Obj

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

LIVING = (
    "powerState",
    "powerOffMode",
    "powerOffTimeoutSeconds",
    "restartAt",
    "driftPolicy",
    "class",
    "disks",
    "removedDisks",
    "networkInterfaces",
    "antiAffinityGroup",
    "tags",
    "adopt",
    "paused",
    "deletionProtection",
)
"""Fields of the machine's spec that follow the VirtualMachine for life."""

FIRST_BOOT = ("hostname", "userData", "networkData", "sshAuthorizedKeys")
"""Fields that follow it until the machine was seen on the backend; they matter once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a machine is made from.

    `power` is what a move makes of its power state, None where that is the user's. `name` is that
    of the object to be made: it tells in which move it was made first, whatever its epoch is now.
    """

    vm: VirtualMachine
    place: Place
    snapshot: ClassSnapshot | None
    image: VMImage | None = None
    provider: Provider | None = None
    epoch: int = 0
    current: Machine | None = None
    role: MoveRole = MoveRole.CURRENT
    power: PowerState | None = None
    name: str = ""


def snapshot(vm_class: VMClass) -> ClassSnapshot:
    """The class's content as it is now."""
    spec = vm_class.spec
    return ClassSnapshot(
        name=vm_class.metadata.name,
        uid=vm_class.metadata.uid,
        hash=class_hash(spec),
        hardware=spec.hardware,
        network=spec.network,
        firmware=spec.firmware,
        features=spec.features,
    )


def remembered_snapshot(vm: VirtualMachine, vm_class: VMClass) -> ClassSnapshot:
    """The class for a machine object that is made again.

    The old object took its snapshot along. Where the class was edited since, processors, memory
    and sizes of disks stay what the machine has, because a class edit never touches it.
    """
    fresh = snapshot(vm_class)
    scheduled, resources = vm.status.scheduled, vm.status.resources
    used = scheduled.class_ if scheduled else None
    if used is None or resources is None or used.name != fresh.name or used.hash == fresh.hash:
        return fresh
    sizes = {disk.name: disk.size_gib for disk in resources.disks}
    known = fresh.hardware
    hardware = Hardware(
        cpus=resources.cpus or known.cpus,
        memory_mib=resources.memory_mib or known.memory_mib,
        disks=[
            disk.model_copy(update={"size_gib": sizes.get(disk.name) or disk.size_gib})
            for disk in known.disks
        ],
    )
    return fresh.model_copy(update={"hash": used.hash or fresh.hash, "hardware": hardware})


def machine_object(plan: Plan, kind: Resource, *, name: str) -> Obj:
    """The object to POST under that name: all that is known, in one write."""
    vm, key = plan.vm, Key(plan.vm.metadata.namespace or "", plan.vm.metadata.name)
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "namespace": key.namespace,
            "labels": labels(vm, plan.place.provider),
            "ownerReferences": [owner_reference(vm)],
        },
        "spec": machine_spec(replace(plan, name=name)),
    }


def machine_name(vm: VirtualMachine, epoch: int) -> str:
    """The VirtualMachine's own name; later machines of a moved one carry their epoch."""
    return f"{vm.metadata.name}-m{epoch}" if epoch else vm.metadata.name


def owner_reference(vm: VirtualMachine) -> dict[str, Any]:
    """The controller reference that ties a machine to its VirtualMachine."""
    return {
        "apiVersion": VIRTUAL_MACHINES.api_version,
        "kind": VIRTUAL_MACHINES.kind,
        "name": vm.metadata.name,
        "uid": vm.metadata.uid or "",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def labels(vm: VirtualMachine, provider: Key) -> dict[str, str]:
    """The VirtualMachine's labels and two for people; a name too long for a label is left out."""
    ours = {names.LABEL_OWNED_BY: vm.metadata.name, names.LABEL_PROVIDER: provider.name}
    return dict(vm.metadata.labels) | {
        label: value for label, value in ours.items() if _LABEL_VALUE.fullmatch(value)
    }


def machine_spec(plan: Plan) -> dict[str, Any]:
    """The common spec with everything a VirtualMachine, its class and its place say."""
    vm, spec, place = plan.vm, plan.vm.spec, plan.place
    current = plan.current.spec.network_interfaces if plan.current else ()
    return MachineSpec(
        provider_ref=NamespacedRef(name=place.provider.name, namespace=place.provider.namespace),
        placement=MachinePlacement(failure_domain=place.domain) if place.domain else None,
        virtual_machine_ref=VirtualMachineRef(name=vm.metadata.name, uid=vm.metadata.uid),
        move=Move(epoch=plan.epoch, role=plan.role) if plan.epoch else None,
        class_=plan.snapshot,
        image_ref=spec.image_ref,
        hostname=spec.hostname,
        disks=list(spec.disks),
        network_interfaces=devices.machine_interfaces(spec.network_interfaces, current),
        anti_affinity_group=anti_affinity_group(vm),
        tags=tags(vm, plan.provider),
        power_state=plan.power or spec.wanted_power_state,
        power_off_mode=spec.power_off_mode,
        power_off_timeout_seconds=spec.power_off_timeout_seconds,
        restart_at=spec.restart_at,
        removed_disks=removed_disks(vm, plan.snapshot, plan.current),
        drift_policy=MachineDriftPolicy(
            power=spec.drift_policy.power, hardware=spec.drift_policy.hardware
        ),
        adopt=_adopt(plan),
        paused=True if spec.paused else None,
        deletion_protection=True if spec.deletion_protection else None,
        user_data=_user_data(vm, plan.image),
        network_data=_network_data(vm),
        ssh_authorized_keys=list(spec.ssh_authorized_keys),
    ).to_api()


def changes(wanted: Mapping[str, Any], present: Mapping[str, Any], *, seen: bool) -> list[Any]:
    """JSON patch operations that bring a machine's spec up to date; empty when it is.

    Args:
        wanted: the spec as `machine_spec` computes it now.
        present: the spec as it stands in the API.
        seen: whether the machine was seen on the backend, after which first-boot data is fixed.
    """
    ops: list[dict[str, Any]] = []
    for name in LIVING if seen else (*LIVING, *FIRST_BOOT):
        if name in wanted and wanted[name] != present.get(name):
            ops.append({"op": "add", "path": f"/spec/{name}", "value": wanted[name]})
        elif name not in wanted and name in present:
            ops.append({"op": "remove", "path": f"/spec/{name}"})
    return ops


def tags(vm: VirtualMachine, provider: Provider | None) -> dict[str, str]:
    """Tags on the backend, from the labels the Provider maps."""
    mapping = provider.spec.tag_mapping if provider else ()
    present = vm.metadata.labels
    return {entry.tag: present[entry.label] for entry in mapping if entry.label in present}


def anti_affinity_group(vm: VirtualMachine) -> str | None:
    """One name for all machines that keep to different hosts by the same term."""
    for term in vm.spec.placement.anti_affinity:
        if term.topology_key == TOPOLOGY_HOST and term.label_selector.matches(vm.metadata.labels):
            text = json.dumps([vm.metadata.namespace, term.label_selector.to_api()], sort_keys=True)
            return hashlib.sha256(text.encode()).hexdigest()[:16]
    return None


def _adopt(plan: Plan) -> MachineAdopt | None:
    """An adopted machine that is moved is one that was built for it, until it is moved back."""
    given, current, vm = plan.vm.spec.adopt, plan.current, plan.vm
    first = machine_name(vm, 0) == plan.name if plan.name else not plan.epoch
    adopts = current.spec.adopt is not None if current is not None else first
    if given is None or not adopts:
        return None
    accepted = current.spec.adopt.accepted if current and current.spec.adopt else False
    return MachineAdopt(id=given.id, accepted=given.accepted or bool(accepted))


def _user_data(vm: VirtualMachine, image: VMImage | None) -> MachineUserData | None:
    given = vm.spec.user_data
    if given is None:
        return None
    ignition = image is not None and image.spec.bootstrap is BootstrapFormat.IGNITION
    return MachineUserData(
        secret_ref=NameRef(name=given.secret_ref.name),
        key=given.key,
        format=DataFormat.IGNITION if ignition else DataFormat.CLOUD_CONFIG,
    )


def _network_data(vm: VirtualMachine) -> MachineNetworkData | None:
    given = vm.spec.network_data
    if given is None:
        return None
    return MachineNetworkData(secret_ref=NameRef(name=given.secret_ref.name), key=given.key)
