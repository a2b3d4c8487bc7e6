"""The API server and the backend go away for a while; nobody loses or doubles anything by that."""

from collections.abc import Iterator

import pytest

from banlieue.sdk.testing.conformance_target import ConformanceTarget
from test.kit.controlplane import ControlPlane
from test.kit.costs import wait_out
from test.kit.gate import Gate
from test.kit.installed import Registered
from test.kit.running import Running
from test.kit.stack import Object, condition
from test.kit.taps import Meter
from test.kit.targets import REAL
from test.kit.waiting import wait_until
from test.kit.watched import Watched

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("backend_kind", REAL, indirect=True)]

APISERVER_SECONDS = 20.0
"""Until it is started again; the few seconds it takes to start come on top."""

LONG_LEASE = ("--leader-elect-lease-duration=300", "--leader-elect-renew-deadline=290")
"""How long the API server takes to start is the machine's affair, not the test's."""

BLACK_HOLE_SECONDS = 30.0
RECOVERY_SECONDS = 60.0
UNHURRIED = 15.0
"""Seconds that are plenty to become Ready for a VM whose backend answers."""

UNHINDERED = 25.0
"""Seconds in which nobody gets Ready who waits behind a call that is not answered."""


@pytest.fixture
def running(registered: Registered) -> Running:
    """Both roles at work; the controller outlives outages of minutes."""
    return Running.start(registered, *LONG_LEASE)


@pytest.fixture
def plane(running: Running) -> Iterator[ControlPlane]:
    """A control plane that is whole again in the end: its own controllers sleep long otherwise."""
    plane = running.registered.stack.control_plane
    yield plane
    if not plane.apiserver.running:
        plane.start_apiserver()
    plane.restart_controller_manager()


def test_creates_and_deletes_outlive_an_outage_of_the_api_server(
    running: Running, plane: ControlPlane
) -> None:
    registered = running.registered
    meter = Meter(registered.target)
    leaving, coming = ["old-0", "old-1", "old-2"], ["new-0", "new-1", "new-2", "new-3"]
    for name in leaving:
        registered.create(name)
    for name in leaving:
        registered.ready(name)
    processes = [role.process.pid for role in registered.stack.roles]
    with registered.target.slow_tasks(4.0):
        registered.create(coming[0])
        registered.kube.delete("virtualmachines", leaving[0], registered.namespace)
        wait_until(lambda: meter.calls()[meter.words.create] == 4, UNHURRIED, "the first create")
        wait_until(lambda: _works_on(registered, leaving[0]), UNHURRIED, "the first delete")
        for name in coming[1:]:
            registered.create(name)
        for name in leaving[1:]:
            registered.kube.delete("virtualmachines", name, registered.namespace)
        plane.stop_apiserver()
        wait_out(registered, APISERVER_SECONDS)
        plane.start_apiserver()
    for name in coming:
        registered.ready(name)
        assert len(registered.vms_of(name)) == 1
    for name in leaving:
        registered.gone(name)
        assert registered.vms_of(name) == []
    assert meter.calls()[meter.words.create] == len(leaving) + len(coming)
    assert [role.process.pid for role in registered.stack.roles] == processes


def _works_on(registered: Registered, name: str) -> bool:
    """Whether the machine's provider reports work that runs on the backend."""
    task = registered.machine(name).get("status", {}).get("task")
    return task is not None


@pytest.fixture
def second(watched_install: Watched, second_target: ConformanceTarget) -> Registered:
    """A second backend, registered as another Provider of the same class."""
    second = Registered(watched_install.stack, second_target, provider="second")
    second.register()
    return second


@pytest.fixture
def gate(watched_install: Watched) -> Iterator[Gate]:
    """A gate between the first Provider and its backend."""
    registered = watched_install.registered
    with Gate(registered.target.connection().endpoints[0]) as gate:
        registered.kube.apply(registered.provider_object(endpoint=gate.url))
        yield gate


def test_a_backend_that_falls_silent_is_told_once_and_others_do_not_notice(
    watched_install: Watched, gate: Gate, second: Registered
) -> None:
    first, seen = watched_install.registered, watched_install.status
    running = Running.start(first)
    second.provider_ready()
    meter = Meter(first.target)
    for registered, name in ((first, "here-0"), (second, "there-0")):
        create(registered, name)
        registered.ready(name)
    before = [versions(watched_install, kind, "here-0") for kind in ("VirtualMachine", first.kind)]
    processes = [role.process.pid for role in first.stack.roles]

    with gate.shut():
        for number in range(1, 4):
            create(first, f"here-{number}")
            create(second, f"there-{number}")
        for number in range(1, 4):
            second.ready(f"there-{number}", UNHINDERED, exact=True)
        wait_out(first, BLACK_HOLE_SECONDS)
        silent = provider(first)
    assert condition(silent, "Ready") == ("False", "ProviderUnreachable")
    after = [versions(watched_install, kind, "here-0") for kind in ("VirtualMachine", first.kind)]
    assert after == before, "an outage says nothing about a VM that is there"

    first.provider_ready(RECOVERY_SECONDS)
    for number in range(1, 4):
        first.ready(f"here-{number}", RECOVERY_SECONDS)
        assert len(first.vms_of(f"here-{number}")) == 1
    assert len(first.target.vms()) == 4
    assert meter.calls()[meter.words.create] == 4
    assert [role.process.pid for role in (running.controller, running.provider)] == processes

    ready, unreachable = ("True", "Ready"), ("False", "ProviderUnreachable")
    history = seen.values("Provider", first.provider, readiness)
    assert history[history.index(ready) :] == [ready, unreachable, ready]
    for kind, name in (("Provider", second.provider), ("VirtualMachine", "here-0")):
        history = seen.values(kind, name, readiness)
        assert history[history.index(ready) :] == [ready]
    assert told(first) == {"ProviderUnreachable": 1, "ProviderRecovered": 1}
    assert told(second) == {}


def create(registered: Registered, name: str) -> None:
    """Create a VirtualMachine that belongs on this Provider and no other."""
    pin = {"name": registered.provider, "namespace": registered.stack.namespace}
    registered.create(name, providerRef=pin)


def provider(registered: Registered) -> Object:
    return registered.kube.get("providers", registered.provider, registered.stack.namespace)


def versions(watched_install: Watched, kind: str, name: str) -> int:
    wait_until(watched_install.status.caught_up, UNHURRIED, "the watch")
    return len(watched_install.status.versions(kind, name))


def readiness(obj: Object) -> tuple[str, str]:
    return condition(obj, "Ready")


def told(registered: Registered) -> dict[str, int]:
    """How often each Event was said about a Provider."""
    found: dict[str, int] = {}
    uid = provider(registered)["metadata"]["uid"]
    for event in registered.kube.list("events.events.k8s.io", registered.stack.namespace):
        if event["regarding"]["uid"] == uid:
            count = (event.get("series") or {}).get("count", 1)
            found[event["reason"]] = found.get(event["reason"], 0) + count
    return found
