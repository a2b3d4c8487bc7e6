"""Whatever was lost or brought back, a VirtualMachine ends as the same one VM, untouched.

The losses that come with an outage of everything come with one: each VirtualMachine lost something
else while neither controller nor provider ran, the Provider went as well and comes back last, and
each test looks at one of them afterwards. The same on the simulated backend, without processes and
in more orders: `test/unit/test_restore_orders.py`.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import pytest

from test.kit.backup import restore, restore_all, saved, tear_out, wipe_status
from test.kit.controlplane import ControlPlane
from test.kit.installed import READY_SECONDS
from test.kit.running import VMS, Known, Running
from test.kit.stack import condition, is_ready
from test.kit.targets import REAL, new_target
from test.kit.waiting import wait_until
from test.kit.watched import AtWork, watched

pytestmark = pytest.mark.slow

Loss = Callable[[Running, Known], None]


def _wipe(running: Running, known: Known) -> None:
    for kind in (VMS, running.registered.plural):
        wipe_status(running.kube, kind, known.name, running.namespace)


def _lose(running: Running, known: Known) -> None:
    """The store lost both objects. The machine first: else the garbage collector takes it."""
    for kind in (running.registered.plural, VMS):
        tear_out(running.kube, kind, known.name, running.namespace)


def _restore_both(running: Running, known: Known, *, status: bool, owners: bool) -> None:
    _lose(running, known)
    restore(running.kube, saved(known.vm, status=status))
    restore(running.kube, saved(known.machine, status=status, owners=owners))


def _restore_vm(running: Running, known: Known, *, status: bool) -> None:
    _lose(running, known)
    restore(running.kube, saved(known.vm, status=status))


def _restore_machine(running: Running, known: Known, *, owners: bool) -> None:
    _lose(running, known)
    restore(running.kube, saved(known.machine, status=False, owners=owners))


COLLECTED: Final = ("stale-with-status", "stale-without-status", "machine-collected")
"""These came back with the uid of an owner that is gone."""

LOSSES: Final[Mapping[str, Loss]] = {
    "wiped": _wipe,
    "whole": partial(_restore_both, status=True, owners=False),
    "stale-with-status": partial(_restore_both, status=True, owners=True),
    "stale-without-status": partial(_restore_both, status=False, owners=True),
    "vm-with-status": partial(_restore_vm, status=True),
    "vm-without-status": partial(_restore_vm, status=False),
    "machine-collected": partial(_restore_machine, owners=True),
    "machine-kept": partial(_restore_machine, owners=False),
}


@pytest.fixture(scope="module", params=REAL)
def at_work(
    request: pytest.FixtureRequest,
    control_plane: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[AtWork]:
    """banlieue at work on what people run; all tests share it."""
    directory = tmp_path_factory.mktemp(f"{request.param}-restores")
    with (
        new_target(request.param, directory) as target,
        watched(control_plane, directory, target) as found,
    ):
        yield AtWork(found, Running.start(found.registered))


@pytest.fixture(scope="module")
def survivors(at_work: AtWork) -> Mapping[str, Known]:
    """The VirtualMachines as they were before the outage, by what each lost."""
    running = at_work.running
    known = running.made_together(LOSSES)
    running.stop()
    for name, lose in LOSSES.items():
        lose(running, known[name])
    wait_until(
        lambda: all(_is_leaving(running, name) for name in COLLECTED),
        READY_SECONDS,
        "the garbage collector to find owners missing",
    )
    registered = running.registered
    system = registered.stack.namespace
    provider = running.kube.get("providers", registered.provider, system)
    tear_out(running.kube, "providers", registered.provider, system)
    for role in (running.controller, running.provider):
        role.start(ready=False)
    registered.wait("vm-without-status", _is_unplaced, READY_SECONDS, "waiting for its Provider")
    restore(running.kube, saved(provider, status=False))
    registered.provider_ready()
    return known


def _is_unplaced(vm: Mapping[str, Any]) -> bool:
    return condition(vm, "Scheduled")[0] == "False"


@pytest.fixture
def running(at_work: AtWork) -> Running:
    """Shared: every test uses names of its own."""
    return at_work.running


# After the outage


@pytest.mark.identity("12.5", "9.1")
@pytest.mark.parametrize("name", ["wiped", "whole"])
def test_what_is_still_or_again_there_is_taken_up(
    running: Running, survivors: Mapping[str, Known], name: str
) -> None:
    running.same(survivors[name])
    _destroy(running, survivors[name])


@pytest.mark.identity("12.5", "6.3")
@pytest.mark.parametrize("name", ["stale-with-status", "stale-without-status"])
def test_a_machine_object_with_the_uid_of_a_former_owner_is_made_anew(
    running: Running, survivors: Mapping[str, Known], name: str
) -> None:
    """The garbage collector deleted it; the VM was let go untouched and found again."""
    machine = running.same(survivors[name])
    assert machine["spec"]["virtualMachineRef"]["uid"] == _uid_of(running, VMS, name)
    _destroy(running, survivors[name])


@pytest.mark.identity("12.5", "2.3")
@pytest.mark.parametrize("name", ["vm-with-status", "vm-without-status"])
def test_a_virtual_machine_may_come_before_its_machine_object(
    running: Running, survivors: Mapping[str, Known], name: str
) -> None:
    known = survivors[name]
    running.same(known)
    restore_all(running.kube, [saved(known.machine)])
    running.poke(name)
    running.same(known)
    _destroy(running, known)


@pytest.mark.identity("12.5", "1.3")
@pytest.mark.parametrize("name", ["machine-collected", "machine-kept"])
def test_a_machine_object_may_come_before_its_virtual_machine(
    running: Running, survivors: Mapping[str, Known], name: str
) -> None:
    """A backup tool that drops owner references leaves it alone; else the collector takes it."""
    known, plural = survivors[name], running.registered.plural
    if name in COLLECTED:
        running.kube.wait_gone(plural, name, running.namespace, timeout=READY_SECONDS)
    else:
        running.kube.wait_for(
            plural, name, running.namespace, until=is_ready, timeout=READY_SECONDS
        )
        alone = _uid_of(running, plural, name)
    assert running.registered.vms_of(name) == [known.raw]
    restore(running.kube, saved(known.vm, status=False))
    machine = running.same(known)
    if name not in COLLECTED:
        assert machine["metadata"]["uid"] == alone, "it was not taken up, but made anew"
    _destroy(running, known)


# At work


def test_a_wiped_status_comes_back(running: Running) -> None:
    known = running.made("at-work")
    for kind in (VMS, running.registered.plural):
        wipe_status(running.kube, kind, "at-work", running.namespace)
        running.same(known)
    _destroy(running, known)


def test_a_machine_object_deleted_by_hand_is_made_anew(running: Running) -> None:
    known, registered = running.made("by-hand"), running.registered
    registered.stack.control_plane.kubectl(
        "delete", registered.plural, "by-hand", "-n", running.namespace
    )
    machine = running.same(known)
    assert machine["metadata"]["uid"] != known.machine["metadata"]["uid"]
    _destroy(running, known)


def test_a_machine_object_torn_out_past_its_finalizers_is_made_anew(running: Running) -> None:
    known = running.made("torn")
    tear_out(running.kube, running.registered.plural, "torn", running.namespace)
    machine = running.same(known)
    assert machine["metadata"]["uid"] != known.machine["metadata"]["uid"]
    _destroy(running, known)


def _uid_of(running: Running, kind: str, name: str) -> str:
    uid: str = running.kube.get(kind, name, running.namespace)["metadata"]["uid"]
    return uid


def _is_leaving(running: Running, name: str) -> bool:
    machine = running.kube.get(running.registered.plural, name, running.namespace)
    return bool(machine["metadata"].get("deletionTimestamp"))


def _destroy(running: Running, known: Known) -> None:
    """What was found again is still ours to destroy."""
    running.registered.delete(known.name)
    assert running.registered.vms_of(known.name) == []
