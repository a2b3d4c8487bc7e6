"""Where the work of earlier calls stands: tasks of the vCenter, and whatever else is waited for."""

from dataclasses import dataclass

from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.creates import Creates, Stage
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import moid
from banlieue.providers.vsphere.hardware.diskwork import MOVES
from banlieue.providers.vsphere.vms.keeping import JOIN, TIDY, Keeping
from banlieue.providers.vsphere.vms.making import CREATE, SLOT, Making
from banlieue.providers.vsphere.vms.restarts import REBOOT, Restarts
from banlieue.providers.vsphere.vms.work import SHUTDOWN, Work
from banlieue.providers.vsphere.watching.watcher import Watcher
from banlieue.providers.vsphere.watching.watchlist import RUNNING, TaskRecord, read_task
from banlieue.sdk.driver import Task
from banlieue.sdk.errors import DriverError, Transient


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """Asks whoever started a task, by its handle."""

    session: Session
    watcher: Watcher
    creates: Creates
    making: Making
    restarts: Restarts
    keeping: Keeping
    work: Work

    def poll(self, task: Task, otherwise: Reason) -> Task | None:
        """The task while it runs; raises what it failed with, `otherwise` where no fault tells."""
        if task.handle.startswith((JOIN, TIDY)):
            return self.keeping.poll(task)
        if task.handle.startswith(SLOT):
            return self.making.poll_slot(task)
        if task.handle.startswith(REBOOT):
            return self.restarts.poll(task)
        if task.handle.startswith(SHUTDOWN):
            return self.work.poll_shutdown(task)
        told = self._told(task.handle)
        if told is not None and told.state in RUNNING:
            return self.work.still(task)
        return self._ended(task, told, otherwise)

    def is_running(self, task: str) -> bool:
        """Whether a task of the vCenter goes on."""
        told = self._told(task)
        return told is not None and told.state in RUNNING

    def _told(self, task: str) -> TaskRecord | None:
        return self.watcher.task(task) or read_task(self.session, task)

    def _ended(self, task: Task, told: TaskRecord | None, otherwise: Reason) -> Task | None:
        create = self.creates.of_task(task.handle)
        if told is not None and told.error is not None:
            if create is not None and create.stage is Stage.RUNNING:
                return self.making.failed(create, told.error, task)
            self.work.over(task.handle)
            if create is not None and create.stage is Stage.MADE:
                return None
            if task.operation == CREATE and isinstance(told.error, vim.fault.DuplicateName):
                raise Transient(
                    Reason.PROVIDER_BUSY, "the VM's name is taken; its holder is looked for"
                )
            if task.operation in MOVES and isinstance(told.error, vim.fault.FileAlreadyExists):
                # An earlier call whose answer was late has moved it: ids of kept disks are random.
                raise Transient(
                    Reason.PROVIDER_BUSY, "the disk lies there already; it is looked at again"
                )
            raise _failure(told.error, otherwise)
        if create is not None and create.vm is None and told is not None and told.result:
            self.making.succeeded(create, moid(told.result))
        vm = self.work.vm_of(task.handle)
        self.watcher.ends.overlooked(task.handle)
        self.work.over(task.handle)
        return self.keeping.destroyed(vm) if told is not None else None


def _failure(error: vmodl.MethodFault, otherwise: Reason) -> DriverError:
    """What a task failed with; a vCenter not let in at a host says nothing of our login."""
    told = faults.driver_error(error, otherwise)
    if told.reason not in {Reason.PROVIDER_AUTH_FAILED, Reason.PROVIDER_TLS_INVALID}:
        return told
    return Transient(
        otherwise, "the vCenter was not let in where its task went; tried again", native=told.native
    )
