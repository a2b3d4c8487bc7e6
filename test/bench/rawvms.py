"""The floor: VMs made and deleted by a plain pyVmomi script of eight threads.

Run as a process of its own, so that its processor time is its own. It reads an order as JSON from
the first line of its input and looks up what it needs. Each further line lets it go on: it makes
the VMs, it deletes them, it ends; a line of JSON tells that a step is done. It knows no owner,
retries nothing and remembers nothing.
"""

import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyVmomi import vim

from test.bench.processes import rss
from test.kit.vsphere_client import VSphereClient

THREADS: Final = 8
_POLL_SECONDS: Final = 0.01
_PORT_GROUP: Final = "DC0/network/DC0_DVPG0"


@dataclass(frozen=True, slots=True)
class Order:
    """What to make.

    Attributes:
        url: The vCenter's SOAP endpoint.
        ca_pem: What its certificate comes from.
        username: The account.
        password: Its password; the order goes through a pipe, not through a command line.
        names: Names of the VMs.
        cpus: Of each.
        memory_mib: Of each.
        linked: Whether their disks hang on the template's snapshot.
        extra_config: Of each.
        on_in_clone: Whether the clone switches the VM on; else a call of its own does.
    """

    url: str
    ca_pem: str
    username: str
    password: str
    names: Sequence[str]
    cpus: int
    memory_mib: int
    linked: bool
    extra_config: dict[str, str]
    on_in_clone: bool

    def line(self) -> str:
        """As the script reads it."""
        return f"{json.dumps(asdict(self))}\n"


class Raw:
    """The script: everything it looks up, it looks up before the clock runs."""

    def __init__(self, client: VSphereClient, order: Order) -> None:
        self._client, self._order = client, order
        self._pause = threading.Event()
        self._template = client.at("DC0/vm/templates/ubuntu")
        self._folder = client.at("DC0/vm")
        self._pool = client.at("DC0/host/DC0_C0/Resources")
        self._datastore = client.at("DC0/datastore/LocalDS_0")
        group = client.at(_PORT_GROUP)
        found = client.read(group, "key", "config.distributedVirtualSwitch")
        switch = client.read(found["config.distributedVirtualSwitch"], "uuid")["uuid"]
        self._port = vim.dvs.PortConnection(switchUuid=switch, portgroupKey=found["key"])
        template = client.read(self._template, "config.hardware.device", "snapshot.currentSnapshot")
        self._snapshot = template.get("snapshot.currentSnapshot")
        self._cards = [
            device
            for device in template["config.hardware.device"]
            if isinstance(device, vim.vm.device.VirtualEthernetCard)
        ]

    def make(self, name: str) -> Any:  # noqa: ANN401 - a VirtualMachine
        """Make one VM and wait until it is on."""
        vm = self._done(self._template.CloneVM_Task(self._folder, name, self._spec()))
        if not self._order.on_in_clone:
            self._done(vm.PowerOnVM_Task())
        return vm

    def delete(self, vm: Any) -> None:  # noqa: ANN401 - a VirtualMachine
        """Switch one VM off and delete it."""
        self._done(vm.PowerOffVM_Task())
        self._done(vm.Destroy_Task())

    def _spec(self) -> Any:  # noqa: ANN401 - a CloneSpec
        identity, order = str(uuid.uuid4()), self._order
        linked = order.linked and self._snapshot is not None
        device = vim.vm.device
        cards: list[Any] = [
            device.VirtualDeviceSpec(operation="remove", device=card) for card in self._cards
        ]
        backing = device.VirtualEthernetCard.DistributedVirtualPortBackingInfo(port=self._port)
        plug = device.VirtualDevice.ConnectInfo(
            startConnected=True, connected=True, allowGuestControl=True
        )
        card = device.VirtualVmxnet3(
            key=-200, backing=backing, addressType="generated", connectable=plug
        )
        cards.append(device.VirtualDeviceSpec(operation="add", device=card))
        how = "createNewChildDiskBacking" if linked else "moveAllDiskBackingsAndDisallowSharing"
        return vim.vm.CloneSpec(
            location=vim.vm.RelocateSpec(
                pool=self._pool, datastore=self._datastore, diskMoveType=how
            ),
            snapshot=self._snapshot if linked else None,
            config=vim.vm.ConfigSpec(
                uuid=identity,
                instanceUuid=identity,
                numCPUs=order.cpus,
                memoryMB=order.memory_mib,
                deviceChange=cards,
                extraConfig=[
                    vim.option.OptionValue(key=key, value=value)
                    for key, value in order.extra_config.items()
                ],
            ),
            powerOn=order.on_in_clone,
            template=False,
        )

    def _done(self, task: Any) -> Any:  # noqa: ANN401 - a Task and its result
        while True:
            info = self._client.read(task, "info.state", "info.result", "info.error")
            if info["info.state"] == "success":
                return info.get("info.result")
            if info["info.state"] == "error":
                raise info["info.error"]
            self._pause.wait(_POLL_SECONDS)


def main() -> None:
    """Carry out the order."""
    order = Order(**json.loads(sys.stdin.readline()))
    with (
        VSphereClient(order.url, ca_pem=order.ca_pem, connections=THREADS) as client,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        raw = Raw(client.login(order.username, order.password), order)
        made: list[Any] = []
        _told({})
        sys.stdin.readline()
        _timed(lambda: made.extend(pool.map(raw.make, order.names)))
        sys.stdin.readline()
        _timed(lambda: list(pool.map(raw.delete, made)))
        sys.stdin.readline()
        client.content.sessionManager.Logout()


def _timed(work: Callable[[], object]) -> None:
    """Work, and tell when it began, how long it took and what it used."""
    began, cpu, clock = time.time(), time.process_time(), time.monotonic()
    work()
    seconds = time.monotonic() - clock
    used = {"cpu": time.process_time() - cpu, "rss": rss(os.getpid())}
    _told({"began": began, "seconds": seconds, **used})


def _told(figures: dict[str, float]) -> None:
    print(json.dumps(figures), flush=True)  # noqa: T201 - whoever ordered it reads it


if __name__ == "__main__":
    main()
