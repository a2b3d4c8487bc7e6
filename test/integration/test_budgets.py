"""What a VirtualMachine costs until it is Ready, on a fast backend and on a slow one."""

import logging

import pytest

from test.kit.costs import counted, shown
from test.kit.waiting import wait_until
from test.kit.watched import AtWork

pytestmark = pytest.mark.slow

WRITES = 9
EVENTS = 5

log = logging.getLogger(__name__)


@pytest.mark.parametrize(("name", "seconds"), [("quick", 0.0), ("slow", 1.5)])
def test_a_vm_stays_within_its_write_budget(at_work: AtWork, name: str, seconds: float) -> None:
    registered, seen = at_work.registered, at_work.watched.status
    registered.create("warm-up")
    registered.ready("warm-up")
    with counted(registered) as costs, registered.target.slow_tasks(seconds):
        registered.create(name)
        registered.ready(name)
    writes = costs.objects(name)
    log.info("%d writes, %d events, calls %s", len(writes), len(costs.events), dict(costs.calls))
    assert len(writes) <= WRITES, shown(writes)
    assert len(costs.events) <= EVENTS, shown(costs.events)
    assert all(it.code and it.code < 300 for it in costs.writes), shown(costs.writes)
    wait_until(seen.caught_up, 10, "the watch")
    versions = [*seen.versions("VirtualMachine", name), *seen.versions(registered.kind, name)]
    assert len(versions) == 1 + len(writes), "the user's create, and writes that changed something"
    registered.clear()
