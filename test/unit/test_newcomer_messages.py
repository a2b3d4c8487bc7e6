"""What a newcomer gets wrong first is told with the field and what to do about it."""

import pytest

from banlieue.api import names
from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDER_CLASSES, PROVIDERS
from banlieue.api.v1alpha1.provider import Provider
from banlieue.controller.provider_classes import ProviderClassReconciler
from banlieue.sdk.errors import Unreachable
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.provider.endpoints import located
from banlieue.sdk.provider.scope import Problem
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.testing.fakes import context_for
from test.kit.controllerworld import ControllerWorld
from test.kit.machinebench import MACHINE, MachineBench
from test.kit.providerbench import KEY, ProviderBench


def told(obj: Obj, kind: str) -> tuple[str, str, str]:
    (found,) = [it for it in obj["status"]["conditions"] if it["type"] == kind]
    return found["status"], found["reason"], found["message"]


# An endpoint that does not answer


async def test_an_endpoint_that_does_not_answer_is_named_on_the_provider_only() -> None:
    bench = ProviderBench()
    bench.edit(connection={"endpoint": "https://admin@vc.example:8443/sdk"})
    bench.endpoint.fail["login"] = Unreachable("the endpoint does not answer")
    await bench.run_for(60)
    provider = bench.api.peek(PROVIDERS, KEY) or {}
    _, reason, message = told(provider, "ProviderReachable")
    assert reason == "ProviderUnreachable"
    assert message == "connection.endpoint vc.example:8443: the endpoint does not answer"
    for_machines = bench.sessions.trouble(KEY)
    assert for_machines is not None
    assert "vc.example" not in for_machines.message
    await bench.stop()


FIRST_THREE = [f"pve{number}.example:8006" for number in range(3)]


@pytest.mark.parametrize(
    ("connection", "where"),
    [
        ({"endpoint": "https://vc.example/sdk"}, "connection.endpoint vc.example: "),
        ({"endpoint": "https://[2001:db8::1]:444/"}, "connection.endpoint [2001:db8::1]:444: "),
        ({"endpoint": "qemu:///system"}, ""),
        ({"endpoint": "https://vc.example:nonsense/"}, ""),
        (
            {"endpoints": [f"https://pve{number}.example:8006" for number in range(5)]},
            f"connection.endpoints {', '.join(FIRST_THREE)} and 2 more: ",
        ),
    ],
)
def test_the_host_is_shown_without_login_and_path(connection: Obj, where: str) -> None:
    spec = {"providerClassRef": {"name": "c"}, "connection": connection}
    provider = Provider.from_api({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec})
    for reason in (Reason.PROVIDER_UNREACHABLE, Reason.PROVIDER_TLS_INVALID):
        assert located(Problem(reason, "why"), provider).message == f"{where}why"
    other = Problem(Reason.PROVIDER_AUTH_FAILED, "why")
    assert located(other, provider) is other


# A Provider of a class that does not exist

CLASSLESS = Key("team-a", "typo")


def classless() -> ControllerWorld:
    world = ControllerWorld.ready()
    world.api.put(
        PROVIDERS,
        {
            "metadata": {"namespace": CLASSLESS.namespace, "name": CLASSLESS.name},
            "spec": {
                "providerClassRef": {"name": "vspere"},
                "connection": {"endpoint": "https://vc.example/sdk"},
            },
        },
    )
    return world


def provider_class(name: str) -> Obj:
    machine = {
        "apiGroup": "infrastructure.banlieue.io",
        "version": "v1alpha1",
        "kind": "ThisMachine",
    }
    return {"metadata": {"name": name}, "spec": {"backend": "this", "machine": machine}}


async def test_a_provider_of_no_class_is_told_by_the_controller_with_what_there_is() -> None:
    world = classless()
    await world.settle()
    status, reason, message = told(world.api.peek(PROVIDERS, CLASSLESS) or {}, "Ready")
    assert (status, reason) == ("False", "ProviderClassNotFound")
    assert message == (
        "ProviderClass 'vspere' of spec.providerClassRef does not exist: correct the name or "
        "create it; there are this"
    )
    writes = len(world.api.writes())
    world.restart()
    await world.settle()
    assert len(world.api.writes()) == writes


async def test_what_was_told_of_a_missing_class_is_taken_back_when_it_comes() -> None:
    world = classless()
    await world.settle()
    world.api.put(PROVIDER_CLASSES, provider_class("vspere"))
    await world.settle()
    provider = world.api.peek(PROVIDERS, CLASSLESS) or {}
    assert not (provider.get("status") or {}).get("conditions")
    world.api.drop(PROVIDER_CLASSES, Key("", "vspere"))
    await world.settle()
    assert told(world.api.peek(PROVIDERS, CLASSLESS) or {}, "Ready")[1] == "ProviderClassNotFound"


async def test_a_provider_and_its_class_applied_together_are_not_written_to() -> None:
    world = classless()
    world.api.put(PROVIDER_CLASSES, provider_class("vspere"))
    await world.settle()
    assert not [call for call in world.api.writes() if call.resource == PROVIDERS]


async def test_what_a_process_says_that_serves_the_provider_is_left_alone() -> None:
    bench = ProviderBench()
    await bench.run_for(30)
    bench.api.drop(PROVIDER_CLASSES, Key("", "c"))
    reconciler = ProviderClassReconciler(context_for(bench.api, clock=bench.clock))
    before = bench.api.peek(PROVIDERS, KEY)
    await reconciler.reconcile(KEY)
    assert bench.api.peek(PROVIDERS, KEY) == before
    await bench.stop()


async def test_a_process_that_begins_to_serve_takes_over_what_the_controller_said() -> None:
    bench = ProviderBench()
    spec = (bench.api.peek(PROVIDER_CLASSES, Key("", "c")) or {})["spec"]
    bench.api.drop(PROVIDER_CLASSES, Key("", "c"))
    reconciler = ProviderClassReconciler(context_for(bench.api, clock=bench.clock))
    await reconciler.reconcile(KEY)
    assert told(bench.api.peek(PROVIDERS, KEY) or {}, "Ready")[1] == "ProviderClassNotFound"
    bench.api.put(PROVIDER_CLASSES, {"metadata": {"name": "c"}, "spec": spec})
    await bench.run_for(30)
    await reconciler.reconcile(KEY)
    assert told(bench.api.peek(PROVIDERS, KEY) or {}, "Ready")[:2] == ("True", "Ready")
    await bench.stop()


# A machine object written by hand


async def test_a_machine_written_by_hand_says_that_nobody_owns_it_and_what_to_make_instead() -> (
    None
):
    bench = MachineBench()
    bench.make_machine()

    def bare(obj: Obj) -> None:
        del obj["spec"]["virtualMachineRef"]
        obj["metadata"].pop("ownerReferences", None)
        obj["metadata"].pop("labels", None)

    bench.api.edit(SIMULATED_MACHINES, MACHINE, bare)
    await bench.run()
    status, reason, message = told(bench.machine(), "Ready")
    assert (status, reason) == ("False", "NotReferenced")
    assert "create a VirtualMachine" in message
    assert told(bench.machine(), "Paused") == ("True", "Paused", message)
    assert bench.vms() == []


async def test_a_machine_of_cluster_api_that_lost_its_label_says_which_to_put_back() -> None:
    bench = MachineBench()
    bench.make_machine()

    def stripped(obj: Obj) -> None:
        del obj["spec"]["virtualMachineRef"]
        obj["metadata"].pop("labels", None)
        owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m"}
        obj["metadata"]["ownerReferences"] = [{**owner, "uid": "u", "controller": True}]

    bench.api.edit(SIMULATED_MACHINES, MACHINE, stripped)
    await bench.run()
    _, _, message = told(bench.machine(), "Paused")
    assert f"label {names.CAPI_LABEL_CLUSTER_NAME} is missing" in message
    assert "label the machine with the name of its Cluster" in message
    assert all(it["type"] != "Ready" for it in bench.machine()["status"]["conditions"])
