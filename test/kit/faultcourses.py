"""The courses of a VM's life, each call of which is disturbed in its turn."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from banlieue.api.meta import format_time
from banlieue.sdk.driver import Driver
from banlieue.sdk.errors import DriverError
from banlieue.sdk.powers import DiskKeeper
from test.kit import soaprules
from test.kit.faultmatrix import Course, Life, Step
from test.kit.waiting import wait_until_async

_ROOT: Final = {"name": "root", "storageClass": "gold"}
_DATA: Final = {"name": "data", "sizeGiB": 1, "storageClass": "gold"}


async def _toggle(life: Life) -> None:
    """What shows that calls, tasks and the watch work: the machine is made, or its power moves."""
    if not life.alive:
        await life.make()
        return
    name = await life.one()
    running = life.bench.vm(name).power_state == "poweredOn"
    await life.power("PoweredOff" if running else "PoweredOn", powerOffMode="Hard")


# Sessions


async def reopening(life: Life) -> None:
    """The opening of a session, or of its watch, is disturbed."""
    await asyncio.to_thread(life.bench.stop)
    life.arm()
    life.started = True
    await asyncio.to_thread(life.bench.start)
    await life.met()
    await _toggle(life)


async def ending(life: Life) -> None:
    """The end of a session is disturbed; the next process goes on."""
    await life.start()
    life.arm()
    await asyncio.to_thread(life.bench.restart)
    await _toggle(life)


async def rewatching(life: Life) -> None:
    """The end of a watch that is built anew is disturbed."""
    await life.start()
    life.arm()
    life.bench.target.proxy.add(
        soaprules.fault(
            "WaitForUpdatesEx", "InvalidCollectorVersion", count=max(1, len(life.faults))
        )
    )
    await life.met()
    await _toggle(life)


async def making_first(life: Life) -> None:
    """The first create of a process is disturbed."""
    await life.start()
    await asyncio.to_thread(life.bench.restart)
    life.arm()
    await life.delete(await life.make("first"))


# One VM after the other


def making_with(suffix: str, spec: Callable[[str], Mapping[str, object]]) -> Step:
    """The create of a machine that asks for something is disturbed; its name gives the spec."""

    async def run(life: Life) -> None:
        await life.start()
        life.arm()
        await life.delete(await life.make(suffix, **spec(f"{life.name}-{suffix}")))

    return run


def making(suffix: str) -> Step:
    """The create of a plain machine is disturbed."""
    return making_with(suffix, lambda _: {})


async def destroying_one(life: Life) -> None:
    """The deletion of a machine is disturbed."""
    name = await life.make("doomed")
    life.arm()
    await life.delete(name)


def keeping(suffix: str) -> Step:
    """The deletion of a VM with a disk to retain is disturbed."""

    async def run(life: Life) -> None:
        data = {**_DATA, "reclaimPolicy": "Retain"}
        name = await life.make(suffix, disks=[_ROOT, data], powerState="PoweredOff")
        life.arm()
        await life.delete(name)

    return run


async def listing(life: Life) -> None:
    """The search for kept disks is disturbed."""
    await life.start()
    life.arm()

    def kept(driver: Driver[Any]) -> bool:
        assert isinstance(driver, DiskKeeper)
        return driver.kept_disks("installation-1") is not None

    async def known() -> bool:
        return await life.bench.open_one().call(kept)

    await wait_until_async(known, 20.0, "the kept disks", retry_on=(DriverError,))


# One VM


async def making_one(life: Life) -> None:
    """The create of the machine that all further steps are about is disturbed."""
    await life.start()
    life.arm()
    await life.make()


async def reconfiguring(life: Life) -> None:
    """A change of hardware is disturbed."""
    name, bench = await life.one(), life.bench
    life.arm()
    bench.edit(name, disks=[_ROOT, _DATA])
    await bench.until("two disks", lambda: bench.is_ready(name) and len(bench.vm(name).disks) == 2)


def powering(state: str, **spec: object) -> Step:
    """A change of power of a VM that runs is disturbed."""

    async def run(life: Life) -> None:
        await life.runs()
        life.arm()
        await life.power(state, **spec)

    return run


async def starting(life: Life) -> None:
    """The start of a VM is disturbed."""
    name = await life.one()
    if life.bench.vm(name).power_state == "poweredOn":
        await life.power("PoweredOff", powerOffMode="Hard")
    life.arm()
    await life.power("PoweredOn")


def restarting(mode: str) -> Step:
    """A restart is disturbed."""

    async def run(life: Life) -> None:
        bench, name = life.bench, await life.runs()
        bench.edit(name, powerOffMode=mode)
        await bench.until("the mode", lambda: bench.is_ready(name))
        bench.clock.advance(60)
        await bench.run_pass(name)
        at = format_time(bench.clock.now() - timedelta(seconds=1))
        life.arm()
        bench.edit(name, restartAt=at)
        await bench.until(
            "the restart",
            lambda: (
                bench.is_ready(name) and bench.machine(name)["status"].get("lastRestartTime") == at
            ),
        )

    return run


async def destroying(life: Life) -> None:
    """The deletion of the machine that all steps were about is disturbed."""
    name = await life.one()
    life.arm()
    await life.delete(name)


def _folder(name: str) -> Mapping[str, object]:
    return {"folder": name, "folderPolicy": "Create"}


def _attributes(name: str) -> Mapping[str, object]:
    return {"customAttributes": {name: "web"}}


def _upgrade(_: str) -> Mapping[str, object]:
    return {"hardwareVersion": "vmx-19"}


COURSES: Final[Mapping[str, Course]] = {
    "session": {
        "RetrieveServiceContent": reopening,
        "Login": reopening,
        "CreateListView": reopening,
        "CreatePropertyCollector": reopening,
        "CreateFilter": reopening,
        "Logout": ending,
        "DestroyPropertyCollector": rewatching,
        "DestroyView": rewatching,
        "HasPrivilegeOnEntities": making_first,
    },
    "power": {
        "CloneVM_Task": making_one,
        "ReconfigVM_Task": reconfiguring,
        "SuspendVM_Task": powering("Suspended"),
        "PowerOnVM_Task": starting,
        "ShutdownGuest": powering("PoweredOff", powerOffMode="TrySoft"),
        "PowerOffVM_Task": powering("PoweredOff", powerOffMode="Hard"),
        "ResetVM_Task": restarting("Hard"),
        "RebootGuest": restarting("TrySoft"),
        "Destroy_Task": destroying,
    },
    "making": {
        "WaitForUpdatesEx": making("poll"),
        "ModifyListView": making("view"),
        "RetrievePropertiesEx": making("read"),
        "FindAllByUuid": destroying_one,
        "CreateFolder": making_with("folder", _folder),
    },
    "fields": {
        "AddCustomFieldDef": making_with("name", _attributes),
        "SetField": making_with("value", _attributes),
        "QueryConfigOptionDescriptor": making_with("version", _upgrade),
        "UpgradeVM_Task": making_with("upgrade", _upgrade),
    },
    "disks": {
        "MakeDirectory": keeping("folder"),
        "MoveVirtualDisk_Task": keeping("move"),
        "QueryVirtualDiskUuid": keeping("uuid"),
        "SearchDatastoreSubFolders_Task": listing,
    },
    "large": {
        "ContinueRetrievePropertiesEx": making("pages"),
        "FindChild": making("child"),
    },
}
"""Every call that a machine's life takes, but those to services of their own."""


LEFT_OUT: Final[Mapping[str, str]] = {
    "CreateDirectory": "only vSAN has it, which the simulator has not",
    "DELETE /rest/com/vmware/cis/session": "the end of a session that nobody waits for",
}
"""Calls that no step disturbs, and why."""
