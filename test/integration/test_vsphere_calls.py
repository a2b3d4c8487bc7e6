"""How few calls the vSphere driver makes for many VMs, and that it makes none for VMs at rest."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import monotonic

import pytest

from banlieue.providers.vsphere.backend import BACKEND
from banlieue.providers.vsphere.client.session import Timings
from banlieue.providers.vsphere.driver import VSphereDriver
from banlieue.sdk.driver import MachineState, Task
from banlieue.sdk.testing.conformance_target import AnyPlan, Bench, unminted
from test.kit.feed import Feed
from test.kit.vsphere_target import VSphereTarget, vsphere_target
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

PATIENCE = 30.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        yield target


@pytest.fixture
def target(shared: VSphereTarget) -> Iterator[VSphereTarget]:
    yield shared
    shared.proxy.clear()
    shared.vcenter.clear_delays()
    shared.vcenter.clear_faults()
    shared.vcenter.clear_permissions()


def finish(driver: VSphereDriver, task: Task | None) -> None:
    if task is not None:
        wait_until(lambda: driver.poll(task) is None, PATIENCE, "the task to end")


VMS = 20
TOGETHER, APART = 2.5, 4.0
"""Calls per VM: of many at once, and of one every half second. Fewer would be had by resting longer
between shared calls, but then each VM is Ready seconds later."""
THREADS = 8
POLL = 10.0
"""Calls a session makes at once, and seconds of one long poll, as the SDK has it."""
SETTLED = Timings().stream + 1.0
"""Seconds after which the watch covers every VM that was made."""


@pytest.mark.identity("2.6")
@pytest.mark.parametrize(
    ("apart", "budget"), [(0.0, TOGETHER), (0.5, APART)], ids=["together", "one-after-the-other"]
)
def test_many_creates_stay_within_their_budget_and_then_cost_nothing(
    target: VSphereTarget, apart: float, budget: float
) -> None:
    with BACKEND.connect(target.connection()) as opened:
        assert isinstance(opened, VSphereDriver)
        with Feed(opened, POLL).running() as feed:
            plans = [Bench(target, opened).plan(f"vm-{number}") for number in range(VMS)]
            target.vcenter.reset_counters()
            since = monotonic()
            with ThreadPoolExecutor(VMS if apart else THREADS) as pool:
                making = []
                for number, plan in enumerate(plans):
                    _wait_out(number * apart, since)
                    making.append(pool.submit(_make_ready, opened, feed, plan))
                for made in making:
                    made.result()
            _wait_out(SETTLED, monotonic())
            spent = target.vcenter.counters().soap
            assert sum(spent.values()) / VMS <= budget, dict(spent)

            settled = sum(n for name, n in opened.calls().items() if name != "WaitForUpdatesEx")
            polled = opened.calls()["WaitForUpdatesEx"]
            for plan in plans:
                assert opened.observe(plan.ref) is not None
            wait_until(lambda: _polls(opened, polled + 1), PATIENCE, "some time to pass")
            now = sum(n for name, n in opened.calls().items() if name != "WaitForUpdatesEx")
            assert now == settled


def _wait_out(seconds: float, since: float) -> None:
    """Let time pass, as it does between VMs that people make one after the other."""
    wait_until(lambda: monotonic() >= since + seconds, PATIENCE, "the next VM's turn")


def _polls(driver: VSphereDriver, wanted: int) -> bool:
    return driver.calls()["WaitForUpdatesEx"] >= wanted


def _make_ready(driver: VSphereDriver, feed: Feed, plan: AnyPlan) -> MachineState:
    """What the SDK does for one machine, moved by the feed alone."""
    assert driver.observe(unminted(plan)) is None
    assert driver.observe(replace(plan.ref, fresh=True)) is None
    task = driver.create(plan)
    while task is not None and task.handle.startswith("slot-"):
        finish(driver, task)
        task = driver.create(plan)
    assert task is not None
    handle = task.handle
    wait_until(lambda: feed.told(handle), PATIENCE, "the create to be told")
    finish(driver, task)

    def ready() -> MachineState | None:
        if not feed.told(plan.ref.uuid or ""):
            return None
        state = driver.observe(plan.ref)
        assert state is not None
        return state if state.guest.agent_connected and state.addresses else None

    state = wait_until(ready, PATIENCE, "the guest")
    assert state is not None
    return state
