"""Custom attributes: their definitions on the vCenter, and the values on VMs."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.soap import read_one
from banlieue.providers.vsphere.vms import facts
from banlieue.sdk.errors import FieldLacks


@dataclass(slots=True, kw_only=True)
class Attributes:
    """Knows definitions and sets values. Thread-safe."""

    session: Session
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _names: dict[int, str] = field(init=False, default_factory=dict)

    def of(self, values: Mapping[int, str]) -> dict[str, str]:
        """The values by name, as far as the definitions are known; makes no call."""
        return {self._names[key]: value for key, value in values.items() if key in self._names}

    def write(self, vm: str, wanted: Mapping[str, str], values: Any) -> bool:  # noqa: ANN401 - CustomFieldValues
        """Set those attributes of a VM that differ; whether there were any. A call for each.

        Raises `FieldLacks` for names that attributes of VMs cannot have.

        Args:
            vm: its managed object id.
            wanted: values by name.
            values: what it has, as it was read.
        """
        if not wanted:
            return False
        keys = self._keys(wanted)
        present = facts.values(values)
        differing = {
            keys[name]: value for name, value in wanted.items() if present.get(keys[name]) != value
        }
        for key, value in differing.items():
            self._set(vm, key, value)
        return bool(differing)

    def _set(self, vm: str, key: int, value: str) -> None:
        self._manage(lambda manager, on: manager.SetField(entity=on, key=key, value=value), vm)

    def _keys(self, wanted: Mapping[str, str]) -> dict[str, int]:
        """The keys of the definitions; one that is missing is made."""
        with self._lock:
            if not set(wanted) <= set(self._names.values()):
                self._names = self._read()
            for name in wanted:
                if name not in self._names.values():
                    self._define(name)
            by_name = {name: key for key, name in self._names.items()}
        taken = sorted(name for name in wanted if name not in by_name)
        if taken:
            raise FieldLacks(
                "customAttributes",
                Reason.INVALID_CONFIGURATION,
                f"{', '.join(taken)}: attributes of other kinds of objects have these names; "
                "choose others",
            )
        return {name: by_name[name] for name in wanted}

    def _define(self, name: str) -> None:
        try:
            made = self._manage(
                lambda manager, _: manager.AddCustomFieldDef(name=name, moType=vim.VirtualMachine)
            )
        except vim.fault.DuplicateName:
            self._names = self._read()  # somebody else was faster
        else:
            self._names[made.key] = name

    def _read(self) -> dict[int, str]:
        manager = self.session.login.content.custom_fields
        found = read_one(self.session, manager, vim.CustomFieldsManager, ("field",))
        return {
            definition.key: definition.name
            for definition in found.get("field") or ()
            if definition.managedObjectType in {None, vim.VirtualMachine}
        }

    def _manage(self, call: Callable[[Any, Any], Any], vm: str = "") -> Any:  # noqa: ANN401 - as the call answers
        def run(login: Login) -> Any:  # noqa: ANN401 - same
            manager = vim.CustomFieldsManager(login.content.custom_fields, login.ops)
            return call(manager, vim.VirtualMachine(vm, login.ops))

        return self.session.run(run)
