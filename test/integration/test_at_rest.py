"""Many VMs at once cost little until they are Ready, and nothing from then on."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from test.kit.costs import counted, our_writes, shown, wait_out
from test.kit.installed import Registered
from test.kit.running import Running
from test.kit.stack import Role
from test.kit.taps import Meter
from test.kit.targets import REAL
from test.kit.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("backend_kind", REAL, indirect=True)]

VMS = 20
WRITES = 9
EVENTS = 5
CALLS = {"vsphere": 2.5}
"""Per VM, of the backends that have a budget."""
ROUNDS = 3
"""Calls are shared by what happens at the same time, which a machine that is busy otherwise lets
happen one by one: a budget that holds in one round holds."""
REST_SECONDS = 60.0
COUNT_SECONDS = 30.0
FOLLOWED_SECONDS = 6.0
"""Seconds in which a backend's feed takes up what was made last; its calls count too."""

log = logging.getLogger(__name__)


def test_many_vms_stay_within_their_budget_and_then_cost_nothing(running: Running) -> None:
    registered = running.registered
    registered.create("warm-up")
    registered.ready("warm-up")
    budget = CALLS.get(registered.target.backend.name)
    calls = [_made_together(running, 0)]
    while budget is not None and min(calls) > budget and len(calls) < ROUNDS:
        calls.append(_made_together(running, len(calls)))
    assert budget is None or min(calls) <= budget, calls

    wait_until(lambda: _counted(registered), COUNT_SECONDS, "the Provider to count its machines")
    meter = Meter(registered.target)
    since = registered.stack.control_plane.audit_position()
    wait_out(registered, REST_SECONDS)
    resting = our_writes(registered, since)
    assert resting == [], shown(resting)
    assert meter.work() == Counter()


def _made_together(running: Running, number: int) -> float:
    """Make VMs at once within their budget of writes and events; calls per VM that took."""
    registered = running.registered
    names = [f"vm-{number}-{each}" for each in range(VMS)]
    before = _placed(registered)
    with counted(registered) as costs:
        with _held_back(running.provider):
            for name in names:
                registered.create(name)
            wait_until(
                lambda: _placed(registered) == before + VMS, COUNT_SECONDS, "all to be placed"
            )
        for name in names:
            registered.ready(name)
        wait_out(registered, FOLLOWED_SECONDS)
    writes = costs.objects(*names)
    each = [figure / VMS for figure in (len(writes), len(costs.events), costs.calls.total())]
    log.info("per VM: %s writes, %s events, %s calls (%s)", *each, dict(costs.calls))
    assert each[0] <= WRITES, shown(writes)
    assert each[1] <= EVENTS, shown(costs.events)
    return each[2]


@contextmanager
def _held_back(provider: Role) -> Iterator[None]:
    """Keep a provider from working, so that what comes meanwhile comes at once."""
    provider.process.pause()
    try:
        yield
    finally:
        provider.process.resume()


def _placed(registered: Registered) -> int:
    return len(registered.kube.list(registered.plural, registered.namespace))


def _counted(registered: Registered) -> bool:
    """The last thing that follows a change of machines."""
    provider = registered.kube.get("providers", registered.provider, registered.stack.namespace)
    machines = registered.kube.list(registered.plural, registered.namespace)
    counted: bool = provider["status"].get("machineCount") == len(machines)
    return counted
