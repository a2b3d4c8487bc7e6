"""Marks that are rewritten in a move, and the VMs of one owner."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.vms.machines import Machines
from banlieue.providers.vsphere.vms.work import Work
from banlieue.providers.vsphere.watching.records import MARK_KEY
from banlieue.sdk.driver import MachineRef, MachineState, Task
from banlieue.sdk.errors import Foreign, Transient
from banlieue.sdk.identity import Mark, Owner, may_replace, valid_mark


@dataclass(slots=True, kw_only=True)
class Marking:
    """Rewrites marks and finds VMs by them. Thread-safe."""

    machines: Machines
    work: Work

    def made_for(self, owner: Owner) -> Sequence[MachineState]:
        """Every VM that carries, now, a valid mark of an owner.

        Nothing is asked where the census, as read and learnt since, knows none but those watched.
        """
        return self.machines.of_owner(owner)

    def write(self, ref: MachineRef, mark: Mark) -> Task | None:
        """Write a mark in place of the one that stands there; None when it does already.

        The vCenter refuses the call when the VM was reconfigured since it was looked at.

        Raises:
            Foreign: the VM has no mark that this one may follow.
            Transient: the VM is not there.
        """
        live = self.machines.by_uuid(ref.uuid or "")
        if live is None:
            raise Transient(Reason.PROVIDER_BUSY, "the VM is gone; it is looked for again")
        record = live.record
        present = Mark.decode(record.mark)
        if present == mark:
            return None
        if not valid_mark(present, record.uuid or "") or not may_replace(present, mark):
            raise Foreign(
                f"the mark of VM {record.name} is not one that this machine may change; "
                "it is left alone"
            )
        busy = self.work.busy(live)
        if busy is not None:
            return busy
        spec = vim.vm.ConfigSpec(
            extraConfig=[vim.option.OptionValue(key=MARK_KEY, value=mark.encode())],
            changeVersion=record.change_version,
        )
        return self.work.start(
            record.moid, "write-mark", lambda managed: managed.ReconfigVM_Task(spec=spec)
        )
