"""Hardware of a VM that exists: its size, its virtual hardware version, its PCI devices.

Most of it changes while the VM is off, so it is looked at before every start. Processors and memory
grow while it runs where that is enabled on the VM.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.places import placement
from banlieue.providers.vsphere.places.offers import Offers
from banlieue.providers.vsphere.places.placement import Plan
from banlieue.providers.vsphere.vms import shape
from banlieue.providers.vsphere.vms.machines import Live
from banlieue.providers.vsphere.watching.records import (
    CORES,
    CPU_HOT,
    MEMORY_HOT,
    MEMORY_MOST,
    MEMORY_STEP,
    SNAPSHOTS,
    VmRecord,
)
from banlieue.sdk.driver import Task
from banlieue.sdk.errors import InvalidSpec, NeedsOperator

if TYPE_CHECKING:
    from banlieue.providers.vsphere.vms.work import Work

VERSION = "config.version"
DEVICES = "config.hardware.device"

_ON, _OFF = "poweredOn", "poweredOff"
_RESTART = "CPUs and memory change only while the VM is off"


def hot(plan: Plan, live: Live) -> Any | None:  # noqa: ANN401 - a ConfigSpec
    """What to change while the VM runs so that it has its size; None when it has it.

    Raises:
        NeedsOperator: some of it can only change while the VM is off, so nothing does now.
    """
    record = live.record
    if not other_size(plan, record):
        return None
    if record.power != _ON:
        raise NeedsOperator(Reason.RESTART_REQUIRED, _RESTART)
    cpus = plan.cpus if record.cpus != plan.cpus else None
    memory = plan.memory_mib if record.memory_mib != plan.memory_mib else None
    if cpus is not None and not _may_add_cpus(plan, live):
        raise NeedsOperator(Reason.RESTART_REQUIRED, _RESTART)
    if memory is not None and not _may_add_memory(plan, live):
        raise NeedsOperator(Reason.RESTART_REQUIRED, _RESTART)
    return vim.vm.ConfigSpec(numCPUs=cpus, memoryMB=memory, changeVersion=record.change_version)


def _may_add_cpus(plan: Plan, live: Live) -> bool:
    """Processors come in whole sockets, whose size never changes while the VM runs."""
    wanted = shape.cores_per_socket(plan, live.found.get(CORES))
    same = wanted in {None, live.found.get(CORES)}
    return bool(live.found.get(CPU_HOT)) and plan.cpus > (live.record.cpus or 0) and same


def _may_add_memory(plan: Plan, live: Live) -> bool:
    added = plan.memory_mib - (live.record.memory_mib or 0)
    step, most = live.found.get(MEMORY_STEP) or 1, live.found.get(MEMORY_MOST)
    fits = added % step == 0 and (not most or plan.memory_mib <= most)
    return bool(live.found.get(MEMORY_HOT)) and added > 0 and fits


def other_size(plan: Plan, record: VmRecord) -> bool:
    """Whether processors or memory are not as planned."""
    return (record.cpus, record.memory_mib) != (plan.cpus, plan.memory_mib)


def cold(plan: Plan, live: Live) -> Any | None:  # noqa: ANN401 - a ConfigSpec
    """What to change while the VM is off so that it has its size; None when it has it."""
    record = live.record
    cores = shape.cores_per_socket(plan, live.found.get(CORES))
    cores = cores if cores != live.found.get(CORES) else None
    if not other_size(plan, record) and (cores is None or plan.spec.num_cores_per_socket is None):
        return None
    return vim.vm.ConfigSpec(
        numCPUs=plan.cpus if record.cpus != plan.cpus else None,
        numCoresPerSocket=cores,
        memoryMB=plan.memory_mib if record.memory_mib != plan.memory_mib else None,
        changeVersion=record.change_version,
    )


@dataclass(slots=True, kw_only=True)
class Preparing:
    """Takes the steps before a VM is started. Thread-safe."""

    work: "Work"
    offers: Offers

    def step(self, plan: Plan, live: Live) -> Task | None:
        """One step for a VM that is off; None when nothing is left to do before its start."""
        upgrade = shape.upgrade_to(plan, live.found.get(VERSION))
        moid = live.record.moid
        # What cannot be upgraded now is started as it is; `check_upgrade` tells why.
        if upgrade is not None and not live.found.get(SNAPSHOTS) and self._is_supported(plan):
            return self.work.start(
                moid, "upgrade", lambda managed: managed.UpgradeVM_Task(version=upgrade)
            )
        spec = cold(plan, live)
        if spec is not None:
            return self.work.reconfigure(moid, "reconfigure", spec)
        return self._late_devices(plan, live)

    def check_upgrade(self, plan: Plan, live: Live) -> None:
        """Raise why a VM that runs, or that has to stay off, has not its hardware version yet."""
        if shape.upgrade_to(plan, live.found.get(VERSION)) is None:
            return
        places = self.work.machines.places.get()
        self.offers.check_version(plan, placement.cluster_of(places, plan))
        if live.found.get(SNAPSHOTS):
            raise NeedsOperator(
                Reason.BLOCKED_BY_SNAPSHOT,
                "virtual hardware is not upgraded while the VM has snapshots; delete the snapshots",
            )
        if live.record.power != _OFF:
            raise NeedsOperator(
                Reason.RESTART_REQUIRED, "the hardware version changes only while the VM is off"
            )

    def _is_supported(self, plan: Plan) -> bool:
        places = self.work.machines.places.get()
        try:
            self.offers.check_version(plan, placement.cluster_of(places, plan))
        except InvalidSpec:
            return False
        return True

    def _late_devices(self, plan: Plan, live: Live) -> Task | None:
        """Add devices that are missing, such as those that need the upgraded hardware."""
        attached, labels = live.found.get(DEVICES) or (), plan.spec.pci_device_labels
        changes = shape.tpm(plan, attached)
        if labels:
            places = self.work.machines.places.get()
            offered = self.offers.pci(plan, placement.cluster_of(places, plan))
            changes += shape.pci_changes(labels, attached, offered)
        if not changes:
            return None
        spec = vim.vm.ConfigSpec(
            deviceChange=changes,
            memoryReservationLockedToMax=True if labels else None,
            changeVersion=live.record.change_version,
        )
        return self.work.reconfigure(live.record.moid, "reconfigure", spec)
