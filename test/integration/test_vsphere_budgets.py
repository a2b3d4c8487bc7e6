"""How few calls a vCenter gets from a process that starts beside many VMs, and from deletions."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import BoundedSemaphore

import pytest

from banlieue.providers.vsphere.backend import BACKEND
from banlieue.providers.vsphere.driver import VSphereDriver
from banlieue.sdk.driver import MachineRef
from banlieue.sdk.errors import NotYet
from test.kit.feed import Feed
from test.kit.vsphere_fleet import make_fleet
from test.kit.vsphere_target import VSphereTarget, vsphere_target
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

PATIENCE = 30.0
THREADS = 8
"""Calls a session makes at once, as the SDK has it."""
MANY = 200
RESTART = 20
DELETED, DELETE = 20, 3.0
ALONE = 10
POLL = 10.0
AT_ONCE = 0.1


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        yield target


@pytest.mark.identity("2.6")
def test_a_process_that_starts_beside_many_vms_makes_a_handful_of_calls(
    target: VSphereTarget,
) -> None:
    fleet = make_fleet(target, MANY, power_on=False)
    target.vcenter.reset_counters()
    with BACKEND.connect(target.connection()) as opened:
        assert isinstance(opened, VSphereDriver)
        opened.about()
        with ThreadPoolExecutor(THREADS) as pool, Feed(opened).running(awaited=False) as feed:
            wait_until(lambda: _calls(target), PATIENCE, "the feed to begin")
            early = [pool.submit(_look, opened, ref) for ref in fleet]
            opened.failure_domains()
            opened.marked()
            for look in early:
                look.result()
            wait_until(feed.is_up, PATIENCE, "the first answer of the feed")
            assert all(pool.map(partial(_look, opened), fleet))
    spent = target.vcenter.counters().soap
    assert sum(spent.values()) <= RESTART, dict(spent)


def _calls(target: VSphereTarget) -> int:
    """How many reads there were after the login."""
    return target.vcenter.counters().soap.get("RetrievePropertiesEx", 0)


@pytest.mark.parametrize(
    ("vms", "budget"), [(DELETED, DELETE), (1, ALONE)], ids=["together", "alone"]
)
def test_deletions_stay_within_their_budget(target: VSphereTarget, vms: int, budget: float) -> None:
    """What proves that nothing of others goes, and that all is gone, is counted, too."""
    fleet = make_fleet(target, vms)
    with BACKEND.connect(target.connection()) as opened:
        assert isinstance(opened, VSphereDriver)
        with Feed(opened, POLL).running() as feed:
            assert all(_look(opened, ref) for ref in fleet)
            target.vcenter.reset_counters()
            calls = BoundedSemaphore(THREADS)
            with ThreadPoolExecutor(vms) as pool:
                list(pool.map(partial(_delete, opened, feed, calls), fleet))
            spent = target.vcenter.counters().soap
    assert not {vm.name for vm in target.vms()} & {ref.name for ref in fleet}
    assert sum(spent.values()) / vms <= budget, dict(spent)


def _delete(driver: VSphereDriver, feed: Feed, calls: BoundedSemaphore, ref: MachineRef) -> None:
    """What the SDK does for one machine, moved by the feed alone."""
    while True:
        with calls:
            task = driver.delete(ref) if driver.observe(ref) is not None else None
        if task is None:
            return
        if task.poll_after > AT_ONCE:
            wait_until(partial(feed.told, task.handle), PATIENCE, "the step to be told")
        with calls:
            assert driver.poll(task) is None


def _look(driver: VSphereDriver, ref: MachineRef) -> bool:
    try:
        return driver.observe(ref) is not None
    except NotYet:
        return False
