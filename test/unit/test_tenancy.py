"""Who may use a Provider: tenants learn nothing of others, its admin learns who was refused."""

from typing import Any

import pytest

from banlieue.api.events import EventReason
from banlieue.api.reasons import Reason
from banlieue.api.resources import NAMESPACES, PROVIDERS, SECRETS
from banlieue.api.types import PowerState
from banlieue.sdk.driver import DiskState, MachineState
from banlieue.sdk.errors import NeedsOperator, Unreachable
from banlieue.sdk.kube import Forbidden, Key
from banlieue.sdk.machine.drift import Desired
from banlieue.sdk.machine.wording import told
from banlieue.sdk.reconcile import Change
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.controllerworld import NAMESPACE, SYSTEM, ControllerWorld
from test.kit.machinebench import MACHINE, MachineBench
from test.kit.providerbench import KEY, ProviderBench


def _namespace(bench: ProviderBench, name: str, **labels: str) -> None:
    bench.api.put(NAMESPACES, {"metadata": {"name": name, "labels": labels}})


def _machine(bench: ProviderBench, namespace: str, name: str) -> None:
    made = bench.add_machine(name)
    bench.api.put(
        bench.backend.machine,
        {"metadata": {"namespace": namespace, "name": name}, "spec": made["spec"]},
    )
    bench.api.drop(bench.backend.machine, Key("ns", name))


def _refused(bench: ProviderBench) -> Any:  # noqa: ANN401 - JSON
    return bench.raw["status"].get("refusedNamespaces")


async def test_the_provider_names_the_namespaces_it_refuses_and_writes_once() -> None:
    bench = ProviderBench()
    for name in ("team-b", "team-a"):
        _namespace(bench, name)
        for number in range(5):
            _machine(bench, name, f"vm-{number}")
    await bench.run_for(30)
    assert _refused(bench) == {"count": 2, "names": ["team-a", "team-b"]}
    assert bench.recorder.reasons().count(EventReason.NAMESPACE_REFUSED) == 1
    assert "team-a, team-b" in bench.recorder.events[-1].message
    writes = len(bench.api.writes())
    _machine(bench, "team-a", "vm-5")
    await bench.run()
    assert len(bench.api.writes()) == writes
    await bench.stop()


async def test_the_list_of_refused_namespaces_is_bounded() -> None:
    bench = ProviderBench()
    for number in range(30):
        _namespace(bench, f"team-{number:02}")
        _machine(bench, f"team-{number:02}", "vm")
    await bench.run()
    told = _refused(bench)
    assert (told["count"], len(told["names"])) == (30, 10)
    assert "and 20 more" in bench.recorder.events[-1].message
    await bench.stop()


async def test_a_namespace_that_is_let_in_is_refused_no_longer() -> None:
    bench = ProviderBench()
    bench.edit(allowedNamespaces={"from": "Selector", "selector": {"matchLabels": {"vms": "yes"}}})
    _namespace(bench, "team-a")
    _machine(bench, "team-a", "vm")
    await bench.run()
    assert _refused(bench)["names"] == ["team-a"]
    before = bench.api.peek(NAMESPACES, Key("", "team-a"))
    _namespace(bench, "team-a", vms="yes")
    watch = next(it for it in bench.reconciler.controller().watches if it.resource == NAMESPACES)
    change = Change(
        NAMESPACES, Key("", "team-a"), before, bench.api.peek(NAMESPACES, Key("", "team-a"))
    )
    assert [request.key for request in watch.map(change)] == [KEY]
    await bench.run()
    assert _refused(bench) is None
    await bench.stop()


async def test_nobody_is_called_refused_while_labels_are_not_known() -> None:
    bench = ProviderBench()
    _machine(bench, "team-a", "vm")
    bench.api.cache.unsynced.add(NAMESPACES)
    await bench.run()
    assert _refused(bench) is None
    await bench.stop()


async def test_a_forbidden_and_a_missing_provider_are_one_answer() -> None:
    world = ControllerWorld.ready(secret={"allowedNamespaces": {"from": "Same"}})
    messages = []
    for name in ("secret", "absent"):
        world.add_vm(f"on-{name}", providerRef={"name": name, "namespace": SYSTEM})
        await world.settle(seconds=60)
        scheduled = world.condition("Scheduled", f"on-{name}")
        assert scheduled["reason"] == "ProviderNotAllowed"
        messages.append(scheduled["message"].replace(name, "…"))
    assert messages[0] == messages[1]


async def test_the_admin_is_told_once_who_asked_and_the_provider_is_not_written() -> None:
    world = ControllerWorld.ready(secret={"allowedNamespaces": {"from": "Same"}})
    for number in range(5):
        world.add_vm(f"vm-{number}", providerRef={"name": "secret", "namespace": SYSTEM})
    await world.settle(seconds=3600)
    found = [it for it in world.recorder.events if it.reason is EventReason.NAMESPACE_REFUSED]
    assert [it.key for it in found] == [Key(SYSTEM, "secret")]
    assert NAMESPACE in found[0].message
    assert not any(call.resource == PROVIDERS for call in world.api.writes())


async def test_one_who_does_not_ask_for_a_provider_by_name_is_no_news() -> None:
    world = ControllerWorld.ready(secret={"allowedNamespaces": {"from": "Same"}})
    world.add_vm()
    await world.settle(seconds=60)
    assert world.condition("Scheduled")["reason"] == "NoProviderMatched"
    assert EventReason.NAMESPACE_REFUSED not in world.recorder.reasons()


async def test_equal_names_in_two_namespaces_never_meet_on_the_backend() -> None:
    bench = MachineBench()
    twin = Key("team-b", MACHINE.name)
    bench.api.put(NAMESPACES, {"metadata": {"name": "team-b"}})
    for key in (MACHINE, twin):
        bench.make_machine(key)
        await bench.run(key)
    mine, other = bench.machine(MACHINE)["spec"], bench.machine(twin)["spec"]
    assert len(bench.vms()) == 2
    assert mine["instance"]["name"] != other["instance"]["name"]
    assert mine["providerID"] != other["providerID"]
    bench.delete(MACHINE)
    await bench.run(MACHINE)
    assert [vm.uuid for vm in bench.vms()] == [other["instance"]["uuid"]]
    await bench.run(twin)
    assert bench.condition("Ready", twin) == ("True", "Ready")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NeedsOperator(Reason.PROVIDER_TLS_INVALID, "not trusted"), "ProviderTLSInvalid"),
        (Unreachable("no answer"), "ProviderUnreachable"),
    ],
)
async def test_distrust_and_silence_are_different_news(error: Any, reason: str) -> None:  # noqa: ANN401 - any
    bench = ProviderBench()
    await bench.run()
    bench.endpoint.fail["login"] = bench.endpoint.fail["about"] = error
    bench.edit(connection={"endpoint": "https://other/sdk", "credentialsRef": {"name": "creds"}})
    await bench.run_for(120)
    assert [str(it) for it in bench.recorder.reasons()] == [reason]
    bench.endpoint.fail.clear()
    await bench.run_for(400)
    assert [str(it) for it in bench.recorder.reasons()] == [reason, "ProviderRecovered"]
    await bench.stop()


async def test_silence_that_becomes_distrust_is_told() -> None:
    bench = ProviderBench()
    bench.endpoint.fail["login"] = Unreachable("no answer")
    await bench.run_for(120)
    bench.endpoint.fail["login"] = NeedsOperator(Reason.PROVIDER_TLS_INVALID, "not trusted")
    await bench.run_for(400)
    assert bench.recorder.reasons() == [
        EventReason.PROVIDER_UNREACHABLE,
        EventReason.PROVIDER_TLS_INVALID,
    ]
    await bench.stop()


async def test_a_missing_grant_names_the_account_the_secret_and_what_to_run() -> None:
    bench = MachineBench()
    user = "system:serviceaccount:banlieue-system:banlieue-provider-simulated"

    def refuse(call: Call, moment: Moment) -> None:
        if moment is Moment.BEFORE and call.resource == SECRETS and call.key.name == "first-boot":
            told = f'secrets "first-boot" is forbidden: User "{user}" cannot get resource'
            raise Forbidden(403, "Forbidden", told)

    bench.api.intercept(refuse)
    bench.make_machine(userData={"secretRef": {"name": "first-boot"}})
    await bench.run(passes=5)
    conditions = bench.machine()["status"]["conditions"]
    (ready,) = [it for it in conditions if it["type"] == "Ready"]
    assert ready["reason"] == "UserDataNotGranted"
    assert "`banlieue bootstrap grant -n team-a --provider" in ready["message"]
    assert "Secret first-boot" in ready["message"]
    assert "ServiceAccount banlieue-system/banlieue-provider-simulated" in ready["message"]


def test_what_cannot_be_done_is_told_with_what_is_there_instead() -> None:
    want = Desired(
        PowerState.POWERED_ON, 4, 8192, disks={"data": 20, "new": 5, "root": None, "same": 3}
    )
    seen = MachineState(
        "n",
        "u",
        "b",
        None,
        PowerState.POWERED_ON,
        cpus=2,
        memory_mib=4096,
        disks=(DiskState("1", "data", 10), DiskState("2", "root", 8), DiskState("3", "same", 3)),
    )
    assert told("cpus", want, seen, ()) == "cpus (4 asked for, 2 there)"
    assert told("memoryMiB", want, seen, ()) == "memoryMiB (8192 asked for, 4096 there)"
    assert told("disks", want, seen, ()) == (
        "disks (data: 20 GiB asked for, 10 GiB there; new: 5 GiB asked for, not there)"
    )
    assert told("networkInterfaces", want, seen, ("eth1",)) == "networkInterfaces (eth1)"
    assert told("tags", want, seen, ()) == "tags"
