"""Tags of a machine that Cluster API made: from the labels its owners keep up on it."""

from typing import Any, cast

import pytest

from banlieue.api import names
from banlieue.api.resources import CAPI_CLUSTERS, CAPI_MACHINES, PROVIDERS
from banlieue.sdk.driver import Driver, MachinePlan, MachineState
from banlieue.sdk.kube import Obj
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.upkeep import Upkeep
from test.kit.machinebench import MACHINE, NAMESPACE, PROVIDER, MachineBench

TEAM, COST = "example.org/team", "example.org/cost-center"


class _Keeper:
    """A driver with the power, which keeps what it was asked for."""

    def __init__(self, driver: Driver[Any]) -> None:
        self._driver = driver
        self.asked: list[dict[str, str]] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the driver has
        return getattr(self._driver, name)

    def keep_up(self, plan: MachinePlan[Any], seen: MachineState) -> Upkeep:
        assert seen.uuid == plan.ref.uuid
        self.asked.append(dict(plan.tags))
        return Upkeep()


def _keeper(bench: MachineBench) -> _Keeper:
    keeper = _Keeper(bench.served.driver)
    bench.served.driver = cast("Driver[Any]", keeper)
    return keeper


def _label(bench: MachineBench, **labels: str) -> None:
    """As a MachineSet labels its machines, which moves no generation."""
    known = {"team": TEAM, "cost": COST}
    wanted = {known[name]: value for name, value in labels.items()}

    def change(obj: Obj) -> None:
        obj["metadata"]["labels"] = {names.CAPI_LABEL_CLUSTER_NAME: "c", **wanted}

    bench.api.edit(SIMULATED_MACHINES, MACHINE, change)


def _map(bench: MachineBench, **mapping: str) -> None:
    entries = [{"label": label, "tag": tag} for tag, label in mapping.items()]
    bench.api.edit(PROVIDERS, PROVIDER, lambda obj: obj["spec"].update(tagMapping=entries))


@pytest.fixture
def bench() -> MachineBench:
    bench = MachineBench()
    _map(bench, Team=TEAM, CostCenter=COST)
    bench.make_machine()
    reference = {
        "apiGroup": SIMULATED_MACHINES.group,
        "kind": SIMULATED_MACHINES.kind,
        "name": MACHINE.name,
    }
    owner = bench.api.put(
        CAPI_MACHINES,
        {
            "metadata": {"namespace": NAMESPACE, "name": "node-1"},
            "spec": {"infrastructureRef": reference},
        },
    )
    bench.api.put(CAPI_CLUSTERS, {"metadata": {"namespace": NAMESPACE, "name": "c"}, "spec": {}})

    def made_by_capi(obj: Obj) -> None:
        del obj["spec"]["virtualMachineRef"]
        obj["metadata"]["ownerReferences"] = [
            {
                "apiVersion": CAPI_MACHINES.api_version,
                "kind": "Machine",
                "name": "node-1",
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]

    bench.api.edit(SIMULATED_MACHINES, MACHINE, made_by_capi)
    _label(bench)
    return bench


async def test_labels_become_the_tags_the_provider_maps(bench: MachineBench) -> None:
    keeper = _keeper(bench)
    _label(bench, team="blue")
    before = bench.machine()["spec"]
    await bench.run()
    assert keeper.asked == [{"Team": "blue"}]
    assert bench.machine()["spec"].get("tags") == before.get("tags"), "its author's spec is his"
    await bench.run()
    assert len(keeper.asked) == 1, "a machine at rest asks for nothing"


async def test_a_label_that_changes_and_one_that_goes_take_their_tags_along(
    bench: MachineBench,
) -> None:
    keeper = _keeper(bench)
    _label(bench, team="blue", cost="42")
    await bench.run()
    _label(bench, team="red")
    await bench.run()
    _label(bench)
    await bench.run()
    assert keeper.asked == [{"Team": "blue", "CostCenter": "42"}, {"Team": "red"}, {}]


async def test_labels_that_went_while_nobody_served_are_looked_at_once(bench: MachineBench) -> None:
    _keeper(bench)
    _label(bench, team="blue")
    await bench.run()
    bench.restart()
    again = _keeper(bench)
    _label(bench)
    await bench.run()
    await bench.run()
    assert again.asked == [{}]


async def test_what_the_spec_says_beats_a_label(bench: MachineBench) -> None:
    keeper = _keeper(bench)
    _label(bench, team="blue", cost="42")
    bench.edit(tags={"Team": "green"})
    await bench.run()
    assert keeper.asked == [{"Team": "green", "CostCenter": "42"}]


async def test_an_edit_of_the_mapping_is_brought_about(bench: MachineBench) -> None:
    keeper = _keeper(bench)
    _label(bench, team="blue")
    await bench.run()
    _map(bench, Owner=TEAM)
    await bench.run()
    assert keeper.asked == [{"Team": "blue"}, {"Owner": "blue"}]


async def test_labels_of_what_a_virtual_machine_made_are_nobodys_word(bench: MachineBench) -> None:
    """There the controller maps the labels of the VirtualMachine."""
    keeper = _keeper(bench)

    def by_vm(obj: Obj) -> None:
        obj["spec"]["virtualMachineRef"] = {"name": MACHINE.name, "uid": "any"}
        obj["metadata"]["ownerReferences"] = []

    _label(bench, team="blue")
    bench.api.edit(SIMULATED_MACHINES, MACHINE, by_vm)
    await bench.run()
    assert keeper.asked == []
    assert len(bench.vms()) == 1


async def test_a_driver_without_the_power_says_so(bench: MachineBench) -> None:
    _label(bench, team="blue")
    await bench.run()
    assert bench.condition("Ready") == ("True", "Ready")
    assert bench.condition("UpToDate") == ("False", "UnsupportedByProvider")
