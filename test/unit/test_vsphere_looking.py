"""Reads of VMs that are asked for together: one call, and no VM's trouble is another's."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from pyVmomi import vim, vmodl

from banlieue.providers.vsphere.client.session import Content, Login, Session
from banlieue.providers.vsphere.client.transport import Unreadable
from banlieue.providers.vsphere.vms.looking import Look, Looks
from banlieue.sdk.errors import Transient
from test.kit.waiting import wait_until

Native = Any
"""An object of the vendor's library, which has no types for them."""

PC = vmodl.query.PropertyCollector
CONTENT = Content("id", "8", "8", "root", "pc", "sm", "si", "vm", "tm", "am", "dm", "fm")
PATIENCE = 20.0


class Server:
    """A session whose vCenter knows some VMs, with a task on each."""

    def __init__(self, *vms: str) -> None:
        self.vms = set(vms)
        self.troubles: dict[str, Exception] = {}
        self.reads: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.login = Login(1, "key", CONTENT, cast("Any", self), cast("Any", self))

    def run(self, call: Callable[[Login], Native], *, reads: bool = False) -> Native:
        del reads
        return call(self.login)

    def InvokeMethod(self, mo: Native, info: Native, args: Native) -> Native:  # noqa: N802 - the seam
        del mo, info
        asked = [item.obj._moId for item in args[0][0].objectSet]
        self.reads.append(asked)
        assert self.gate.wait(PATIENCE)
        for key in asked:
            if key in self.troubles:
                raise self.troubles[key]
            if key not in self.vms:
                raise vmodl.fault.ManagedObjectNotFound(obj=vim.VirtualMachine(key, None))
        contents = []
        for key in asked:
            task = vim.Task(f"task-{key}", None)
            found = {"name": key, "recentTask": cast("Any", vim.Task).Array([task])}
            state = vmodl.DynamicProperty(name="info.state", val="running")
            contents.append(PC.ObjectContent(obj=task, propSet=[state]))
            properties = [vmodl.DynamicProperty(name=k, val=v) for k, v in found.items()]
            contents.append(PC.ObjectContent(obj=vim.VirtualMachine(key, None), propSet=properties))
        return PC.RetrieveResult(objects=contents)

    def InvokeAccessor(self, *_: Native) -> Native:  # noqa: N802 - the seam
        raise AssertionError("an attribute was read")


def looks(server: Server) -> Looks:
    return Looks(cast("Session", server), lambda: 100.0, lambda: False)


def told(look: Look) -> tuple[str, list[str]]:
    assert look.vm is not None
    return look.vm.get("name"), [task.moid for task in look.tasks]


def together(server: Server, *keys: str) -> dict[str, Look | Exception]:
    """Ask for all of these while a first read is under way."""
    asked = looks(server)
    server.gate.clear()

    def ask(key: str) -> Look | Exception:
        try:
            return asked.at(key)
        except (vmodl.MethodFault, Unreadable, Transient, OSError) as error:
            return error

    with ThreadPoolExecutor(len(keys) + 1) as pool:
        first = pool.submit(ask, "vm-0")
        wait_until(lambda: server.reads, PATIENCE, "the first read")
        others = {key: pool.submit(ask, key) for key in keys}
        wait_until(lambda: len(asked._wishes) == len(keys), PATIENCE, "all to ask")
        server.gate.set()
        assert isinstance(first.result(), Look)
        return {key: future.result() for key, future in others.items()}


def test_those_that_come_during_a_read_share_the_next_one() -> None:
    server = Server("vm-0", "vm-1", "vm-2", "vm-3")
    found = together(server, "vm-1", "vm-2", "vm-3")
    assert server.reads == [["vm-0"], ["vm-1", "vm-2", "vm-3"]]
    for key, look in found.items():
        assert isinstance(look, Look)
        assert told(look) == (key, [f"task-{key}"]), "its own tasks and no others"


def test_one_that_is_gone_takes_no_other_with_it() -> None:
    server = Server("vm-0", "vm-1", "vm-3")
    found = together(server, "vm-1", "vm-2", "vm-3")
    assert isinstance(found["vm-2"], vmodl.fault.ManagedObjectNotFound)
    assert isinstance(found["vm-1"], Look)
    assert isinstance(found["vm-3"], Look)


@pytest.mark.parametrize("trouble", [Unreadable("x"), vim.fault.NoPermission()])
def test_one_that_cannot_be_read_hides_no_other(trouble: Exception) -> None:
    server = Server("vm-0", "vm-1", "vm-2")
    server.troubles = {"vm-2": trouble}
    found = together(server, "vm-1", "vm-2")
    assert isinstance(found["vm-1"], Look)
    assert found["vm-2"] is trouble


def test_no_answer_is_an_error_for_all_who_asked() -> None:
    server = Server("vm-0", "vm-1", "vm-2")
    server.troubles = {"vm-1": ConnectionResetError()}
    found = together(server, "vm-1", "vm-2")
    assert all(isinstance(error, ConnectionResetError) for error in found.values())
    assert told(looks(Server("vm-1")).at("vm-1"))


def test_something_else_that_is_gone_is_no_sign_that_the_vm_is() -> None:
    """The collector of a session that ended, say, or a task that was forgotten meanwhile."""
    server = Server("vm-1")
    other = vmodl.fault.ManagedObjectNotFound(obj=vim.Task("task-9", None))
    server.troubles = {"vm-1": other}
    with pytest.raises(Transient):
        looks(server).at("vm-1")
