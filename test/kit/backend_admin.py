"""What the admin of a backend does with its own tools, whichever backend it is."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import singledispatch
from typing import Any

from pyVmomi import vim

from banlieue.sdk.simulated.records import OFF
from banlieue.sdk.simulated.world import USERNAME, digest
from banlieue.sdk.testing.conformance_target import ConformanceTarget
from test.kit.simulated import PLANTED_PASSWORD, WorldTarget
from test.kit.vsphere_client import VSphereClient
from test.kit.vsphere_target import VSphereTarget


class BackendAdmin(ABC):
    """Acts on VMs by the backend's own ids, past banlieue."""

    @abstractmethod
    def set_password(self, password: str | None) -> None:
        """Change the password of the account that Providers use; None: back to the first one."""

    @abstractmethod
    def power_off(self, vm: str) -> None:
        """Pull the plug."""

    @abstractmethod
    def set_cpus(self, vm: str, cpus: int) -> None:
        """Give a VM that is off another number of CPUs."""

    @abstractmethod
    def cpus(self, vm: str) -> int:
        """How many CPUs a VM has."""

    @abstractmethod
    def move(self, vm: str) -> str:
        """Take a VM to another host, as HA or an admin does; the host's name."""

    @abstractmethod
    def move_beside(self, vm: str, other: str) -> None:
        """Take a VM to the failure domain of another one."""

    @abstractmethod
    def make_deaf(self, name: str, vm: str) -> None:
        """Make a VM's guest ignore every wish to stop or restart."""

    @abstractmethod
    def slow_guests(self, seconds: float) -> None:
        """Make guests that start from now on report only after so many seconds."""

    @abstractmethod
    def boots(self, vm: str) -> str:
        """A text that changes whenever the VM is started or reset."""


@singledispatch
def admin_of(target: ConformanceTarget) -> BackendAdmin:
    """The admin of a backend."""
    raise TypeError(f"nobody administers {type(target).__name__}")


class WorldAdmin(BackendAdmin):
    """The admin of a simulated world."""

    def __init__(self, target: WorldTarget) -> None:
        self._port = target.world.port

    def set_password(self, password: str | None) -> None:
        salt = "salt"
        kept = digest(salt, password or PLANTED_PASSWORD)
        self._port.control("set_password", {"username": USERNAME, "salt": salt, "digest": kept})

    def power_off(self, vm: str) -> None:
        self._port.control("set_power", {"vm": vm, "power": OFF})

    def set_cpus(self, vm: str, cpus: int) -> None:
        self._port.control("set_cpus", {"vm": vm, "cpus": cpus})

    def cpus(self, vm: str) -> int:
        return int(self._find(vm)["cpus"])

    def move(self, vm: str) -> str:
        self._port.control("move", {"vm": vm, "domain": self._find(vm)["domain"]})
        return str(self._find(vm)["host"])

    def move_beside(self, vm: str, other: str) -> None:
        self._port.control("move", {"vm": vm, "domain": self._find(other)["domain"]})

    def make_deaf(self, name: str, vm: str) -> None:
        del name
        self._port.control("deafen_guest", {"vm": vm})

    def slow_guests(self, seconds: float) -> None:
        self._port.control("set_latencies", {"boot": seconds})

    def boots(self, vm: str) -> str:
        return str(self._find(vm)["last_boot"])

    def _find(self, vm: str) -> dict[str, Any]:
        (found,) = [it for it in self._port.control("vms", {}) if it["id"] == vm]
        return dict(found)


class VCenterAdmin(BackendAdmin):
    """The admin of a vCenter."""

    def __init__(self, target: VSphereTarget) -> None:
        self._vcenter = target.vcenter

    def set_password(self, password: str | None) -> None:
        self._vcenter.set_account(self._vcenter.username, password or self._vcenter.password)
        self._vcenter.terminate_sessions()

    def power_off(self, vm: str) -> None:
        self._vcenter.power_vm(vm, "off")

    def set_cpus(self, vm: str, cpus: int) -> None:
        self._vcenter.change_vm(vm, cpus=cpus)

    def cpus(self, vm: str) -> int:
        return next(it.cpus for it in self._vcenter.vms() if it.mo_ref == vm)

    def move(self, vm: str) -> str:
        with self._client() as client:
            machine = client.reference(vim.VirtualMachine, vm)
            here = client.read(machine, "runtime.host")["runtime.host"]
            cluster = client.read(here, "parent")["parent"]
            hosts = client.read(cluster, "host")["host"]
            there = next(host for host in hosts if host._moId != here._moId)
            client.outcome(machine.RelocateVM_Task(spec=vim.vm.RelocateSpec(host=there)))
            name: str = client.read(there, "name")["name"]
        return name

    def move_beside(self, vm: str, other: str) -> None:
        with self._client() as client:
            paths = ("runtime.host", "resourcePool")
            found = client.read(client.reference(vim.VirtualMachine, other), *paths)
            spec = vim.vm.RelocateSpec(host=found["runtime.host"], pool=found["resourcePool"])
            machine = client.reference(vim.VirtualMachine, vm)
            client.outcome(machine.RelocateVM_Task(spec=spec))

    @contextmanager
    def _client(self) -> Iterator[VSphereClient]:
        with VSphereClient(self._vcenter.url, ca_pem=self._vcenter.ca_pem) as client:
            client.login(self._vcenter.username, self._vcenter.password)
            yield client
            client.content.sessionManager.Logout()

    def make_deaf(self, name: str, vm: str) -> None:
        del vm
        self._vcenter.guest(machine=name, ignore_shutdown=True)

    def slow_guests(self, seconds: float) -> None:
        self._vcenter.guest(delay=seconds)

    def boots(self, vm: str) -> str:
        return str(next(it.powered_on for it in self._vcenter.vms() if it.mo_ref == vm))


@admin_of.register
def _(target: WorldTarget) -> BackendAdmin:
    return WorldAdmin(target)


@admin_of.register
def _(target: VSphereTarget) -> BackendAdmin:
    return VCenterAdmin(target)
