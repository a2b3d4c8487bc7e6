"""A simulated vCenter under the conformance kit, behind a proxy that can lose replies."""

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import SecretStr
from pyVmomi import vim

from banlieue.api.infrastructure.machine import MachineSpec
from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.api.v1alpha1.vmimage import ImageSource, SourceKind
from banlieue.providers.vsphere.backend import BACKEND
from banlieue.providers.vsphere.hardware.devices import disk_id
from banlieue.providers.vsphere.models import VSphereMachineSpec
from banlieue.providers.vsphere.vms.firstboot import WORD_KEY
from banlieue.sdk.backend import Backend
from banlieue.sdk.driver import Connection, FailureDomain
from banlieue.sdk.testing.conformance_target import ConformanceTarget, RawVm
from test.kit import guestdata
from test.kit.imagefiles import ova
from test.kit.soapproxy import SoapProxy
from test.kit.soaprules import drop_reply
from test.kit.stack import ROOT
from test.kit.taps import Words, calls_of, words_of
from test.kit.vcsim import VCSim
from test.kit.vcsim_values import FirstBoot, Machine
from test.kit.vsphere_client import VSphereClient
from test.kit.vsphere_rest import VSphereRest

WRONG_PASSWORD: Final = "wrong-0815-password"
NOBODY: Final = "https://127.0.0.1:1/sdk"
"""An endpoint where nobody listens."""

_ROLE: Final = ROOT / "config" / "vsphere" / "role.yaml"

TEMPLATE: Final = "ubuntu"
_TASKS: Final = (
    "CloneVM_Task",
    "PowerOnVM_Task",
    "PowerOffVM_Task",
    "ReconfigVM_Task",
    "Destroy_Task",
)


class VSphereTarget(ConformanceTarget):
    """A vCenter of three hosts and one cluster; the driver reaches it through the proxy."""

    capabilities = Capabilities.from_api(
        {
            "storageClasses": [{"name": "gold", "target": {"datastore": "LocalDS_0"}}],
            "networkClasses": [
                {"name": "prod", "target": {"portGroup": "DC0_DVPG0"}},
                {"name": "test", "target": {"portGroup": "VM Network"}},
            ],
        }
    )

    def __init__(
        self, vcenter: VCSim, proxy: SoapProxy, backend: Backend[VSphereMachineSpec] = BACKEND
    ) -> None:
        self.backend = backend
        self.vcenter = vcenter
        self.proxy = proxy
        self.account = vcenter.username
        self.secrets = (vcenter.password, WRONG_PASSWORD)

    def use_the_role(self) -> None:
        """Log in as an account that has what `role.yaml` lists for all we can do, and no more."""
        self.account = "banlieue@vsphere.local"
        self.vcenter.set_account(self.account, self.vcenter.password)
        parts = yaml.safe_load(_ROLE.read_text(encoding="utf-8"))
        groups = [group for part in parts.values() for group in part.values()]
        self.vcenter.permit(self.account, "", [name for group in groups for name in group])

    # Connecting

    def connection(self) -> Connection:
        return self._connection(self.proxy.url, self.vcenter.password)

    def wrong_login(self) -> Connection:
        return self._connection(self.proxy.url, WRONG_PASSWORD)

    def unreachable(self) -> Connection:
        return self._connection(NOBODY, self.vcenter.password)

    def _connection(self, endpoint: str, password: str) -> Connection:
        return Connection(
            provider_namespace="tests",
            provider_name="vsphere",
            endpoints=(endpoint,),
            credentials={
                "username": SecretStr(self.account),
                "password": SecretStr(password),
            },
            capabilities=self.capabilities,
            settings={"createTags": "true"},
            # Image files go past the proxy, to where the vCenter says.
            thumbprints=(self.proxy.thumbprint, self.vcenter.thumbprint),
        )

    # Planning

    def image_source(self) -> ImageSource:
        return ImageSource(provider_class="vsphere", kind=SourceKind.TEMPLATE, ref=TEMPLATE)

    def machine_spec(self) -> MachineSpec:
        return VSphereMachineSpec.model_construct()

    def tags(self, vm: str) -> Mapping[str, str]:
        return dict(VSphereRest(self.vcenter).tags_on(vm))

    def image_content(self) -> bytes:
        return ova()

    # An admin's view

    def vms(self) -> Sequence[RawVm]:
        return [_raw(machine) for machine in self.vcenter.vms() if not machine.template]

    def disk_exists(self, disk: str) -> bool:
        store, _, path = disk.removeprefix("[").partition("] ")
        return any(path in file and store in file for file in self.vcenter.inventory().files)

    # An admin's hands

    def make_foreign(self, name: str, where: FailureDomain) -> str:
        del where
        return self.vcenter.create_foreign_vm(name).mo_ref

    def make_existing(self, name: str, where: FailureDomain) -> str:
        del where
        return self.vcenter.create_foreign_vm(name, copy_of=TEMPLATE, power_on=True).mo_ref

    def copy(self, vm: str, name: str) -> str:
        return self.vcenter.create_foreign_vm(name, copy_of=vm).mo_ref

    def remove(self, vm: str) -> None:
        self.vcenter.destroy_vm(vm)

    def toggle_power(self, vm: str) -> None:
        (power,) = [found.power_state for found in self.vcenter.vms() if found.mo_ref == vm]
        self.vcenter.power_vm(vm, "off" if power == "poweredOn" else "on")

    def attach_foreign_disk(self, vm: str) -> str:
        path = f"[LocalDS_0] foreign-{uuid.uuid4()}.vmdk"
        with self._admin() as admin:
            manager = admin.content.virtualDiskManager
            spec = vim.VirtualDiskManager.FileBackedVirtualDiskSpec(
                diskType="thin", adapterType="lsiLogic", capacityKb=1024 * 1024
            )
            admin.outcome(manager.CreateVirtualDisk_Task(path, admin.at("DC0"), spec))
            machine = admin.reference(vim.VirtualMachine, vm)
            hardware = admin.read(machine, "config.hardware.device")["config.hardware.device"]
            admin.outcome(machine.ReconfigVM_Task(_attach(path, hardware)))
        return path

    def take_off_disk(self, vm: str, disk: str) -> None:
        with self._admin() as admin:
            machine = admin.reference(vim.VirtualMachine, vm)
            hardware = admin.read(machine, "config.hardware.device")["config.hardware.device"]
            found = [
                device
                for device in hardware
                if isinstance(device, vim.vm.device.VirtualDisk) and disk_id(device) == disk
            ]
            changes = [
                vim.vm.device.VirtualDeviceSpec(operation="remove", device=device)
                for device in found
            ]
            admin.outcome(machine.ReconfigVM_Task(vim.vm.ConfigSpec(deviceChange=changes)))

    def snapshot(self, vm: str) -> None:
        self.vcenter.snapshot_vm(vm, "before")

    def drop_snapshots(self, vm: str) -> None:
        with self._admin() as admin:
            machine = admin.reference(vim.VirtualMachine, vm)
            admin.outcome(machine.RemoveAllSnapshots_Task())

    def attach_foreign_interface(self, vm: str) -> str:
        with self._admin() as admin:
            machine = admin.reference(vim.VirtualMachine, vm)

            def cards() -> dict[int, Any]:
                hardware = admin.read(machine, "config.hardware.device")["config.hardware.device"]
                kind = vim.vm.device.VirtualEthernetCard
                return {card.key: card for card in hardware if isinstance(card, kind)}

            before = cards()
            card = vim.vm.device.VirtualE1000(
                key=-1, addressType="generated", backing=next(iter(before.values())).backing
            )
            change = vim.vm.device.VirtualDeviceSpec(operation="add", device=card)
            admin.outcome(machine.ReconfigVM_Task(vim.vm.ConfigSpec(deviceChange=[change])))
            (added,) = cards().keys() - before.keys()
        return str(added)

    def unplug(self, vm: str, nic: str) -> None:
        with self._admin() as admin:
            machine = admin.reference(vim.VirtualMachine, vm)
            hardware = admin.read(machine, "config.hardware.device")["config.hardware.device"]
            (card,) = [device for device in hardware if str(device.key) == nic]
            card.connectable.connected = False
            change = vim.vm.device.VirtualDeviceSpec(operation="edit", device=card)
            admin.outcome(machine.ReconfigVM_Task(vim.vm.ConfigSpec(deviceChange=[change])))

    def first_boot_data(self, vm: str) -> bytes:
        (machine,) = [found for found in self.vcenter.vms() if found.mo_ref == vm]
        return b"\n".join(guestdata.decoded(machine.extra_config).values())

    def hold(self, vm: str, *, held: bool) -> None:
        self.vcenter.change_vm(vm, extra_config={"banlieue-hold": "backup" if held else ""})

    def reidentify(self, vm: str, instance_uuid: str) -> None:
        """Give a VM another instance UUID, as a vCenter does to a VM that is registered again."""
        with self._admin() as admin:
            machine = admin.reference(vim.VirtualMachine, vm)
            admin.outcome(machine.ReconfigVM_Task(vim.vm.ConfigSpec(instanceUuid=instance_uuid)))

    def _admin(self) -> Any:  # noqa: ANN401 - a context with a client
        @contextmanager
        def opened() -> Iterator[VSphereClient]:
            with VSphereClient(self.vcenter.url, ca_pem=self.vcenter.ca_pem) as client:
                yield client.login(self.vcenter.username, self.vcenter.password)
                client.content.sessionManager.Logout()

        return opened()

    @contextmanager
    def hidden(self, vm: str) -> Iterator[None]:
        self.vcenter.hide(self.account, vm)
        try:
            yield
        finally:
            self.vcenter.clear_permissions(self.account, vm)

    @contextmanager
    def other_identity(self) -> Iterator[None]:
        # Another vCenter knows none of our sessions either.
        self.vcenter.set_instance_uuid(str(uuid.uuid4()))
        self.vcenter.terminate_sessions()
        try:
            yield
        finally:
            self.vcenter.set_instance_uuid(self.vcenter.instance_uuid)
            self.vcenter.terminate_sessions()

    def lose_next_create_reply(self) -> None:
        self.proxy.add(drop_reply("CloneVM_Task", count=1))

    @contextmanager
    def slow_tasks(self, seconds: float) -> Iterator[None]:
        for method in _TASKS:
            self.vcenter.set_delay(method, seconds, of="task")
        try:
            yield
        finally:
            for method in _TASKS:
                self.vcenter.set_delay(method, 0.0, of="task")


@contextmanager
def vsphere_target(
    directory: Path, arguments: Sequence[str] = (), backend: Backend[VSphereMachineSpec] = BACKEND
) -> Iterator[VSphereTarget]:
    """A fresh vCenter and its proxy, gone when the block ends."""
    with contextlib.ExitStack() as stack:
        vcenter = stack.enter_context(
            VCSim(directory, templates=[TEMPLATE], arguments=tuple(arguments))
        )
        proxy = stack.enter_context(SoapProxy(vcenter.address))
        yield VSphereTarget(vcenter, proxy, backend)


@words_of.register
def _(target: VSphereTarget) -> Words:
    del target
    return Words(login="Login", create="CloneVM_Task", long_poll=frozenset({"WaitForUpdatesEx"}))


@calls_of.register
def _(target: VSphereTarget) -> Counter[str]:
    return Counter(target.vcenter.counters().soap)


def _raw(machine: Machine) -> RawVm:
    settled = replace(machine, cards=(), tools_running=False, host_name="", address="")
    settled = replace(settled, created=0.0, powered_on=0.0, addressed=0.0, first_boot=FirstBoot())
    told = {key: value for key, value in machine.extra_config.items() if key != WORD_KEY}
    return RawVm(
        id=machine.mo_ref,
        name=machine.name,
        uuid=machine.instance_uuid,
        fingerprint=f"{settled} {sorted(told.items())}",
    )


def _attach(path: str, hardware: list[Any]) -> Any:  # noqa: ANN401 - a ConfigSpec
    disks = [device for device in hardware if isinstance(device, vim.vm.device.VirtualDisk)]
    controller = disks[0].controllerKey
    taken = {disk.unitNumber for disk in disks if disk.controllerKey == controller} | {7}
    unit = next(number for number in range(16) if number not in taken)
    disk = vim.vm.device.VirtualDisk(
        key=-1,
        controllerKey=controller,
        unitNumber=unit,
        capacityInKB=1024 * 1024,
        backing=vim.vm.device.VirtualDisk.FlatVer2BackingInfo(fileName=path, diskMode="persistent"),
    )
    change = vim.vm.device.VirtualDeviceSpec(operation="add", device=disk)
    return vim.vm.ConfigSpec(deviceChange=[change])
