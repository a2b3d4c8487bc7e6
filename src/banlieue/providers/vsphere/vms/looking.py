"""Reads of single VMs with all that a step needs to know; those that are asked together share one.

A read that nobody else asks for goes out at once. While several are wanted, those that come during
a read, or during a short rest before it, are answered by the next one.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.pace import Pace
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import Found, moid, property_spec, step, walk_from
from banlieue.providers.vsphere.client.transport import Unreadable
from banlieue.providers.vsphere.vms.obstacles import DISABLED
from banlieue.providers.vsphere.watching.records import DETAILS, HARDWARE, SNAPSHOTS, WATCHED
from banlieue.sdk.errors import Transient

_TASKS = "recentTask"
_STEPS = (step(vim.VirtualMachine, _TASKS),)
_STEP = 0.05
_LONGEST = 0.5
"""While much goes on: how fast the rests between reads grow, and up to how many seconds."""
_PLENTY = 7
"""How many reads wait for company no longer: each holds a thread."""


@dataclass(frozen=True, slots=True)
class Look:
    """A VM as it was read, and its recent tasks; `vm` None says that nothing of it may be read."""

    vm: Found | None
    tasks: tuple[Found, ...] = ()


@dataclass(slots=True)
class _Wish:
    key: str
    look: Look | None = None
    error: Exception | None = None


@dataclass(slots=True)
class Looks:
    """Reads VMs. Thread-safe."""

    session: Session
    monotonic: Callable[[], float]
    busy: Callable[[], bool]
    """Whether others may ask, too, so that it is worth to wait for them."""
    _pace: Pace = field(init=False)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _reading: threading.Lock = field(init=False, default_factory=threading.Lock)
    _plenty: threading.Event = field(init=False, default_factory=threading.Event)
    _wishes: list[_Wish] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._pace = Pace(self.monotonic, _STEP, _LONGEST)

    def at(self, key: str) -> Look:
        """A VM by its managed object id, from a read that began after this call.

        Raises what the vendor library raises; `ManagedObjectNotFound` says that this id is gone.
        """
        wish = _Wish(key)
        with self._lock:
            self._wishes.append(wish)
            if len(self._wishes) >= _PLENTY:
                self._plenty.set()
        with self._reading:
            if wish.look is None and wish.error is None:
                self._read()
        if wish.error is not None:
            # The same one may be raised in several threads.
            raise wish.error.with_traceback(None)
        return wish.look or Look(None)

    def many(self, keys: Collection[str]) -> Mapping[str, Look | Exception]:
        """VMs by their ids, read now together; of each its look, or why there is none."""
        with self._reading:
            self._pace.note()
            return self._looks(keys)

    def _read(self) -> None:
        if self.busy():
            self._plenty.wait(self._pace.rest())
        self._pace.note()
        with self._lock:
            wishes, self._wishes = self._wishes, []
            self._plenty.clear()
        try:
            found = self._looks({wish.key for wish in wishes})
        # Whatever it is belongs to all who wait for this read; raised to each of them.
        except BaseException as error:
            for wish in wishes:
                wish.error = error if isinstance(error, Exception) else ConnectionAbortedError()
            if not isinstance(error, Exception):
                raise
            return
        for wish in wishes:
            answer = found[wish.key]
            if isinstance(answer, Look):
                wish.look = answer
            else:
                wish.error = answer

    def _looks(self, keys: Collection[str]) -> Mapping[str, Look | Exception]:
        """Of each VM its look, or why there is none."""
        answers: dict[str, Look | Exception] = {}
        left = set(keys)
        while left:
            try:
                return answers | self._together(left)
            except vmodl.fault.ManagedObjectNotFound as error:
                # It may as well be the session's collector, or a task that was just forgotten.
                gone = moid(error.obj)
                if gone not in left:
                    raise _torn() from error
                answers[gone] = error
                left.discard(gone)
            except (vmodl.MethodFault, Unreadable) as error:
                if len(left) == 1 or isinstance(error, vim.fault.NotAuthenticated):
                    raise
                # What one of them makes impossible is no matter of the others.
                return answers | {key: self._alone(key) for key in left}
        return answers

    def _alone(self, key: str) -> Look | Exception:
        try:
            return self._together({key})[key]
        except vim.fault.NotAuthenticated:
            raise
        except (vmodl.MethodFault, Unreadable) as error:
            return error

    def _together(self, keys: Collection[str]) -> dict[str, Look | Exception]:
        wanted = (
            property_spec(
                vim.VirtualMachine, (*WATCHED, *DETAILS, *HARDWARE, SNAPSHOTS, DISABLED, _TASKS)
            ),
            property_spec(vim.Task, ("info.state", "info.descriptionId")),
        )
        found = walk_from(self.session, sorted(keys), vim.VirtualMachine, _STEPS, wanted)
        vms = {item.moid: item for item in found if item.moid in keys}
        tasks = {item.moid: item for item in found if item.kind == "Task"}
        return {key: _look(vms.get(key), tasks) for key in keys}


def _torn() -> Transient:
    return Transient(Reason.PROVIDER_BUSY, "something of the VM went while it was read; once more")


def _look(vm: Found | None, tasks: Mapping[str, Found]) -> Look:
    recent = vm.refs(_TASKS) if vm is not None else ()
    return Look(vm, tuple(tasks[key] for key in recent if key in tasks))
