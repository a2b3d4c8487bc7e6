"""A machine that has its identity and no VM yet: nothing is made in a place that is not its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from test.kit.apiproxy import ApiProxy, Fate, Moment, Write
from test.kit.installed import READY_SECONDS, Registered
from test.kit.running import VMS, Running
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

ORPHAN = {"spec": {"deletionPolicy": "Orphan"}}


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
