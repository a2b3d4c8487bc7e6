"""The driver's power to keep up tags and groups, and to have a VM join its groups before its start.

Nothing here keeps a VM from anything: what fails is told, and tried again.
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.places import placement
from banlieue.providers.vsphere.places.inventory import InventoryCache
from banlieue.providers.vsphere.places.placement import Plan
from banlieue.providers.vsphere.vms import beside
from banlieue.providers.vsphere.vms.grouping import Grouping
from banlieue.providers.vsphere.vms.spreading import Spreading
from banlieue.providers.vsphere.vms.tagging import Tagging
from banlieue.providers.vsphere.watching.records import Records
from banlieue.sdk.driver import MachineState, Task
from banlieue.sdk.errors import DriverError, Foreign
from banlieue.sdk.upkeep import GROUP, TAGS, Shortfall, Upkeep

JOIN = "join-"
"""What the handle of a VM that joins its groups before its start begins with."""

TIDY = "tidy-"
"""The same of a VM that is gone, and whose groups are being tidied."""

_PATIENCE = 30.0
"""Seconds a start waits for the groups of its VM."""

_TIDYING = 10.0
"""Seconds a deletion waits until what its VM left empty is taken away."""

_FAILED: tuple[type[Exception], ...] = (*faults.NATIVE, DriverError)


@dataclass(slots=True, kw_only=True)
class Keeping:
    """Keeps up what stands beside VMs. Thread-safe."""

    places: InventoryCache
    records: Records
    tagging: Tagging
    grouping: Grouping
    spreading: Spreading
    monotonic: Callable[[], float]
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _joining: dict[str, tuple[Plan, float]] = field(init=False, default_factory=dict)
    _given_up: set[str] = field(init=False, default_factory=set)
    _left: dict[str, float | None] = field(init=False, default_factory=dict)
    _leaving: dict[str, str] = field(init=False, default_factory=dict)
    _cleaned: bool = field(init=False, default=False)

    def keep_up(self, plan: Plan, seen: MachineState) -> Upkeep:
        """See `Upkeeper.keep_up`."""
        vm, uuid = seen.backend_id, (plan.ref.uuid or "").lower()
        if seen.uuid.lower() != uuid:
            raise Foreign("the VM has another UUID than this machine; it is left alone")
        self._clean_once(plan)
        steps: tuple[tuple[str, Callable[[], float | None]], ...] = (
            (TAGS, lambda: self.tagging.step(vm, uuid, plan.tags)),
            (GROUP, lambda: self._group(plan, vm)),
        )
        pauses: dict[str, float] = {}
        lacking: list[Shortfall] = []
        for name, step in steps:
            try:
                pause = step()
            except _FAILED as error:
                if name == GROUP and not _asks(plan):
                    continue  # it is looked at again when it is edited
                told = faults.driver_error(error, Reason.UPDATE_FAILED)
                lacking.append(Shortfall(name, told.reason, told.message))
                continue
            if pause is not None:
                pauses[name] = pause
        return Upkeep(min(pauses.values(), default=None), tuple(lacking), frozenset(pauses))

    def _clean_once(self, plan: Plan) -> None:
        """Take away what an earlier process left empty; what cannot be taken away stays."""
        self.grouping.belongs(plan.ref.owner.installation_id)
        if not _asks(plan):
            return
        with self._lock:
            cleaned, self._cleaned = self._cleaned, True
        if not cleaned:
            with contextlib.suppress(*_FAILED):
                self.grouping.clean(self.places.get().clusters)

    def _group(self, plan: Plan, vm: str) -> float | None:
        places = self.places.get()
        self.grouping.belongs(plan.ref.owner.installation_id)
        self.spreading.note(plan)
        record = self.records.get(vm)
        host = record.host if record is not None else None
        cluster = places.cluster_of(host) or placement.cluster_of(places, plan)
        wanted = beside.groups_of(plan, self.grouping.provider, cluster, host)
        return self.grouping.step(vm, cluster.id, wanted)

    # Before the start

    def before_start(self, plan: Plan, seen: MachineState) -> Task | None:
        """What a VM that is to be started waits for; None when it may be."""
        starts = seen.power is PowerState.POWERED_OFF and plan.power is PowerState.POWERED_ON
        vm = seen.backend_id
        if not starts or not _asks(plan) or plan.power_only:
            return None
        with self._lock:
            if vm in self._given_up:
                return None
            _, since = self._joining.setdefault(vm, (plan, self.monotonic()))
            self._joining[vm] = (plan, since)
        return self.poll(Task(JOIN + vm, "join"))

    def poll(self, task: Task) -> Task | None:
        """The task while groups are not as they should be, and there is patience left."""
        if task.handle.startswith(TIDY):
            return self.after_delete(task.handle.removeprefix(TIDY))
        vm = task.handle.removeprefix(JOIN)
        with self._lock:
            plan, since = self._joining.get(vm, (None, 0.0))
        if plan is None:
            return None
        pause: float | None = None
        failed = self.monotonic() - since >= _PATIENCE
        if not failed:
            try:
                pause = self._group(plan, vm)
            except _FAILED:
                failed = True  # told when the machine is kept up
        if pause is not None:
            return Task(task.handle, task.operation, pause)
        with self._lock:
            self._joining.pop(vm, None)
            if failed:
                self._given_up.add(vm)
        return None

    def leaves(self, uuid: str, vm: str) -> None:
        """A VM is being destroyed; not before that: one that is held keeps its groups."""
        if self.grouping.left(vm):
            with self._lock:
                self._left.setdefault(uuid.lower(), None)
                self._leaving[vm] = uuid.lower()
        self.spreading.left(uuid)

    def destroyed(self, vm: str) -> Task | None:
        """A VM was destroyed; what its deletion still waits for."""
        with self._lock:
            uuid = self._leaving.pop(vm, "")
        return self.after_delete(uuid)

    def after_delete(self, uuid: str) -> Task | None:
        """What a deletion waits for after its VM is gone; None for nothing, or no longer.

        Tidied by a deletion, which was allowed, and never by itself: a Provider may be paused.
        """
        key, now = uuid.lower(), self.monotonic()
        with self._lock:
            if key not in self._left:
                return None
            since = self._left[key] = self._left[key] or now
        pause: float | None = None
        if now - since < _TIDYING:
            with contextlib.suppress(*_FAILED):
                pause = self.grouping.tidy()
        if pause is not None:
            return Task(TIDY + key, "delete", pause)
        with self._lock:
            self._left.pop(key, None)
        return None


def _asks(plan: Plan) -> bool:
    """Whether the machine is to be in any group."""
    return plan.spec.anti_affinity_group is not None or beside.host_group(plan) is not None
