"""Making VMs: one clone call per machine, whatever happens to its reply.

No token makes a clone idempotent. The name in the folder is the lock, the instance UUID says whose
the VM is; a call whose fate is unknown is never repeated before the vCenter was searched for both.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.creates import Create, Creates, Stage
from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.soap import find_by_uuid, moid
from banlieue.providers.vsphere.client.transport import may_have_arrived, operation
from banlieue.providers.vsphere.places.placement import Plan
from banlieue.providers.vsphere.vms import clone
from banlieue.providers.vsphere.vms.clone import Clone
from banlieue.providers.vsphere.vms.outfit import Outfit
from banlieue.providers.vsphere.vms.work import Work
from banlieue.providers.vsphere.watching import coming
from banlieue.providers.vsphere.watching.census import Census, Entry
from banlieue.providers.vsphere.watching.records import Records
from banlieue.providers.vsphere.watching.watcher import Watcher
from banlieue.sdk.driver import NicPlan, Task
from banlieue.sdk.errors import DriverError, Foreign, Transient, Unreachable

CREATE = "create"

SLOT = "slot-"
"""What the handle of a create that waits for its turn begins with; nothing was sent for it yet."""

_FIRST_LOOK = 1.0
_LONGEST_PAUSE = 15.0
_NAME_PATIENCE = 600.0
"""Seconds to wait for the other create that holds our name to show its VM."""


@dataclass(slots=True, kw_only=True)
class Making:
    """Sends creates and follows them. Thread-safe."""

    session: Session
    records: Records
    watcher: Watcher
    census: Census
    creates: Creates
    outfit: Outfit
    work: Work
    monotonic: Callable[[], float]
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _looks: dict[str, tuple[float, float]] = field(init=False, default_factory=dict)

    def create(self, plan: Plan) -> Task | None:
        """Send the clone, unless one of the same plan is under way or the VM is there."""
        uuid = plan.ref.uuid or ""
        with self.creates.turn(uuid) as earlier:
            if earlier is not None and earlier.stage is Stage.RUNNING and earlier.task:
                return self.work.follow(earlier.task, CREATE, "")
            if earlier is not None and self._is_there(earlier):
                return None
            request, create = self.outfit.prepare(plan, self.monotonic())
            if not self.creates.begin(create):
                return Task(SLOT + create.uuid, CREATE, _FIRST_LOOK)
            try:
                request = self.outfit.place(request, create.name)
            # Whatever went wrong before the call, its slot is given back; raised again.
            except BaseException:
                self.creates.end(create, Stage.FAILED)
                raise
            self.records.expect(uuid, _families(plan.nics), request.disks, request.facts)
            return self._send(request, create)

    def _is_there(self, earlier: Create) -> bool:
        """Whether an earlier create made its VM; raises while nobody can know."""
        if earlier.stage is Stage.FAILED:
            return False
        if find_by_uuid(self.session, earlier.uuid):
            return True
        if earlier.stage is Stage.LOST and self.creates.is_unresolved(earlier):
            raise Transient(
                Reason.PROVIDER_BUSY,
                "an earlier call to make the VM got no answer and may still arrive",
            )
        return False

    def _send(self, request: Clone, create: Create) -> Task:
        def send(login: Login) -> str:
            source = vim.VirtualMachine(request.template, login.ops)
            # What came before, such as a folder or a login, is no part of how long a call may
            # still arrive after its reply was lost.
            create.since = self.monotonic()
            return moid(
                source.CloneVM_Task(
                    folder=vim.Folder(request.folder, login.ops),
                    name=create.name,
                    spec=clone.clone_spec(request, login.ops),
                )
            )

        try:
            with operation(f"create-{create.name}", activation=coming.activation(create.name)):
                task = self.session.run(send)
        except faults.LOST as error:
            lost = faults.driver_error(error, Reason.PROVISIONING_FAILED)
            if not may_have_arrived():
                self.creates.end(create, Stage.FAILED)
                raise lost from error
            self._lose(create)
            raise Unreachable(
                "the call to make the VM got no answer; the VM is looked for before it is repeated",
                native=lost.native,
            ) from error
        except vmodl.MethodFault as error:
            if self._made_after_all(create):
                raise Transient(
                    Reason.PROVIDER_BUSY, "the VM was made meanwhile; it is looked at again"
                ) from error
            raise self._refused(create, error) from error
        # Whatever ended the call, its slot is given back; raised again.
        except BaseException:
            self.creates.end(create, Stage.FAILED)
            raise
        self.creates.running(create, task)
        return self.work.follow(task, CREATE, "")

    def poll_slot(self, task: Task) -> Task | None:
        """The task while its create has to wait; the machine is then looked at and made."""
        return task if self.creates.must_wait(task.handle.removeprefix(SLOT)) else None

    # The end of a create

    def succeeded(self, create: Create, vm: str) -> None:
        """Its task made a VM."""
        self.creates.end(create, Stage.MADE, vm)
        self.census.put(Entry(vm, create.name, create.uuid))
        self.watcher.add(vm)

    def failed(self, create: Create, error: vmodl.MethodFault, task: Task) -> Task | None:
        """Its task failed: None when our VM is there all the same, the task when it is not settled.

        Raises:
            Foreign: somebody else's VM has the name.
            DriverError: what it failed with; `Refused` since nothing was made.
        """
        if self._made_after_all(create):
            return None
        refused = self._refused(create, error)
        waited = self.monotonic() - create.since
        if isinstance(refused, Transient) and create.stage is Stage.RUNNING:
            # Another create of this plan holds the name and its VM is not to be seen yet.
            if waited < _NAME_PATIENCE:
                return Task(task.handle, task.operation, _FIRST_LOOK)
            self.creates.end(create, Stage.FAILED)
        raise refused

    def _made_after_all(self, create: Create) -> bool:
        """Whether the VM is there though its create failed: another won, or only its start did."""
        self.outfit.throw_away()
        hits = find_by_uuid(self.session, create.uuid)
        if hits:
            self.succeeded(create, hits[0])
        return bool(hits)

    def _refused(self, create: Create, error: vmodl.MethodFault) -> DriverError:
        """The uniform error of a create that made nothing."""
        if isinstance(error, vim.fault.DuplicateName):
            self.census.refresh()
            holders = [e for e in self.census.named(create.name) if e.uuid != create.uuid]
            if not holders:
                return Transient(
                    Reason.PROVIDER_BUSY,
                    "the name is taken by a VM that is not to be seen; it is looked for again",
                )
            self.creates.end(create, Stage.FAILED)
            return Foreign(
                f"a VM named {create.name} exists that is not this machine's; rename or remove it"
            )
        self.creates.end(create, Stage.FAILED)
        return faults.driver_error(error, Reason.PROVISIONING_FAILED, nothing_made=True)

    # Creates whose reply never came

    def _lose(self, create: Create) -> None:
        self.creates.end(create, Stage.LOST)
        with self._lock:
            self._looks[create.uuid] = (self.monotonic() + _FIRST_LOOK, _FIRST_LOOK)

    def look_for_lost(self) -> frozenset[str]:
        """Look for VMs of creates without an answer, ever less often; words of those settled."""
        words: set[str] = set()
        now = self.monotonic()
        for create in self.creates.lost():
            due, pause = self._looks.get(create.uuid, (now, _FIRST_LOOK))
            if due > now:
                continue
            later = min(pause * 2, _LONGEST_PAUSE)
            with self._lock:
                self._looks[create.uuid] = (now + later, later)
            hits = find_by_uuid(self.session, create.uuid)
            if len(hits) == 1:
                self.succeeded(create, hits[0])
                words |= {create.uuid, create.name}
            elif not hits and not self.creates.is_unresolved(create):
                # It will not arrive any more: the machine may be made anew, after its own proof.
                self.creates.end(create, Stage.FAILED)
                words |= {create.uuid, create.name}
        return frozenset(words)

    def next_look(self) -> float | None:
        """Seconds until the next look is due."""
        lost = self.creates.lost()
        if not lost:
            return None
        now = self.monotonic()
        return max(0.0, min(self._looks.get(c.uuid, (now, 0.0))[0] for c in lost) - now)


def _families(nics: tuple[NicPlan, ...]) -> frozenset[str]:
    """The address families the guest will tell, by what its interfaces are to have."""
    wanted = {plan.family for nic in nics for plan in nic.addresses if plan.source != "none"}
    plain = any(not nic.addresses for nic in nics)
    return frozenset(wanted | ({"IPv4"} if plain else set()))
