"""Takes the secrets of the first boot off a VM, and proves by a read that they are gone."""

from dataclasses import dataclass
from typing import Any

from pyVmomi import vim

from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import read_one
from banlieue.providers.vsphere.vms import firstboot
from banlieue.providers.vsphere.vms.work import Work
from banlieue.providers.vsphere.watching.records import VmRecord, extra_config
from banlieue.sdk.driver import MachineRef, Task
from banlieue.sdk.errors import Foreign
from banlieue.sdk.identity import Mark, valid_mark

_PATHS = {key: extra_config(key) for key in firstboot.SECRET_KEYS}


@dataclass(slots=True, kw_only=True)
class Redacting:
    """Clears user data, vendor data and Ignition configurations. Thread-safe."""

    session: Session
    work: Work

    def redact(self, ref: MachineRef) -> Task | None:
        """Clear what is secret; None when a read of just those keys finds nothing under any.

        The vCenter refuses the call when the VM was reconfigured since it was looked at.

        Raises:
            Foreign: the VM's mark is not that of the machine's owner.
            Transient: somebody else's task runs on the VM.
        """
        live = self.work.own_of(ref)
        if live is None:
            return None
        record = live.record
        mark = Mark.decode(record.mark)
        if mark is None or not valid_mark(mark, record.uuid or "") or mark.owner != ref.owner:
            raise Foreign(
                f"the mark of VM {record.name} is not this machine's; its first-boot data is left "
                "alone"
            )
        busy = self.work.busy(live)
        if busy is not None:
            return busy
        left = self._left(record)
        seen = firstboot.seed(record.stage, record.word, record.uuid)
        if not left and not (seen is not None and seen.kept):
            return None
        values = {
            **dict.fromkeys(left, ""),  # an empty value takes a key away
            firstboot.STAGE_KEY: firstboot.redacted(seen),
        }
        spec = vim.vm.ConfigSpec(
            extraConfig=[
                vim.option.OptionValue(key=key, value=value) for key, value in values.items()
            ],
            changeVersion=record.change_version,
        )
        return self.work.reconfigure(record.moid, "redact-seed", spec)

    def _left(self, record: VmRecord) -> list[str]:
        """The keys under which something is left; values are looked at and let go.

        What cannot be read is not taken for gone.
        """
        found = read_one(self.session, record.moid, vim.VirtualMachine, tuple(_PATHS.values()))
        for path in _PATHS.values():
            if path in found.faults:
                raise found.faults[path]
        texts = {key: _text(found.get(path)) for key, path in _PATHS.items()}
        return [key for key, text in texts.items() if not firstboot.is_gone(text)]


def _text(option: Any) -> str:  # noqa: ANN401 - an OptionValue or None
    value = getattr(option, "value", option)
    return "" if value is None else str(value)
