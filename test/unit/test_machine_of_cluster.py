"""A machine that Cluster API made: its Cluster and its Machine are read before anything is done."""

from banlieue.api import names
from banlieue.api.resources import CAPI_CLUSTERS, CAPI_MACHINES
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from test.kit.machinebench import MACHINE, NAMESPACE, MachineBench


def of_cluster(*, paused: bool) -> MachineBench:
    bench = MachineBench()
    bench.make_machine()
    owner = bench.api.put(
        CAPI_MACHINES,
        {
            "metadata": {"namespace": NAMESPACE, "name": "node-1"},
            "spec": {
                "infrastructureRef": {
                    "apiGroup": SIMULATED_MACHINES.group,
                    "kind": SIMULATED_MACHINES.kind,
                    "name": MACHINE.name,
                }
            },
        },
    )
    bench.api.put(
        CAPI_CLUSTERS,
        {"metadata": {"namespace": NAMESPACE, "name": "c"}, "spec": {"paused": paused}},
    )

    def adopted(obj: Obj) -> None:
        del obj["spec"]["virtualMachineRef"]
        obj["metadata"]["labels"] = {names.CAPI_LABEL_CLUSTER_NAME: "c"}
        obj["metadata"]["ownerReferences"] = [
            {
                "apiVersion": CAPI_MACHINES.api_version,
                "kind": "Machine",
                "name": "node-1",
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]

    bench.api.edit(SIMULATED_MACHINES, MACHINE, adopted)
    return bench


async def test_a_machine_whose_cluster_is_paused_is_left_alone() -> None:
    bench = of_cluster(paused=True)
    await bench.run()
    (paused,) = [it for it in bench.machine()["status"]["conditions"] if it["type"] == "Paused"]
    assert paused["message"] == "its Cluster is paused"
    assert bench.vms() == []


async def test_a_machine_is_made_for_the_machine_that_refers_to_it() -> None:
    bench = of_cluster(paused=False)
    await bench.run()
    assert len(bench.vms()) == 1


async def test_nothing_is_made_for_a_machine_that_refers_to_another_object() -> None:
    bench = of_cluster(paused=False)

    def other(obj: Obj) -> None:
        obj["spec"]["infrastructureRef"]["name"] = "another"

    bench.api.edit(CAPI_MACHINES, Key(NAMESPACE, "node-1"), other)
    await bench.run()
    assert bench.vms() == []
