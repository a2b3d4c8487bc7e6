"""The main job on real processes: one VirtualMachine is one VM, and then none, through crashes."""

from collections.abc import Callable
from functools import partial

import pytest

from test.kit.apiproxy import ApiProxy, Fate, Moment, Write
from test.kit.installed import READY_SECONDS, Registered
from test.kit.running import Known, Running
from test.kit.stack import Role, condition, is_ready
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

KILLED_ON = ["vsphere"]
"""Where roles are killed at every write; simulated schedules do it on the simulated backend."""


def test_three_vms_become_ready_and_are_deleted_without_a_trace(registered: Registered) -> None:
    stack = registered.stack
    stack.controller().start()
    stack.provider(registered.target.backend.name).start()
    registered.provider_ready()
    before = {vm.id: vm.fingerprint for vm in registered.target.vms()}

    names = ("one", "two", "three")
    for name in names:
        registered.create(name)
    for name in names:
        vm = registered.ready(name)
        assert vm["status"]["addresses"]
        assert vm["status"]["observedPowerState"] == "PoweredOn"
        assert vm["status"]["phase"] == "Running"
        assert len(registered.vms_of(name)) == 1
        assert condition(vm, "Scheduled")[0] == "True"
    for name in names:
        registered.delete(name)
    assert {vm.id: vm.fingerprint for vm in registered.target.vms()} == before


def test_an_interface_comes_and_goes_while_the_vm_runs(running: Running) -> None:
    registered = running.registered
    network = registered.target.connection().capabilities.network_classes[0].name
    known = running.made("web")
    registered.target.attach_foreign_interface(known.raw.id)
    for wanted in (["eth1"], ["eth1", "eth2"], []):
        own = [{"name": name, "networkClass": network} for name in wanted]
        registered.create("web", networkInterfaces=own)
        names = {"eth0", None, *wanted}
        wait_until(lambda: _interfaces(running, known) == names, READY_SECONDS, f"{names}")  # noqa: B023 - asked within the turn
        vm = registered.ready("web")
        running.wait_condition("web", "UpToDate", "UpToDate", status="True")
        assert vm["status"]["observedPowerState"] == "PoweredOn"
    assert len(registered.vms_of("web")) == 1
    registered.delete("web")
    assert registered.vms_of("web") == []


def _interfaces(running: Running, known: Known) -> set[str | None]:
    state = running.observed(known)
    assert state is not None
    return {nic.name for nic in state.nics or ()}


def test_a_create_whose_reply_was_lost_ends_in_one_vm(registered: Registered) -> None:
    registered.stack.controller().start()
    provider = registered.stack.provider(registered.target.backend.name).start()
    registered.provider_ready()
    for name, killed in (("lost", False), ("lost-and-killed", True)):
        registered.target.lose_next_create_reply()
        registered.create(name)
        if killed:
            wait_until(partial(registered.vms_of, name), READY_SECONDS, "a VM")
            provider.kill9()
            provider.start()
        registered.ready(name, 180)
        assert len(registered.vms_of(name)) == 1
        registered.delete(name)
        assert registered.vms_of(name) == []


@pytest.mark.parametrize("backend_kind", KILLED_ON)
def test_a_provider_killed_at_any_write_leaves_one_vm_then_none(registered: Registered) -> None:
    with ApiProxy(registered.stack.control_plane) as proxy:
        controller = registered.stack.controller().start()
        provider = registered.stack.provider(registered.target.backend.name, via=proxy).start()
        registered.provider_ready()
        registered.create("warm-up")
        registered.ready("warm-up")
        _kill_at_every_write(registered, proxy, provider)
        assert controller.process.running


@pytest.mark.parametrize("backend_kind", KILLED_ON)
def test_a_controller_killed_at_any_write_leaves_one_vm_then_none(registered: Registered) -> None:
    with ApiProxy(registered.stack.control_plane) as proxy:
        registered.stack.provider(registered.target.backend.name).start()
        controller = registered.stack.controller(via=proxy).start()
        registered.provider_ready()
        registered.create("warm-up")
        registered.ready("warm-up")
        _kill_at_every_write(registered, proxy, controller)


def _kill_at_every_write(registered: Registered, proxy: ApiProxy, role: Role) -> None:
    """Kill the role at its n-th write of a VM's life, for every n there is; one VM, then none."""
    for moment in Moment:
        killed_in: list[str] = []
        while (part := _live_through_kill(registered, proxy, role, len(killed_in), moment)) != "":
            killed_in.append(part)
        assert killed_in.count("create") > 1
        assert killed_in.count("delete") > 0


def _live_through_kill(
    registered: Registered, proxy: ApiProxy, role: Role, number: int, moment: Moment
) -> str:
    """The part of the life in which the role was killed; empty when it wrote less than that."""
    name = f"vm-{number}-{moment.name.lower()}"
    before = {vm.id for vm in registered.target.vms()}

    def made() -> list[str]:
        """Names of the VMs that are there because of it, whatever they are called."""
        return [vm.name for vm in registered.target.vms() if vm.id not in before]

    fired = _kill_at(proxy, role, number, moment)
    registered.create(name)
    _through_kill(role, lambda: is_ready(registered.find(name) or {"metadata": {}}), "Ready")
    killed_in = "create" if fired else ""
    assert made() == [vm.name for vm in registered.vms_of(name)]
    assert len(made()) == 1
    registered.kube.delete("virtualmachines", name, registered.namespace)
    _through_kill(role, lambda: registered.find(name) is None, "gone")
    registered.gone(name)
    assert made() == []
    proxy.reset()
    return killed_in or ("delete" if fired else "")


def _through_kill(role: Role, done: Callable[[], bool], what: str) -> None:
    """Wait for `done`, starting the role again if it was killed meanwhile."""
    wait_until(lambda: done() or not role.process.running, READY_SECONDS, what)
    if not role.process.running:
        role.start()
    wait_until(done, READY_SECONDS, what)


def _kill_at(proxy: ApiProxy, role: Role, number: int, moment: Moment) -> list[Write]:
    fired: list[Write] = []
    proxy.reset()

    def hook(write: Write, now: Moment) -> Fate:
        if write.number == number and now is moment and not fired:
            fired.append(write)
            role.kill9()
            return Fate.CUT
        return Fate.PASS

    proxy.hook = hook
    return fired
