"""No VM is touched that is not provably ours, and none counts as gone without proof."""

import pytest

from test.kit.installed import READY_SECONDS
from test.kit.running import VMS, Known, Running
from test.kit.stack import condition
from test.kit.waiting import wait_until
from test.kit.watched import AtWork

pytestmark = pytest.mark.slow

ORPHAN = {"spec": {"deletionPolicy": "Orphan"}}


@pytest.fixture
def running(at_work: AtWork) -> Running:
    """Shared: every test uses names of its own and leaves the Provider Ready."""
    return at_work.running


# Somebody else's


@pytest.mark.identity("2.4")
def test_a_vm_of_our_name_that_somebody_else_made_is_left_alone(running: Running) -> None:
    registered = running.registered
    running.provider.kill9()
    foreign = running.make_foreign(running.ref("taken").name)
    before = running.raw(foreign)
    running.provider.start()

    registered.create("taken")
    vm = running.wait_condition("taken", "Ready", "OwnershipConflict", status="False")
    assert vm["status"]["phase"] == "Failed"
    wait_until(lambda: _told(running, "OwnershipConflict"), READY_SECONDS, "an event")
    running.poke("taken")
    running.provider.kill9()
    running.provider.start()
    running.poke("taken")
    running.wait_condition("taken", "Ready", "OwnershipConflict", status="False")
    assert "instance" not in registered.machine("taken")["spec"], "it was given an identity"
    assert registered.vms_of("taken") == [before]

    registered.delete("taken")
    assert registered.vms_of("taken") == [before]


@pytest.mark.identity("0.4", "6.5")
def test_a_vm_without_its_mark_is_not_ours_any_more(running: Running) -> None:
    known = running.made("unmarked")
    running.unmark(known)
    before = running.raw(known.raw.id)
    running.poke("unmarked")
    running.wait_condition("unmarked", "Ready", "OwnershipConflict", status="False")
    running.kube.delete(VMS, "unmarked", running.namespace)
    running.wait_condition("unmarked", "Deleting", "OwnershipConflict", status="True")
    running.poke("unmarked")
    assert running.raw(known.raw.id) == before
    running.kube.patch(VMS, "unmarked", ORPHAN, running.namespace)
    running.registered.gone("unmarked")
    assert running.raw(known.raw.id) == before


@pytest.mark.identity("0.6")
def test_an_orphan_is_left_to_its_user_without_our_mark(running: Running) -> None:
    registered = running.registered
    known = running.made("orphan", deletionPolicy="Orphan")
    registered.delete("orphan")
    left = running.observed(known)
    assert left is not None
    assert left.mark is None
    assert left.power == "PoweredOn"
    (raw,) = registered.vms_of("orphan")
    assert (raw.id, raw.uuid, raw.name) == (known.raw.id, known.raw.uuid, known.raw.name)
    # It is the user's now: a new VirtualMachine of that name does not take it.
    registered.create("orphan")
    running.wait_condition("orphan", "Ready", "OwnershipConflict", status="False")
    registered.delete("orphan")
    assert registered.vms_of("orphan") == [raw]


# Gone, or only not to be seen


@pytest.mark.identity("4.3")
def test_a_vanished_vm_is_missed_and_never_made_again(running: Running) -> None:
    """Nor does a copy take its place: the copy's mark names the UUID of the original."""
    registered, target = running.registered, running.registered.target
    known = running.made("vanished")
    copy = target.copy(known.raw.id, f"{known.raw.name}-copy")
    before = running.raw(copy)
    target.remove(known.raw.id)
    running.poke("vanished")
    vm = running.wait_condition("vanished", "Ready", "VMMissing", status="False")
    assert vm["status"]["phase"] == "Failed"
    wait_until(lambda: _told(running, "VMMissing"), READY_SECONDS, "an event")
    running.provider.kill9()
    running.provider.start()
    running.poke("vanished")
    assert registered.machine("vanished")["spec"] == known.machine["spec"]
    assert condition(registered.find("vanished") or {}, "Ready") == ("False", "VMMissing")
    assert registered.vms_of("vanished") == [before]
    # That nothing of it is left is proven, so the objects may go.
    registered.delete("vanished")
    assert registered.vms_of("vanished") == [before]


@pytest.mark.identity("5.4")
def test_a_hidden_vm_is_neither_made_again_nor_released(running: Running) -> None:
    registered = running.registered
    known = running.made("hidden")
    with registered.target.hidden(known.raw.id):
        before = running.raw(known.raw.id)
        running.poke("hidden")
        running.wait_condition("hidden", "InfrastructureReady", "AbsenceUnproven")
        running.provider.kill9()
        running.provider.start()
        running.poke("hidden")
        assert condition(registered.find("hidden") or {}, "Ready")[0] != "True"

        running.kube.delete(VMS, "hidden", running.namespace)
        running.wait_condition("hidden", "Deleting", "AbsenceUnproven", status="True")
        running.poke("hidden")
        assert registered.machine("hidden")["metadata"]["finalizers"], "it was released"
        assert registered.vms_of("hidden") == [before]
    running.poke("hidden")
    registered.gone("hidden")
    assert registered.vms_of("hidden") == []
    _restart(running)


@pytest.mark.identity("6.7")
def test_release_is_the_way_out_for_a_vm_nobody_can_see(running: Running) -> None:
    registered = running.registered
    known = running.made("unseen")
    with registered.target.hidden(known.raw.id):
        before = running.raw(known.raw.id)
        running.kube.delete(VMS, "unseen", running.namespace)
        running.wait_condition("unseen", "Deleting", "AbsenceUnproven", status="True")
        running.kube.patch(VMS, "unseen", ORPHAN, running.namespace)
        registered.gone("unseen")
        assert registered.vms_of("unseen") == [before]
    _restart(running)


# Another backend at the endpoint


@pytest.mark.identity("5.1")
def test_another_backend_at_the_endpoint_is_left_alone(running: Running) -> None:
    """Whether it comes while we work or we start before it: what it lacks proves nothing."""
    target = running.registered.target
    kept, _ = running.made("kept"), running.made("leaving")
    with target.other_identity():
        before = {vm.id: vm for vm in target.vms()}
        _assert_held(running)
        running.provider.kill9()
        running.provider.start(ready=False)
        _assert_held(running)
        assert {vm.id: vm for vm in target.vms()} == before
    _restart(running)
    _assert_taken_up(running, kept)


def _assert_held(running: Running) -> None:
    """Nothing is made, nothing is released, whether it lives or is being deleted."""
    # At once, before anybody had the time to notice.
    running.kube.delete(VMS, "leaving", running.namespace)
    running.registered.create("new")
    running.wait_condition("kept", "InfrastructureReady", "BackendIdentityChanged")
    running.wait_condition("leaving", "Deleting", "BackendIdentityChanged", status="True")
    running.poke("leaving")
    running.poke("kept")
    for name in ("kept", "leaving"):
        assert running.registered.machine(name)["metadata"]["finalizers"], "it was released"


def _assert_taken_up(running: Running, kept: Known) -> None:
    registered = running.registered
    running.same(kept)
    registered.ready("new")
    registered.gone("leaving")
    assert registered.vms_of("leaving") == []
    for name in ("kept", "new"):
        registered.delete(name)
        assert registered.vms_of(name) == []


def _restart(running: Running) -> None:
    """Have the provider ask at once what it may see, and wait until the Provider is Ready."""
    running.provider.kill9()
    running.provider.start()
    running.registered.provider_ready()


def _told(running: Running, reason: str) -> bool:
    events = running.kube.list("events.events.k8s.io", running.namespace)
    return any(event.get("reason") == reason for event in events)
