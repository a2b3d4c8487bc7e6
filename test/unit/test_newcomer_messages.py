"""What a newcomer gets wrong first is told with the field and what to do about it."""

import pytest

from banlieue.api import names
from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDERS
from banlieue.api.v1alpha1.provider import Provider
from banlieue.sdk.errors import InvalidSpec, Unreachable
from banlieue.sdk.kube import Obj
from banlieue.sdk.provider.endpoints import located
from banlieue.sdk.provider.scope import Problem
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
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


@pytest.mark.parametrize(
    ("connection", "where"),
    [
        ({"endpoint": "https://vc.example/sdk"}, "connection.endpoint vc.example: "),
        ({"endpoint": "https://[2001:db8::1]:444/"}, "connection.endpoint [2001:db8::1]:444: "),
        ({"endpoint": "qemu:///system"}, ""),
        ({"endpoint": "https://vc.example:nonsense/"}, ""),
        (
            {"endpoints": [f"https://pve{number}.example:8006" for number in range(5)]},
            "connection.endpoints pve0.example:8006, pve1.example:8006, pve2.example:8006 and 2 "
            "more: ",
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
