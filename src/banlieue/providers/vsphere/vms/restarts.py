"""Restarts of VMs: by their guest, and by a reset where the guest cannot or does not.

Neither a reset nor a guest that restarts changes the boot time a vCenter tells, so the guest's
agent is watched: it went down, so the guest obeyed. Where the watch was interrupted meanwhile it
may have missed that. The guest is taken to have obeyed then: a reset would hit one that did.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerOffMode
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.places.placement import Plan
from banlieue.providers.vsphere.vms.machines import Machines
from banlieue.providers.vsphere.vms.work import Work
from banlieue.providers.vsphere.watching.records import Records, VmRecord
from banlieue.providers.vsphere.watching.watcher import Watcher
from banlieue.sdk.driver import RESTART, Task
from banlieue.sdk.errors import Transient

REBOOT = "reboot-"
"""What the handle of a guest's restart begins with; the vCenter has no task for it."""

_SOON = 2.0


@dataclass(frozen=True, slots=True)
class _Asked:
    """A guest that was asked to restart, how often it had gone down before, and in which watch."""

    mode: PowerOffMode
    until: float
    downs: int
    builds: int


@dataclass(slots=True, kw_only=True)
class Restarts:
    """Starts restarts and tells when they are done. Thread-safe."""

    session: Session
    records: Records
    watcher: Watcher
    machines: Machines
    work: Work
    monotonic: Callable[[], float]
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _asked: dict[str, _Asked] = field(init=False, default_factory=dict)

    def restart(self, plan: Plan, backend_id: str) -> Task | None:
        """Restart a VM that is on, as its plan's power-off mode says."""
        live = self.work.own(plan, backend_id)
        busy = self.work.busy(live)
        if busy is not None:
            return busy
        vm = live.record.moid
        if plan.power_off_mode is PowerOffMode.HARD:
            return self._reset(vm)
        downs, builds = live.record.downs, self.watcher.builds
        try:
            self.session.run(lambda login: vim.VirtualMachine(vm, login.ops).RebootGuest())
        except vim.fault.ToolsUnavailable:
            if plan.power_off_mode is not PowerOffMode.TRY_SOFT:
                raise
            return self._reset(vm)
        until = self.monotonic() + plan.power_off_timeout
        with self._lock:
            self._asked[vm] = _Asked(plan.power_off_mode, until, downs, builds)
        return Task(REBOOT + vm, RESTART, _SOON)

    def poll(self, task: Task) -> Task | None:
        """Whether a guest that was asked to restart did so; the reset that follows if it did not.

        A guest that an earlier process asked is taken to have obeyed.

        Raises:
            Transient: it did not in time, and the mode does not allow to reset the VM.
        """
        vm = task.handle.removeprefix(REBOOT)
        with self._lock:
            asked = self._asked.get(vm)
        if asked is None:
            return None
        record = self._record(vm)
        down = record is None or not record.running or record.downs != asked.downs
        down = down or self.watcher.builds != asked.builds
        if not down and self.monotonic() < asked.until:
            return Task(task.handle, task.operation, _SOON)
        with self._lock:
            self._asked.pop(vm, None)
        if down:
            return None
        if asked.mode is PowerOffMode.TRY_SOFT:
            return self._reset(vm)
        raise Transient(
            Reason.SHUTDOWN_TIMED_OUT,
            "the guest did not restart in time; look at its console or use powerOffMode Hard",
        )

    def _record(self, vm: str) -> VmRecord | None:
        record = self.records.get(vm) if self.watcher.healthy else None
        if record is None or record.dirty:
            live = self.machines.by_id(vm)
            record = live.record if live else None
        return record

    def _reset(self, vm: str) -> Task:
        return self.work.start(vm, RESTART, lambda managed: managed.ResetVM_Task())
