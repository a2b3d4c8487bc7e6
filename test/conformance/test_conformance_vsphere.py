"""The vSphere backend keeps the promises of the seam, against our vCenter simulator."""

import contextlib
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from pydantic import SecretStr
from pyVmomi import SoapAdapter, vim

from banlieue.api.infrastructure.machine import MachineSpec
from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.api.v1alpha1.vmimage import ImageSource, SourceKind
from banlieue.providers.vsphere.models import VSphereMachineSpec
from banlieue.sdk.driver import Connection, FailureDomain
from banlieue.sdk.registry import load_backend
from banlieue.sdk.testing.conformance import ConformanceTarget, DriverConformance
from banlieue.sdk.testing.conformance_target import RawVm
from test.kit.ports import LOOPBACK, free_port
from test.kit.soapproxy import SoapProxy
from test.kit.soaprules import drop_reply
from test.kit.vcsim import VCSim
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

TEMPLATE = "ubuntu"
WRONG_PASSWORD = "wrong-0815-password"
SLOW = ("CloneVM_Task", "PowerOffVM_Task", "Destroy_Task")


class VsphereTarget(ConformanceTarget):
    """A vCenter behind a proxy that can lose replies."""

    patience = 60.0
    promptness = 1.5

    def __init__(self, vcenter: VCSim, proxy: SoapProxy) -> None:
        self.backend = load_backend("vsphere")
        self.secrets = (vcenter.password, WRONG_PASSWORD)
        self._vcenter = vcenter
        self._proxy = proxy

    def connection(self) -> Connection:
        return Connection(
            provider_namespace="tests",
            provider_name="vsphere",
            endpoints=(self._proxy.url,),
            credentials={
                "username": SecretStr(self._vcenter.username),
                "password": SecretStr(self._vcenter.password),
            },
            capabilities=Capabilities.from_api(
                {
                    "storageClasses": [{"name": "gold", "target": {"datastore": "LocalDS_0"}}],
                    "networkClasses": [{"name": "prod", "target": {"portGroup": "DC0_DVPG0"}}],
                }
            ),
            ca_bundle=self._proxy.ca_pem,
        )

    def wrong_login(self) -> Connection:
        right = self.connection()
        wrong = {**right.credentials, "password": SecretStr(WRONG_PASSWORD)}
        return replace(right, credentials=wrong)

    def unreachable(self) -> Connection:
        return replace(self.connection(), endpoints=(f"https://{LOOPBACK}:{free_port()}/sdk",))

    def image_source(self) -> ImageSource:
        return ImageSource(provider_class="vsphere", kind=SourceKind.TEMPLATE, ref=TEMPLATE)

    def machine_spec(self) -> MachineSpec:
        return VSphereMachineSpec()

    def vms(self) -> Sequence[RawVm]:
        return [
            RawVm(
                vm.mo_ref,
                vm.name,
                vm.instance_uuid,
                repr((vm.power_state, vm.cpus, vm.memory_mib, vm.annotation, vm.folder, vm.disks))
                + repr(sorted(vm.extra_config.items())),
            )
            for vm in self._vcenter.vms()
        ]

    def disk_exists(self, disk: str) -> bool:
        return any(file.endswith(f" {disk}") for file in self._vcenter.inventory().files)

    def make_foreign(self, name: str, where: FailureDomain) -> str:
        folder = f"/{where.path[0]}/vm"
        return self._vcenter.create_foreign_vm(name, folder=folder, power_on=True).mo_ref

    def copy(self, vm: str, name: str) -> str:
        return self._vcenter.create_foreign_vm(name, copy_of=vm).mo_ref

    def remove(self, vm: str) -> None:
        self._vcenter.destroy_vm(vm)

    def toggle_power(self, vm: str) -> None:
        (power,) = [found.power_state for found in self._vcenter.vms() if found.mo_ref == vm]
        self._vcenter.power_vm(vm, "off" if power == "poweredOn" else "on")

    def attach_foreign_disk(self, vm: str) -> str:
        with self._admin() as admin:
            return _attach_disk(vim.VirtualMachine(vm, admin), f"[LocalDS_0] pv-{uuid4()}.vmdk")

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        address = urlsplit(self._vcenter.url)
        trust = ssl.create_default_context(cadata=self._vcenter.ca_pem)
        stub = SoapAdapter.SoapStubAdapter(
            host=address.hostname,
            port=address.port,
            path=address.path,
            sslContext=trust,
            version="vim.version.v8_0_3_0",
        )
        manager: Any = vim.ServiceInstance("ServiceInstance", stub).RetrieveContent().sessionManager
        manager.Login(self._vcenter.username, self._vcenter.password, None)
        try:
            yield stub
        finally:
            manager.Logout()
            stub.DropConnections()

    @contextmanager
    def hidden(self, vm: str) -> Iterator[None]:
        self._vcenter.hide(self._vcenter.username, vm)
        try:
            yield
        finally:
            self._vcenter.clear_permissions(self._vcenter.username, vm)

    @contextmanager
    def other_identity(self) -> Iterator[None]:
        """Another vCenter has another identity, and knows none of our sessions."""
        self._vcenter.set_instance_uuid(str(uuid4()))
        self._vcenter.terminate_sessions()
        try:
            yield
        finally:
            self._vcenter.set_instance_uuid(self._vcenter.instance_uuid)
            self._vcenter.terminate_sessions()

    def lose_next_create_reply(self) -> None:
        self._proxy.add(drop_reply("CloneVM_Task"))

    @contextmanager
    def slow_tasks(self, seconds: float) -> Iterator[None]:
        for method in SLOW:
            self._vcenter.set_delay(method, seconds, of="task")
        try:
            yield
        finally:
            self._vcenter.clear_delays()


def _attach_disk(vm: Any, file: str) -> str:  # noqa: ANN401 - a vim.VirtualMachine
    """Attach a new disk of that file to the first disk controller; the file's name."""
    devices = vm.config.hardware.device
    first = next(d for d in devices if isinstance(d, vim.vm.device.VirtualDisk))
    disk = vim.vm.device.VirtualDisk(
        key=-1,
        controllerKey=first.controllerKey,
        unitNumber=9,
        capacityInKB=1024 * 1024,
        backing=vim.vm.device.VirtualDisk.FlatVer2BackingInfo(
            fileName=file, diskMode="independent_persistent", thinProvisioned=True
        ),
    )
    change = vim.vm.device.VirtualDeviceSpec(operation="add", fileOperation="create", device=disk)
    task = vm.ReconfigVM_Task(vim.vm.ConfigSpec(deviceChange=[change]))
    wait_until(lambda: task.info.state not in {"queued", "running"}, 10.0, "the disk")
    if task.info.error:
        raise task.info.error
    return file


@pytest.fixture(scope="module")
def vcenter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VCSim, SoapProxy]]:
    with contextlib.ExitStack() as stack:
        vcenter = stack.enter_context(
            VCSim(tmp_path_factory.mktemp("vcenter"), templates=[TEMPLATE])
        )
        proxy = SoapProxy(vcenter.address, authority=vcenter.authority)
        yield vcenter, stack.enter_context(proxy)


class TestVsphere(DriverConformance):
    @pytest.fixture
    def target(self, vcenter: tuple[VCSim, SoapProxy]) -> ConformanceTarget:
        return VsphereTarget(*vcenter)
