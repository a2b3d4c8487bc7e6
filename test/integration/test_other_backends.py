"""Another backend at the endpoint, another VM under the name: nothing is made or let go."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from banlieue.sdk.testing.conformance_target import RawVm
from test.kit.apiproxy import ApiProxy, Fate, Moment, Write
from test.kit.controlplane import ControlPlane
from test.kit.installed import READY_SECONDS, Registered
from test.kit.running import VMS, Known, Running
from test.kit.simulated import WorldProcess
from test.kit.stack import condition
from test.kit.waiting import wait_until
from test.kit.watched import watched

pytestmark = pytest.mark.slow

ORPHAN = {"spec": {"deletionPolicy": "Orphan"}}


def test_another_backend_at_the_endpoint_is_left_alone(running: Running) -> None:
    target = running.registered.target
    kept, _ = running.made("kept"), running.made("leaving")
    with target.other_identity():
        before = _by_id(target.vms())
        running.provider.kill9()
        running.provider.start(ready=False)
        _provider_says(running, "BackendIdentityChanged")
        _assert_held(running)
        assert _by_id(target.vms()) == before
    running.provider.kill9()
    running.provider.start()
    running.registered.provider_ready()
    _assert_taken_up(running, kept)


def test_another_backend_that_comes_while_we_work_is_left_alone(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """It answers with an empty inventory, which proves nothing of the VMs of the other one."""
    world = WorldProcess(tmp_path)
    world.start()
    target = world.target()
    with world.process, watched(control_plane, tmp_path, target) as found:
        running = Running.start(found.registered)
        kept, _ = running.made("kept"), running.made("leaving")
        with world.another():
            assert target.vms() == []
            _assert_held(running)
            assert target.vms() == []
        running.registered.provider_ready()
        _assert_taken_up(running, kept)


def _assert_held(running: Running) -> None:
    """Nothing is made, nothing is released, whether it lives or is being deleted."""
    running.wait_condition("kept", "InfrastructureReady", "BackendIdentityChanged")
    running.kube.delete(VMS, "leaving", running.namespace)
    running.registered.create("new")
    running.wait_condition("leaving", "Deleting", "BackendIdentityChanged", status="True")
    running.wait_condition("new", "Scheduled", "ProviderNotReady", status="False")
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


def _provider_says(running: Running, reason: str) -> None:
    registered = running.registered
    running.kube.wait_for(
        "providers",
        registered.provider,
        registered.stack.namespace,
        until=lambda obj: condition(obj, "Ready")[1] == reason,
        timeout=READY_SECONDS,
        what=reason,
    )


def _by_id(vms: Sequence[RawVm]) -> dict[str, RawVm]:
    return {vm.id: vm for vm in vms}


def test_a_machine_with_an_identity_is_not_made_on_another_backend(
    registered: Registered,
) -> None:
    """The provider died right after it gave the identity; the create call was never sent."""
    killed: list[bool] = []
    with _provider_behind(registered) as (running, after_identity):

        def kill() -> None:
            running.provider.kill9()
            killed.append(True)

        after_identity(kill, Fate.CUT)
        registered.create("db")
        wait_until(lambda: killed, READY_SECONDS, "the provider to be killed")
        instance = registered.machine("db")["spec"]["instance"]
        assert registered.vms_of("db") == []
        with registered.target.other_identity():
            running.provider.start(ready=False)
            running.wait_condition("db", "InfrastructureReady", "BackendIdentityChanged")
            running.poke("db")
            assert registered.vms_of("db") == []
            running.provider.kill9()
        running.provider.start()
        registered.ready("db")
        assert registered.machine("db")["spec"]["instance"] == instance
        assert [vm.uuid for vm in registered.vms_of("db")] == [instance["uuid"]]


def test_a_name_taken_between_identity_and_create_is_left_to_who_took_it(
    registered: Registered,
) -> None:
    taken: list[str] = []
    with _provider_behind(registered) as (running, after_identity):
        name = running.ref("db").name
        after_identity(lambda: taken.append(running.make_foreign(name)), Fate.PASS)
        registered.create("db")
        running.wait_condition("db", "Ready", "OwnershipConflict", status="False")
        before = running.raw(taken[0])
        machine = registered.machine("db")
        assert machine["spec"]["instance"]["name"] == name
        assert "providerID" not in machine["spec"]

        # It is not destroyed either. What goes is our claim, on the user's word.
        running.kube.delete(VMS, "db", running.namespace)
        running.wait_condition("db", "Deleting", "OwnershipConflict", status="True")
        assert registered.vms_of("db") == [before]
        running.kube.patch(VMS, "db", ORPHAN, running.namespace)
        registered.gone("db")
        assert registered.vms_of("db") == [before]


AfterIdentity = Callable[[Callable[[], object], Fate], None]


@contextmanager
def _provider_behind(registered: Registered) -> Iterator[tuple[Running, AfterIdentity]]:
    """Roles at work, and a way to act once when machine `db` has got its identity."""
    with ApiProxy(registered.stack.control_plane) as proxy:
        backend = registered.target.backend.name
        controller = registered.stack.controller().start()
        provider = registered.stack.provider(backend, via=proxy).start()
        registered.provider_ready()

        def after_identity(act: Callable[[], object], fate: Fate) -> None:
            acted: list[Write] = []

            def hook(write: Write, moment: Moment) -> Fate:
                claims = write.method == "PATCH" and write.path.endswith(f"/{registered.plural}/db")
                if not claims or moment is Moment.BEFORE or acted:
                    return Fate.PASS
                acted.append(write)
                act()
                return fate

            proxy.hook = hook

        yield Running(registered, controller, provider), after_identity
        provider.kill9()
