"""A Secret that may not be read: what is told, and how soon it is tried again."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from banlieue.api import names
from banlieue.api.resources import PROVIDERS, SECRETS
from banlieue.sdk.kube import Forbidden, Key, Obj
from banlieue.sdk.testing.fakes import MemoryQueue
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.machinebench import MACHINE, NAMESPACE, PROVIDER, MachineBench

ACCOUNT = "banlieue-system:banlieue-provider-simulated-sim"


class Bench(MachineBench):
    """Its account may read no user data until somebody grants it."""

    def __init__(self, *, operator: bool, account: str = ACCOUNT) -> None:
        super().__init__()
        self.granted = False
        self.account = account
        self.asked = 0
        self.api.intercept(self._refuse)
        self.api.put(
            SECRETS,
            {"metadata": {"namespace": NAMESPACE, "name": "boot"}, "data": {"user-data": "eA=="}},
        )
        if operator:

            def served(obj: Obj) -> None:
                obj.setdefault("status", {})["workload"] = {"name": "some-workload"}

            self.api.edit(PROVIDERS, PROVIDER, served)
        user_data = {"secretRef": {"name": "boot"}, "key": "user-data"}
        self.make_machine(userData=user_data)

    def _refuse(self, call: Call, moment: Moment) -> None:
        if moment is not Moment.BEFORE or call.resource != SECRETS:
            return
        if call.key == Key(NAMESPACE, "boot"):
            self.asked += 1
            if not self.granted:
                user = f"system:serviceaccount:{self.account}"
                told = f'secrets "boot" is forbidden: User "{user}" cannot get resource "secrets"'
                raise Forbidden(403, "Forbidden", told)

    def ready(self) -> tuple[str, str]:
        """Reason and message of condition Ready."""
        (found,) = [it for it in self.machine()["status"]["conditions"] if it["type"] == "Ready"]
        return found["reason"], found["message"]

    async def pauses(self, passes: int) -> Iterator[float]:
        """How long each of so many passes asks to wait."""
        found = []
        for _ in range(passes):
            pause = (await self.reconciler.reconcile(MACHINE)).requeue_after
            assert pause is not None
            self.clock.advance(pause)
            found.append(pause)
        return iter(found)


async def test_with_an_operator_the_right_is_waited_for_in_small_steps() -> None:
    bench = Bench(operator=True)
    pauses = list(await bench.pauses(30))
    assert bench.ready()[0] == "WaitingForGrant"
    assert max(pauses) <= 6
    bench.granted = True
    await bench.run()
    assert len(bench.vms()) == 1


async def test_a_grant_that_comes_a_moment_later_costs_no_status_and_no_second() -> None:
    bench = Bench(operator=True)
    assert next(await bench.pauses(1)) < 1
    bench.granted = True
    told = [it for it in bench.api.writes() if it.subresource == "status"]
    assert told == []
    await bench.run()
    assert len(bench.vms()) == 1


@pytest.mark.security("5.2")
async def test_without_an_operator_it_says_what_to_run() -> None:
    bench = Bench(operator=False)
    await bench.run()
    reason, message = bench.ready()
    assert reason == "UserDataNotGranted"
    assert f"`banlieue bootstrap grant -n {NAMESPACE} --provider simulated`" in message
    assert "ServiceAccount banlieue-system/banlieue-provider-simulated-sim" in message
    bench.granted = True
    await bench.run()
    assert len(bench.vms()) == 1


async def test_an_install_elsewhere_is_named() -> None:
    bench = Bench(operator=False, account="vms:banlieue-provider-simulated")
    await bench.run()
    command = f"grant -n {NAMESPACE} --provider simulated --system-namespace vms`"
    assert command in bench.ready()[1]


async def test_after_a_day_its_user_is_asked_instead_of_the_api_server() -> None:
    bench = Bench(operator=True)
    bench.clock.advance(timedelta(seconds=names.GRANT_SECONDS).total_seconds())
    before = bench.asked
    pauses = list(await bench.pauses(10))
    reason, message = bench.ready()
    assert reason == "UserDataNotGranted"
    assert names.ANNOTATION_RENEW_GRANT in message
    assert f"VirtualMachine {MACHINE.name}" in message
    assert sum(pauses) > 20
    assert bench.asked - before == 10
    bench.granted = True
    await bench.run()
    assert len(bench.vms()) == 1


async def until_made(bench: Bench, *others: Key) -> float:
    """Seconds until there is a VM for each machine, every machine looked at when it asks to be."""
    began, due = bench.clock.monotonic(), dict.fromkeys((MACHINE, *others), 0.0)
    while len(bench.vms()) < len(due):
        key = min(due, key=lambda it: due[it])
        bench.clock.advance(max(0.0, due[key] - bench.clock.monotonic()))
        pause = (await bench.reconciler.reconcile(key)).requeue_after
        due[key] = bench.clock.monotonic() + (3600.0 if pause is None else pause)
        assert bench.clock.monotonic() - began < 60
    return bench.clock.monotonic() - began


@pytest.mark.parametrize("days", [0, 1])
async def test_a_grant_is_seen_within_seconds_however_long_it_took(days: int) -> None:
    """By somebody who ran the command, or renewed what had run out."""
    bench = Bench(operator=bool(days))
    bench.clock.advance(days * float(names.GRANT_SECONDS))
    await bench.pauses(40)
    assert bench.ready()[0] == "UserDataNotGranted"
    bench.granted = True
    assert await until_made(bench) <= 5


async def test_between_passes_nothing_is_asked_for_but_the_secret() -> None:
    bench = Bench(operator=False)
    await bench.pauses(3)
    asked, calls, written = bench.asked, bench.world.control("calls", {}), len(bench.api.writes())
    others: list[Call] = []
    # What is refused gets no further than the first that looks.
    bench.api.intercept(lambda call, _moment: others.append(call))
    next_pass = 25.0
    pauses: list[float] = []
    while sum(pauses) + 5 < next_pass:
        pauses += list(await bench.pauses(1))
    assert bench.asked - asked == len(pauses) >= 4
    assert min(pauses) >= 3, "next to nothing"
    assert others == []
    assert bench.world.control("calls", {}) == calls
    assert len(bench.api.writes()) == written


async def test_a_secret_that_comes_later_is_seen_within_seconds() -> None:
    bench = Bench(operator=False)
    bench.granted = True
    secret = bench.api.peek(SECRETS, Key(NAMESPACE, "boot"))
    assert secret is not None
    bench.api.drop(SECRETS, Key(NAMESPACE, "boot"))
    await bench.pauses(20)
    assert bench.ready()[0] == "UserDataNotFound"
    bench.api.put(SECRETS, {"metadata": {"namespace": NAMESPACE, "name": "boot"}, "data": {}})
    await bench.pauses(3)
    assert "no key" in bench.ready()[1]
    bench.api.edit(SECRETS, Key(NAMESPACE, "boot"), lambda it: it.update(data=secret["data"]))
    assert await until_made(bench) <= 31


async def test_data_that_was_wrong_is_looked_at_again_when_it_is_corrected() -> None:
    """Nothing changes on the machine then, and nobody else tells."""
    bench = Bench(operator=False)
    bench.granted = True
    bench.api.edit(
        SECRETS, Key(NAMESPACE, "boot"), lambda it: it.update(data={"user-data": "not base64"})
    )
    await bench.pauses(5)
    assert bench.ready()[0] == "UserDataInvalid"
    bench.api.edit(
        SECRETS, Key(NAMESPACE, "boot"), lambda it: it.update(data={"user-data": "eA=="})
    )
    assert await until_made(bench) <= 31


async def test_many_that_wait_ask_twice_a_second_in_all_and_one_tells_the_others() -> None:
    bench = Bench(operator=False)
    user_data = {"secretRef": {"name": "boot"}, "key": "user-data"}
    keys = [MACHINE, *(Key(NAMESPACE, f"more-{number}") for number in range(23))]
    for key in keys[1:]:
        bench.make_machine(key, userData=user_data)
    due: dict[Key, float] = {}
    for _ in range(2):
        for key in keys:
            pause = (await bench.reconciler.reconcile(key)).requeue_after
            due[key] = bench.clock.monotonic() + (pause or 0)
    asked, began = bench.asked, bench.clock.monotonic()
    while bench.clock.monotonic() - began < 20:
        key = min(due, key=lambda it: due[it])
        bench.clock.advance(max(0.0, due[key] - bench.clock.monotonic()))
        pause = (await bench.reconciler.reconcile(key)).requeue_after
        due[key] = bench.clock.monotonic() + (pause or 0)
    assert bench.asked - asked <= 20 * 2 * 1.3
    bench.granted = True
    queue = MemoryQueue()
    bench.reconciler.ctx = replace(bench.reconciler.ctx, enqueue=queue.enqueue)
    while not queue.requests:
        key = min(due, key=lambda it: due[it])
        bench.clock.advance(max(0.0, due[key] - bench.clock.monotonic()))
        pause = (await bench.reconciler.reconcile(key)).requeue_after
        due[key] = bench.clock.monotonic() + (3600.0 if pause is None else pause)
    assert {key, *(it.key for _, it in queue.requests)} == set(keys)
    for key in keys:
        await bench.run(key)
    assert len(bench.vms()) == len(keys)


@pytest.mark.parametrize("operator", [True, False])
async def test_what_is_refused_is_not_made_without(*, operator: bool) -> None:
    bench = Bench(operator=operator)
    await bench.run(passes=20)
    assert bench.vms() == []
