"""What the conformance kit needs to know of a backend, and how it talks to it."""
# ruff: noqa: S101 - a test kit asserts

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from threading import Event
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretBytes

from banlieue.api.infrastructure.machine import MachineSpec
from banlieue.api.v1alpha1.vmimage import ImageSource
from banlieue.sdk.backend import Backend
from banlieue.sdk.driver import (
    Bootstrap,
    Connection,
    DiskPlan,
    Driver,
    FailureDomain,
    MachinePlan,
    MachineRef,
    MachineState,
    NicPlan,
    Task,
)
from banlieue.sdk.errors import AbsenceUnproven, Transient
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Mark, Owner, backend_name

AnyDriver = Driver[Any]
AnyPlan = MachinePlan[Any]

_PAUSE = 0.02
USER_DATA = "#cloud-config\n# user-data-4711\n"
"""First-boot data of every plan; it must never show up outside the VM."""


@dataclass(frozen=True, slots=True)
class RawVm:
    """A VM as an admin of the backend sees it, past the driver.

    `fingerprint` is any text that changes when somebody changes the VM: power, configuration,
    devices.
    """

    id: str
    name: str
    uuid: str
    fingerprint: str


class ConformanceTarget(ABC):
    """A backend under test and the powers of its admin.

    One target serves one test; it may share the backend behind it, since every test uses names of
    its own. `vm` arguments are the backend's own ids of VMs (`MachineState.backend_id`).
    """

    backend: Backend[Any]
    patience: float = 90.0
    """Seconds within which any work of the backend ends."""
    promptness: float = 2.0
    """Seconds within which any verb answers, however slow the work it starts."""
    secrets: tuple[str, ...] = ()
    """Plain texts of the credentials in `connection` and `wrong_login`."""

    # Connecting

    @abstractmethod
    def connection(self) -> Connection:
        """A connection that works, with at least one storage and one network class."""

    @abstractmethod
    def wrong_login(self) -> Connection:
        """The same with credentials the backend refuses."""

    @abstractmethod
    def unreachable(self) -> Connection:
        """The same with an endpoint where nobody listens."""

    # Planning

    @abstractmethod
    def image_source(self) -> ImageSource:
        """An image that is there."""

    @abstractmethod
    def machine_spec(self) -> MachineSpec:
        """The backend's own part of a plain machine."""

    def failure_domain(self, driver: AnyDriver) -> FailureDomain:
        """Where the tests make their VMs: the first place that has what they need."""
        for domain in driver.failure_domains():
            if domain.schedulable and domain.storage_classes and domain.network_classes:
                return domain
        raise AssertionError("no failure domain is schedulable with a storage and a network class")

    # An admin's view

    @abstractmethod
    def vms(self) -> Sequence[RawVm]:
        """Every VM there is, hidden ones too."""

    @abstractmethod
    def disk_exists(self, disk: str) -> bool:
        """Whether a disk known by its `DiskState.id` still has its data, attached or not."""

    # An admin's hands

    @abstractmethod
    def make_foreign(self, name: str, where: FailureDomain) -> str:
        """Make a VM of that name that carries no mark, where the driver would; its id."""

    def make_existing(self, name: str, where: FailureDomain) -> str:
        """Make a VM as people run it, with a disk and an interface and without a mark; its id."""
        return self.make_foreign(name, where)

    @abstractmethod
    def copy(self, vm: str, name: str) -> str:
        """Clone a VM with everything written on it, as an admin does; the id of the copy."""

    @abstractmethod
    def remove(self, vm: str) -> None:
        """Destroy a VM behind the driver's back."""

    @abstractmethod
    def toggle_power(self, vm: str) -> None:
        """Switch a VM on or off behind the driver's back."""

    @abstractmethod
    def attach_foreign_disk(self, vm: str) -> str:
        """Attach a disk that no plan names; the id `disk_exists` takes."""

    @abstractmethod
    def take_off_disk(self, vm: str, disk: str) -> None:
        """Detach a disk by its `DiskState.id` behind the driver's back; its data stays."""

    @abstractmethod
    def snapshot(self, vm: str) -> None:
        """Make a snapshot of a VM, as a backup does."""

    @abstractmethod
    def drop_snapshots(self, vm: str) -> None:
        """Delete all snapshots of a VM."""

    @abstractmethod
    def attach_foreign_interface(self, vm: str) -> str:
        """Plug in a network interface that no plan names; the id `NicState.id` has."""

    def unplug(self, vm: str, nic: str) -> None:
        """Disconnect a network interface, by its `NicState.id`, behind the driver's back."""
        del vm, nic
        pytest.skip("the target cannot unplug an interface")

    def hold(self, vm: str, *, held: bool) -> None:
        """Ask that banlieue leaves a VM as it is, or end that, as an admin of the backend does."""
        del vm, held
        pytest.skip("the target has no hold")

    @abstractmethod
    def hidden(self, vm: str) -> AbstractContextManager[None]:
        """While it lasts the driver's account has no right to see the VM."""

    @abstractmethod
    def other_identity(self) -> AbstractContextManager[None]:
        """While it lasts another installation answers; it knows none of our sessions."""

    @abstractmethod
    def lose_next_create_reply(self) -> None:
        """The next create call is carried out, and its answer is lost."""

    @abstractmethod
    def slow_tasks(self, seconds: float) -> AbstractContextManager[None]:
        """While it lasts every task takes that much longer."""

    def first_boot_data(self, vm: str) -> bytes:
        """Everything a guest would find as its first-boot data now, decoded, one after the other.

        Where the backend keeps only digests of it, this is made of what has them.
        """
        del vm
        pytest.skip("the target does not show first-boot data")

    def tags(self, vm: str) -> Mapping[str, str]:
        """The tags on a VM; only targets whose driver keeps tags up need it."""
        del vm
        pytest.skip("the target does not show tags")

    def image_content(self) -> bytes:
        """What an image file that can be imported holds; as small as the backend takes."""
        return bytes(64 * 1024)

    def unknown_task(self) -> Task:
        """A task the backend does not know, or no longer."""
        return Task(handle="task-999999", operation="create")


@dataclass(frozen=True, slots=True)
class Bench:
    """A target with an open driver, and what tests do again and again."""

    target: ConformanceTarget
    driver: AnyDriver

    # Planning

    def plan(self, name: str = "web", *, data_disk: bool = False) -> AnyPlan:
        """A plan for a machine that never was: new owner, new UUID."""
        where = self.target.failure_domain(self.driver)
        owner = Owner(f"conformance-{uuid4()}", OWNER_VIRTUAL_MACHINE, "tests", name)
        ref = MachineRef(owner, 0, backend_name(owner, 0), str(uuid4()), failure_domain=where.id)
        image = self.driver.find_image(self.target.image_source(), where)
        assert image is not None, "find_image does not find the target's image"
        classes = self.target.connection().capabilities
        storage = next(c for c in classes.storage_classes if c.name in where.storage_classes)
        network = next(c for c in classes.network_classes if c.name in where.network_classes)
        disks = [DiskPlan("root", image.disk_gib, storage.target)]
        if data_disk:
            disks.append(DiskPlan("data", 1, storage.target, retain=True))
        return MachinePlan(
            ref=ref,
            mark=Mark(owner, ref.uuid or ""),
            spec=self.target.machine_spec(),
            provider_id=self.target.backend.provider_id(ref.uuid or ""),
            failure_domain=where,
            image=image,
            hostname=name,
            cpus=1,
            memory_mib=512,
            firmware=image.firmware or "bios",
            disks=tuple(disks),
            nics=(NicPlan("eth0", network.target),),
            bootstrap=Bootstrap(user_data=SecretBytes(USER_DATA.encode())),
        )

    # Getting there

    def until(self, what: str, answer: Callable[[], Any]) -> Any:  # noqa: ANN401 - as answered
        """Ask until the answer is true, and give it; fails when patience is at its end."""
        deadline = monotonic() + self.target.patience
        while not (found := answer()):
            assert monotonic() < deadline, f"not within {self.target.patience} s: {what}"
            Event().wait(_PAUSE)
        return found

    def finish(self, task: Task | None) -> None:
        """Wait for a task; raises what it failed with."""
        if task is not None:
            self.until(f"{task.operation} ends", lambda: self.driver.poll(task) is None)

    def look(self, ref: MachineRef, driver: AnyDriver | None = None) -> MachineState | None:
        """What a driver sees; absence that is not proven yet is asked for again."""
        seen: list[MachineState | None] = []

        def answered() -> bool:
            try:
                seen.append((driver or self.driver).observe(ref))
            except (AbsenceUnproven, Transient):
                return False
            return True

        self.until("observe gives an answer", answered)
        return seen[-1]

    def state(self, plan: AnyPlan) -> MachineState:
        """The state of a VM that has to be there."""
        state = self.look(plan.ref)
        assert state is not None, f"{plan.ref.name} is not there any more"
        return state

    def ensure(self, plan: AnyPlan, driver: AnyDriver | None = None) -> MachineState:
        """Do what a reconciler does until the plan's VM is there, and give its state."""
        driver = driver or self.driver

        def there() -> MachineState | None:
            try:
                state = driver.observe(plan.ref)
                if state is None and (task := driver.create(plan)) is not None:
                    self.finish(task)
            except (AbsenceUnproven, Transient):
                return None
            return state

        state: MachineState = self.until("the VM is made", there)
        assert state.uuid.lower() == plan.ref.uuid, "observe found another VM than was planned"
        return state

    def run(self, plan: AnyPlan, step: Callable[[], Task | None]) -> None:
        """Take steps until there is none left; busy VMs are asked again."""

        def done() -> bool:
            try:
                task = step()
                self.finish(task)
            except Transient:
                return False
            return task is None

        self.until(f"no step is left for {plan.ref.name}", done)

    def delete(self, ref: MachineRef, plan: AnyPlan) -> None:
        """Delete step by step until there is nothing left."""
        self.run(plan, lambda: self.driver.delete(ref))

    def named(self, plan: AnyPlan) -> list[RawVm]:
        """The VMs that carry the plan's name, as an admin sees them."""
        return [vm for vm in self.target.vms() if vm.name == plan.ref.name]

    def raw(self, vm_id: str) -> RawVm | None:
        """A VM as an admin sees it."""
        return next((vm for vm in self.target.vms() if vm.id == vm_id), None)

    def connect(self) -> AbstractContextManager[AnyDriver]:
        """Another session."""
        return self.target.backend.connect(self.target.connection())


def seen(plan: AnyPlan, state: MachineState) -> MachineRef:
    """The reference a machine has once its VM was seen."""
    return replace(plan.ref, seen=True, backend_id=state.backend_id)


def unminted(plan: AnyPlan) -> MachineRef:
    """The reference a machine has before it was given a UUID."""
    return replace(plan.ref, uuid=None, failure_domain=None)


class Benched:
    """Tests that work at a bench over a fresh session."""

    @pytest.fixture
    def bench(self, target: ConformanceTarget) -> Iterator[Bench]:
        """The bench; the target is a fixture of the subclass."""
        with target.backend.connect(target.connection()) as driver:
            yield Bench(target, driver)
