"""Which VM has a file attached: asked of the VMs of its datastore, a bounded number at a time.

What a VM has attached is remembered until its configuration changes, so only the first look at a
large datastore takes several steps.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import Found, read, read_one
from banlieue.sdk.errors import Transient

AT_ONCE = 400
"""VMs whose devices are read in one step; a few calls of a few hundred milliseconds."""


@dataclass(frozen=True, slots=True)
class _Vm:
    name: str
    version: str | None
    files: frozenset[str]


@dataclass(slots=True, kw_only=True)
class Holders:
    """Finds the VM that has a file. Thread-safe."""

    session: Session
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _known: dict[str, dict[str, _Vm]] = field(init=False, default_factory=dict)

    def find(self, path: str, store: str) -> str | None:
        """Name of the VM of a datastore, given by its id, that has the file; None when none has.

        VMs of others that the account may not see are passed over: on a shared datastore there are
        always some, and a file that one of them uses is locked.

        Raises:
            Transient: more VMs are to be asked than in one step; the next one goes on.
        """
        vms = read_one(self.session, store, vim.Datastore, ("vm",)).refs("vm")
        if not vms:
            return None
        now = {
            item.moid: (str(item.get("name")), _version(item))
            for item in self._read(vms, ("name", "config.changeVersion"))
        }
        known = self._still_valid(store, now)
        unknown = [key for key in now if key not in known]
        for item in self._read(unknown[:AT_ONCE], ("config.hardware.device",)):
            known[item.moid] = _Vm(*now[item.moid], files(item.get("config.hardware.device")))
        with self._lock:
            self._known[store] = known
        holder = next((vm.name for vm in known.values() if path in vm.files), None)
        if holder is None and len(unknown) > AT_ONCE:
            raise Transient(
                Reason.PROVIDER_BUSY,
                "the VMs of the datastore are being asked whether one has the disk; "
                f"{len(unknown) - AT_ONCE} are left",
            )
        return holder

    def _still_valid(self, store: str, now: Mapping[str, tuple[str, str | None]]) -> dict[str, _Vm]:
        """What is remembered of VMs that were not reconfigured since."""
        with self._lock:
            before = self._known.get(store, {})
        return {
            key: _Vm(name, version, before[key].files)
            for key, (name, version) in now.items()
            if key in before and version is not None and before[key].version == version
        }

    def _read(self, vms: Any, paths: tuple[str, ...]) -> list[Found]:  # noqa: ANN401 - ids
        return read(self.session, dict.fromkeys(vms, vim.VirtualMachine), paths) if vms else []


def _version(item: Found) -> str | None:
    version = item.get("config.changeVersion")
    return str(version) if version is not None else None


def files(attached: Any) -> frozenset[str]:  # noqa: ANN401 - VirtualDevices
    """Files of the disks of a VM, with those a linked clone or a snapshot stands on."""
    found = set()
    for device in attached or ():
        backing = getattr(device, "backing", None)
        while backing is not None:
            name = getattr(backing, "fileName", None)
            if name:
                found.add(str(name))
            backing = getattr(backing, "parent", None)
    return frozenset(found)
