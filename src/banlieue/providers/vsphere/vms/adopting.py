"""How VMs that exist already are looked at and taken over.

Which disks and cards a VM had when it was taken over, and the names they got, is written on it
beside the mark and in the same call. Disks that are not the VM's own (first class disks, disks of
other VMs that a backup attached) get no name, so they stay somebody else's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import Found, property_spec, read_one, walk
from banlieue.providers.vsphere.hardware import cards, devices
from banlieue.providers.vsphere.places.inventory import Inventory, InventoryCache
from banlieue.providers.vsphere.vms.beside import TAGS_KEY
from banlieue.providers.vsphere.vms.machines import Live, Machines
from banlieue.providers.vsphere.vms.work import Work
from banlieue.providers.vsphere.watching.census import VM_STEPS
from banlieue.providers.vsphere.watching.records import (
    DETAILS,
    DISKS,
    DISKS_KEY,
    KEPT_KEY,
    MARK_KEY,
    NICS,
    NICS_KEY,
    WATCHED,
    VmRecord,
    machine_state,
    read_details,
)
from banlieue.sdk.driver import MachineRef, Task
from banlieue.sdk.errors import Foreign, InvalidSpec, Transient
from banlieue.sdk.identity import Mark, valid_mark
from banlieue.sdk.naming import disk_names, interface_names
from banlieue.sdk.powers import Candidate

_DEVICES = "config.hardware.device"
_ABOUT = ("config.uuid", "config.firmware", "config.template", "parent")


@dataclass(frozen=True, slots=True)
class _Names:
    """What the disks of a VM, by slot, and its cards, by MAC address, are called."""

    slots: dict[str, str]
    cards: dict[str, str]


@dataclass(slots=True, kw_only=True)
class Adopting:
    """Finds VMs nobody marked, and marks them. Thread-safe."""

    session: Session
    machines: Machines
    work: Work
    places: InventoryCache
    monotonic: Callable[[], float]

    def find(self, instance_uuid: str) -> Candidate | None:
        """The VM of an instance UUID, read now.

        Raises:
            InvalidSpec: it is a template.
            Foreign: several VMs have that UUID.
        """
        live = self.machines.by_uuid(instance_uuid)
        if live is None:
            return None
        vm = live.record.moid
        try:
            about = read_one(self.session, vm, vim.VirtualMachine, _ABOUT)
        except vmodl.fault.ManagedObjectNotFound:
            return None
        found = replace(live.found, values={**live.found.values, **about.values})
        candidate = self._candidate(found, self.places.get())
        if candidate is not None and candidate.template:
            raise InvalidSpec(
                Reason.INVALID_CONFIGURATION,
                "spec.adopt.id is the id of a template; name it in a VMImage instead",
            )
        return candidate

    def candidates(self) -> Sequence[Candidate]:
        """Every VM and template the session can see, in one walk."""
        root = self.session.login.content.root_folder
        wanted = (property_spec(vim.VirtualMachine, (*WATCHED, *DETAILS, *_ABOUT)),)
        places = self.places.get()
        seen = walk(self.session, root, vim.Folder, VM_STEPS, wanted)
        return [it for found in seen if (it := self._candidate(found, places)) is not None]

    def _candidate(self, found: Found, places: Inventory) -> Candidate | None:
        """The VM of a reply, None for one the vCenter itself knows nothing of at the moment."""
        record = VmRecord(found.moid)
        for path in WATCHED:
            record.set(path, found.get(path))
        if not record.readable:
            return None
        names, attached = _names(found, record.name), found.get(_DEVICES) or ()
        path = found.get("config.files.vmPathName") or ""
        record.details = replace(
            read_details(record, found, self.monotonic()),
            disks=devices.disk_states(attached, names.slots, path, record.name),
            lost_disks=(),
            nics=cards.states(attached, names.cards, running=record.power == "poweredOn"),
        )
        state = machine_state(record, places)
        folder = found.ref("parent")
        datacenter = places.datacenter_of(folder)
        steps = (*((datacenter.name,) if datacenter else ()), *places.path(folder), record.name)
        return Candidate(
            id=state.uuid,
            state=state,
            hardware_uuid=(found.get("config.uuid") or state.uuid).lower(),
            firmware=found.get("config.firmware"),
            template=bool(found.get("config.template")),
            path="/".join(steps),
        )

    def take_over(self, ref: MachineRef, mark: Mark) -> Task | None:
        """Write mark and names, unless they stand there.

        The call is refused by the vCenter when the VM was reconfigured since it was looked at, so
        of two who do this at once one fails.

        Raises:
            Foreign: the VM is marked as somebody else's.
            Transient: it is not there.
        """
        live = self.machines.by_uuid(ref.uuid or "")
        if live is None:
            raise Transient(Reason.PROVIDER_BUSY, "the VM is gone; it is looked for again")
        if _is_taken(live, mark):
            return None
        busy = self.work.busy(live)
        if busy is not None:
            return busy
        names = _names(live.found, live.record.name)
        written = {
            MARK_KEY: mark.encode(),
            DISKS_KEY: devices.encode_slots(names.slots),
            NICS_KEY: cards.encode(names.cards),
        }
        if not valid_mark(Mark.decode(live.record.mark), live.record.uuid or ""):
            # A copy of a VM of ours has its notes; they speak of the other one's disks and tags.
            written |= {KEPT_KEY: "", TAGS_KEY: ""}
        spec = vim.vm.ConfigSpec(
            extraConfig=[vim.option.OptionValue(key=k, value=v) for k, v in written.items()],
            changeVersion=live.record.change_version,
        )
        return self.work.start(
            live.record.moid, "take-over", lambda managed: managed.ReconfigVM_Task(spec=spec)
        )


def _is_taken(live: Live, mark: Mark) -> bool:
    """Whether the VM has that very mark; raises `Foreign` when it has another valid one."""
    present = Mark.decode(live.record.mark)
    if present is None or not valid_mark(present, live.record.uuid or ""):
        return False
    if (present.owner, present.epoch) != (mark.owner, mark.epoch):
        raise Foreign(
            f"VM {live.record.name} belongs to somebody else by its mark; it is left alone"
        )
    return present == mark


def _names(found: Found, vm_name: str) -> _Names:
    attached: Sequence[Any] = found.get(_DEVICES) or ()
    option, path = found.get(DISKS), found.get("config.files.vmPathName") or ""
    known = devices.decode_slots(getattr(option, "value", None))
    slots = devices.own_slots(attached, path, vm_name)
    disks = disk_names([known.get(slot) for slot in slots])
    written = cards.decode(getattr(found.get(NICS), "value", None)) or {}
    states = cards.states(attached, written) or ()
    nics = [nic for nic in states if nic.mac_address]
    called = interface_names([nic.name for nic in nics])
    return _Names(
        slots=dict(zip(slots, disks, strict=True)),
        cards={nic.mac_address or "": name for nic, name in zip(nics, called, strict=True)},
    )
