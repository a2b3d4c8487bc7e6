"""Whatever was lost or brought back, the VirtualMachine ends as the same one VM, untouched."""

import pytest

from test.kit.backup import restore, restore_all, saved, tear_out, wipe_status
from test.kit.installed import READY_SECONDS
from test.kit.running import VMS, Known, Running
from test.kit.stack import condition
from test.kit.waiting import wait_until
from test.kit.watched import AtWork

pytestmark = pytest.mark.slow


@pytest.fixture
def running(at_work: AtWork) -> Running:
    """Shared: every test uses names of its own."""
    return at_work.running


def test_status_wiped_at_work(running: Running) -> None:
    known = running.made("wiped")
    for kind in (VMS, running.registered.plural):
        wipe_status(running.kube, kind, "wiped", running.namespace)
        running.same(known)
    _destroy(running, known)


def test_status_wiped_while_nobody_looked(running: Running) -> None:
    known = running.made("wiped-apart")
    running.stop()
    for kind in (VMS, running.registered.plural):
        wipe_status(running.kube, kind, "wiped-apart", running.namespace)
    running.resume()
    running.same(known)
    _destroy(running, known)


def test_machine_object_deleted_by_hand(running: Running) -> None:
    known, registered = running.made("by-hand"), running.registered
    registered.stack.control_plane.kubectl(
        "delete", registered.plural, "by-hand", "-n", running.namespace
    )
    machine = running.same(known)
    assert machine["metadata"]["uid"] != known.machine["metadata"]["uid"]
    _destroy(running, known)


def test_machine_object_torn_out_past_its_finalizers(running: Running) -> None:
    known = running.made("torn")
    tear_out(running.kube, running.registered.plural, "torn", running.namespace)
    machine = running.same(known)
    assert machine["metadata"]["uid"] != known.machine["metadata"]["uid"]
    _destroy(running, known)


@pytest.mark.parametrize("status", [True, False], ids=["with-status", "without-status"])
def test_machine_object_restored_with_the_uid_of_a_former_owner(
    running: Running, *, status: bool
) -> None:
    name = "stale-1" if status else "stale-2"
    known = running.made(name)
    running.stop()
    _lose(running, known)
    restore(running.kube, saved(known.vm, status=status))
    restored = restore(running.kube, saved(known.machine, status=status))
    uid = restored["metadata"]["uid"]
    _await_garbage_collector(running, name)
    running.resume()
    machine = running.same(known)
    assert machine["metadata"]["uid"] not in {uid, known.machine["metadata"]["uid"]}
    _destroy(running, known)


@pytest.mark.parametrize("status", [True, False], ids=["with-status", "without-status"])
def test_virtual_machine_restored_before_its_machine_object(
    running: Running, *, status: bool
) -> None:
    name = "first-1" if status else "first-2"
    known = running.made(name)
    running.stop()
    _lose(running, known)
    running.resume()
    restore(running.kube, saved(known.vm, status=status))
    running.same(known)
    restore_all(running.kube, [saved(known.machine, status=status)])
    running.poke(name)
    running.same(known)
    _destroy(running, known)


@pytest.mark.parametrize("collected", [True, False], ids=["collected", "kept"])
def test_machine_object_restored_before_its_virtual_machine(
    running: Running, *, collected: bool
) -> None:
    """A backup tool that drops owner references leaves it alone; else the collector takes it."""
    name = "later-1" if collected else "later-2"
    known, registered = running.made(name), running.registered
    running.stop()
    _lose(running, known)
    running.resume()
    restored = restore(running.kube, saved(known.machine, status=False, owners=collected))
    if collected:
        running.kube.wait_gone(registered.plural, name, running.namespace, timeout=READY_SECONDS)
    else:
        running.kube.wait_for(
            registered.plural,
            name,
            running.namespace,
            until=lambda obj: condition(obj, "Ready")[0] == "True",
            timeout=READY_SECONDS,
        )
    assert registered.vms_of(name) == [known.raw]
    restore(running.kube, saved(known.vm, status=False))
    machine = running.same(known)
    kept = machine["metadata"]["uid"] == restored["metadata"]["uid"]
    assert kept is not collected
    _destroy(running, known)


def test_everything_restored_while_nobody_looked(running: Running) -> None:
    known = running.made("whole")
    running.stop()
    _lose(running, known)
    restore_all(running.kube, [saved(known.machine, owners=False), saved(known.vm)])
    running.resume()
    running.same(known)
    _destroy(running, known)


def _lose(running: Running, known: Known) -> None:
    """The store lost both objects; the VM is still there."""
    # The machine first: without its owner the collector would take it.
    for kind in (running.registered.plural, VMS):
        tear_out(running.kube, kind, known.name, running.namespace)
    assert running.registered.vms_of(known.name) == [known.raw]


def _await_garbage_collector(running: Running, name: str) -> None:
    plural, namespace = running.registered.plural, running.namespace
    wait_until(
        lambda: running.kube.get(plural, name, namespace)["metadata"].get("deletionTimestamp"),
        READY_SECONDS,
        "the garbage collector to find the owner missing",
    )


def _destroy(running: Running, known: Known) -> None:
    """What was found again is still ours to destroy."""
    running.registered.delete(known.name)
    assert running.registered.vms_of(known.name) == []
