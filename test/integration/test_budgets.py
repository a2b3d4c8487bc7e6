"""What a VirtualMachine costs until it is Ready, on a fast backend and on a slow one."""

import logging

import pytest

from test.kit.costs import counted, shown
from test.kit.watched import AtWork

pytestmark = pytest.mark.slow

WRITES = 9
EVENTS = 5

log = logging.getLogger(__name__)


@pytest.mark.parametrize("seconds", [0.0, 1.5], ids=["fast backend", "slow backend"])
def test_a_vm_stays_within_its_write_budget(at_work: AtWork, seconds: float) -> None:
    registered = at_work.registered
    registered.create("warm-up")
    registered.ready("warm-up")
    with counted(registered) as costs, registered.target.slow_tasks(seconds):
        registered.create("one")
        registered.ready("one")
    writes = costs.objects("one")
    log.info("%d writes, %d events, calls %s", len(writes), len(costs.events), dict(costs.calls))
    assert len(writes) <= WRITES, shown(writes)
    assert len(costs.events) <= EVENTS, shown(costs.events)
    assert all(it.code and it.code < 300 for it in costs.writes), shown(costs.writes)
    registered.clear()
