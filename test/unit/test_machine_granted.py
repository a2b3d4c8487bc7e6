"""A Secret that may not be read: what is told, and how soon it is tried again."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from banlieue.api import names
from banlieue.api.resources import PROVIDERS, SECRETS
from banlieue.sdk.kube import Forbidden, Key, Obj
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
    assert min(pauses) >= 20
    assert bench.asked - before == 10
    bench.granted = True
    await bench.run()
    assert len(bench.vms()) == 1


@pytest.mark.parametrize("operator", [True, False])
async def test_what_is_refused_is_not_made_without(*, operator: bool) -> None:
    bench = Bench(operator=operator)
    await bench.run(passes=20)
    assert bench.vms() == []
