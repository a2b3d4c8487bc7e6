"""Proofs that destroyed VMs are gone: for many together, and never more than was proved."""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, cast

import pytest
from pyVmomi import vim, vmodl

from banlieue.providers.vsphere.client.session import Content, Login, Session
from banlieue.providers.vsphere.places.privileges import READ
from banlieue.providers.vsphere.vms.absence import Absence
from banlieue.providers.vsphere.watching.census import Census, Entry
from banlieue.sdk.driver import MachineRef
from banlieue.sdk.identity import Owner

Native = Any
"""An object of the vendor's library, which has no types for them."""

PC = vmodl.query.PropertyCollector
CONTENT = Content("id", "8", "8", "root", "pc", "sm", "si", "vm", "tm", "am", "dm", "fm")
VMS = {f"vm-{number}": f"uuid-{number}" for number in range(6)}
OWNER = Owner("installation", "VirtualMachine", "team", "web")


class Server:
    """What a vCenter answers; also the session, whose calls it counts."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.there: set[str] = set()
        self.hidden: set[str] = set()
        self.used: set[str] = set()
        self.rights: Collection[str] = READ
        self.error: Exception | None = None
        self.on_rights: Callable[[], None] = lambda: None
        self.login = Login(1, "key", CONTENT, cast("Any", self), cast("Any", self))
        self._asked: list[str] = []

    def run(self, call: Callable[[Login], Native], *, reads: bool = False) -> Native:
        del reads
        return call(self.login)

    def InvokeMethod(self, mo: Native, info: Native, args: Native) -> Native:  # noqa: N802 - the seam
        self.calls[info.wsdlName] += 1
        if self.error is not None:
            raise self.error
        answer: Callable[..., Native] | None = getattr(self, f"on_{info.wsdlName}", None)
        return answer(mo, *args) if answer else None

    def InvokeAccessor(self, *_: Native) -> Native:  # noqa: N802 - the seam
        raise AssertionError("an attribute was read")

    def on_CreatePropertyCollector(self, *_: Native) -> Native:  # noqa: N802 - a method's name
        return PC("collector-1", self)

    def on_CreateFilter(self, _: Native, spec: Native, partial: Native) -> Native:  # noqa: N802 - a method's name
        del partial
        assert spec.reportMissingObjectsInResults
        self._asked = [item.obj._moId for item in spec.objectSet]

    def on_WaitForUpdatesEx(self, *_: Native) -> Native:  # noqa: N802 - a method's name
        missing = []
        for key in self._asked:
            managed = vim.VirtualMachine(key, None)
            if key in self.hidden:
                fault = vim.fault.NoPermission(object=managed, privilegeId="System.View")
                missing.append(PC.MissingObject(obj=managed, fault=fault))
            elif key not in self.there:
                gone = vmodl.fault.ManagedObjectNotFound(obj=managed)
                missing.append(PC.MissingObject(obj=managed, fault=gone))
        told = PC.FilterUpdate(filter=PC.Filter("filter-1", None), missingSet=missing)
        return PC.UpdateSet(version="1", filterSet=[told])

    def on_RetrievePropertiesEx(self, _: Native, specs: Native, options: Native) -> Native:  # noqa: N802 - a method's name
        del options
        (key,) = [item.obj._moId for item in specs[0].objectSet]
        if key not in self.there:
            raise vmodl.fault.ManagedObjectNotFound(obj=vim.VirtualMachine(key, None))
        return PC.RetrieveResult(objects=[PC.ObjectContent(obj=vim.VirtualMachine(key, None))])

    def on_FindAllByUuid(self, _: Native, datacenter: Native, uuid: str, *__: Native) -> Native:  # noqa: N802 - a method's name
        del datacenter
        return [vim.VirtualMachine("vm-x", None)] if uuid in self.used else []

    def on_HasPrivilegeOnEntities(self, *_: Native) -> Native:  # noqa: N802 - a method's name
        self.on_rights()
        return [
            vim.AuthorizationManager.EntityPrivilege(
                entity=vim.Folder("root", None),
                privAvailability=[
                    vim.AuthorizationManager.PrivilegeAvailability(privId=item, isGranted=True)
                    for item in self.rights
                ],
            )
        ]


class Bench:
    def __init__(self) -> None:
        self.server, self.now = Server(), 100.0
        self.entries: list[Entry] = [Entry("vm-77", "other", "uuid-77")]
        session = cast("Session", self.server)
        self.census = Census(session, lambda: self.now, lambda _: 0.0, lambda _: self.entries)
        self.absence = Absence(session=session, census=self.census, monotonic=lambda: self.now)

    def destroy(self, *vms: str) -> None:
        for vm in vms:
            self.absence.destroying(VMS[vm].upper(), vm)

    def proven(self, vm: str, *known: str) -> bool:
        ref = MachineRef(OWNER, 0, "web", VMS[vm], seen=True, backend_id=vm)
        return self.absence.is_proven(ref, known or (vm,))


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.destroy(*VMS)
    return bench


def test_all_that_left_together_are_proved_in_a_handful_of_calls(bench: Bench) -> None:
    bench.absence.left(VMS)
    assert sum(bench.server.calls.values()) == 5
    assert all(bench.proven(vm) for vm in VMS)
    assert not any(bench.proven(vm) for vm in VMS), "a proof serves once"


def test_a_few_are_asked_for_one_by_one(bench: Bench) -> None:
    bench.server.there = {"vm-1"}
    bench.absence.left(["vm-0", "vm-1"])
    assert dict(bench.server.calls) == {"RetrievePropertiesEx": 2, "HasPrivilegeOnEntities": 1}
    assert [bench.proven(vm) for vm in VMS] == [True, *[False] * 5]


def test_what_is_there_or_hidden_is_not_gone(bench: Bench) -> None:
    bench.server.there, bench.server.hidden = {"vm-1"}, {"vm-2"}
    bench.absence.left(VMS)
    assert [vm for vm in VMS if not bench.proven(vm)] == ["vm-1", "vm-2"]


def test_a_vm_that_is_registered_again_is_not_gone(bench: Bench) -> None:
    bench.entries.append(Entry("vm-88", "web", VMS["vm-3"]))
    bench.absence.left(VMS)
    assert [vm for vm in VMS if not bench.proven(vm)] == ["vm-3"]


def test_vms_whose_uuid_nobody_knows_have_the_vcenter_search(bench: Bench) -> None:
    bench.entries.append(Entry("vm-88", "web"))
    bench.server.used = {VMS["vm-3"]}
    bench.absence.left(VMS)
    assert bench.server.calls["FindAllByUuid"] == len(VMS)
    assert [vm for vm in VMS if not bench.proven(vm)] == ["vm-3"]


def test_nothing_is_proved_without_the_right_to_see_everything(bench: Bench) -> None:
    bench.server.rights = READ[:1]
    bench.absence.left(VMS)
    assert not any(bench.proven(vm) for vm in VMS)


def test_nothing_is_proved_over_the_end_of_a_session(bench: Bench) -> None:
    server = bench.server

    def renew() -> None:
        server.login = replace(server.login, number=server.login.number + 1)

    server.on_rights = renew
    bench.absence.left(VMS)
    assert not any(bench.proven(vm) for vm in VMS)
    server.on_rights = lambda: None
    bench.destroy(*VMS)
    bench.absence.left(VMS)
    renew()
    assert not any(bench.proven(vm) for vm in VMS)


@pytest.mark.parametrize("error", [ConnectionResetError(), vim.fault.NotAuthenticated()])
def test_what_cannot_be_asked_is_left_to_whoever_looks(bench: Bench, error: Exception) -> None:
    bench.server.error = error
    bench.absence.left(VMS)
    assert not any(bench.proven(vm) for vm in VMS)


def test_only_what_was_destroyed_by_us_is_asked_for(bench: Bench) -> None:
    bench.absence.left(["vm-5"])
    bench.absence.left(["vm-70", "vm-71", "vm-72"])
    assert not bench.server.calls
    assert not bench.proven("vm-5"), "one alone is not worth it"


def test_a_proof_is_of_one_id_and_ages(bench: Bench) -> None:
    bench.absence.left(VMS)
    assert not bench.proven("vm-0", "vm-0", "vm-99")
    never_seen = MachineRef(OWNER, 0, "web", VMS["vm-1"])
    assert not bench.absence.is_proven(never_seen, ["vm-1"])
    bench.now += 60
    assert not bench.proven("vm-2")
