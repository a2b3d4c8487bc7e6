"""Attempts to have a machine reconciler make a second VM, or touch one it must not touch."""

from dataclasses import replace

import pytest
from pydantic import Field

from banlieue.api.infrastructure.machine import Machine
from banlieue.api.resources import CONFIG_MAPS, PROVIDERS, VIRTUAL_MACHINES
from banlieue.controller.infra import teardown
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.powers import Changes
from banlieue.sdk.simulated.models import (
    SIMULATED_MACHINES,
    SimulatedMachine,
    SimulatedMachineSpec,
)
from test.kit.machinebench import MACHINE, PROVIDER, MachineBench

INSTALLATION = Key("banlieue-system", "banlieue-installation")


@pytest.fixture
def bench() -> MachineBench:
    return MachineBench()


def redoable(bench: MachineBench) -> bool:
    """Whether the controller would now release this object and place its machine elsewhere."""
    return teardown.redoable(Machine.from_api(bench.machine()))


@pytest.mark.identity("4.5")
async def test_a_create_that_is_tried_again_can_no_longer_be_placed_elsewhere(
    bench: MachineBench,
) -> None:
    """A refused create is tried again; what the refusal said must not outlive that try.

    The controller lets a refused object go without asking the backend, so a refusal that still
    stands while a clone runs would leave that VM behind and make another one elsewhere.
    """
    bench.make_machine()
    bench.control(
        "inject", rule={"effect": "fail-task", "method": "create*", "code": "InsufficientMemory"}
    )
    await bench.run()
    assert redoable(bench)
    assert bench.vms() == []

    bench.control("inject", rule={"effect": "slow-task", "method": "create*", "seconds": 50.0})
    bench.clock.advance(100)
    await bench.reconciler.reconcile(MACHINE)
    assert not redoable(bench)
    for _ in range(20):
        bench.clock.advance(5)
        await bench.reconciler.reconcile(MACHINE)
        assert not redoable(bench)
    assert len(bench.vms()) == 1


@pytest.mark.identity("4.5")
async def test_a_redo_that_was_decided_on_the_old_refusal_comes_too_late(
    bench: MachineBench,
) -> None:
    """The try moves the object on, so that an intent written for the version before fails."""
    bench.make_machine()
    bench.control(
        "inject", rule={"effect": "fail-task", "method": "create*", "code": "InsufficientMemory"}
    )
    await bench.run()
    before = bench.machine()["metadata"]["resourceVersion"]
    made: list[str] = []
    bench.served.driver = _Spy(bench, made)  # type: ignore[assignment]  # a driver by delegation
    bench.clock.advance(100)
    await bench.run()
    assert made
    assert before not in made


class _Spy:
    """A driver that notes which version of the machine stands when a create is sent."""

    def __init__(self, bench: MachineBench, versions: list[str]) -> None:
        self._bench, self._inner, self._versions = bench, bench.served.driver, versions

    def __getattr__(self, name: str) -> object:
        if name == "create":
            self._versions.append(self._bench.machine()["metadata"]["resourceVersion"])
        return getattr(self._inner, name)


@pytest.mark.identity("2.1")
async def test_a_restored_identity_makes_nothing_for_an_owner_that_refers_elsewhere(
    bench: MachineBench,
) -> None:
    """A backup holds an object with an identity and no VM; its owner has another machine now."""
    bench.make_machine()
    bench.control("inject", rule={"effect": "cut", "method": "create*", "count": None})
    await bench.reconciler.reconcile(MACHINE)
    assert bench.machine()["spec"]["instance"]
    bench.control("heal")
    elsewhere = {
        "apiGroup": "infrastructure.example.com",
        "kind": "OtherMachine",
        "name": MACHINE.name,
        "namespace": MACHINE.namespace,
    }
    bench.api.edit(
        VIRTUAL_MACHINES,
        MACHINE,
        lambda obj: obj.update(status={"infrastructureRef": elsewhere}),
    )
    bench.restart()
    for _ in range(10):
        bench.clock.advance(100)
        await bench.run()
    assert bench.vms() == []
    assert bench.condition("Ready") == ("False", "NotReferenced")


async def test_an_identity_written_by_a_stranger_makes_nothing_without_an_owner(
    bench: MachineBench,
) -> None:
    bench.make_machine(
        instance={
            "uuid": "11111111-2222-4333-8444-555555555555",
            "name": "free-vm",
            "installationID": "installation-1",
            "backendIdentity": "bench-identity",
        }
    )
    bench.api.edit(SIMULATED_MACHINES, MACHINE, lambda obj: obj["metadata"].pop("ownerReferences"))
    bench.api.drop(VIRTUAL_MACHINES, MACHINE)
    await bench.run()
    assert bench.vms() == []


async def test_release_in_a_restored_cluster_does_not_unmark_the_vm_of_the_original(
    bench: MachineBench,
) -> None:
    bench.make_machine()
    await bench.run()
    (before,) = (vm.mark for vm in bench.vms())
    assert before
    bench.api.edit(
        CONFIG_MAPS, INSTALLATION, lambda obj: obj["data"].update(clusterUID="elsewhere")
    )
    bench.api.edit(
        VIRTUAL_MACHINES,
        MACHINE,
        lambda obj: obj["metadata"].update(
            deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["banlieue.io/virtualmachine"]
        ),
    )
    bench.delete(mode="Release")
    await bench.run()
    assert [vm.mark for vm in bench.vms()] == [before]


async def test_a_lost_status_is_no_edit_that_overrides_the_drift_policy(
    bench: MachineBench,
) -> None:
    bench.make_machine(driftPolicy={"power": "Report"})
    await bench.run()
    bench.control("set_power", vm=bench.vms()[0].id, power="PoweredOff")
    await bench.run()
    _wipe_status(bench)
    bench.restart()
    for _ in range(5):
        await bench.run()
        bench.clock.advance(60)
    assert bench.vms()[0].power == "PoweredOff"


def _wipe_status(bench: MachineBench) -> None:
    def change(obj: Obj) -> None:
        obj["status"] = {}

    bench.api.edit(SIMULATED_MACHINES, MACHINE, change)


class _TemplateSpec(SimulatedMachineSpec):
    """A machine that names things of the backend, as every real backend lets it."""

    template: str | None = None
    options: dict[str, str] = Field(default_factory=dict)


class _TemplateMachine(SimulatedMachine):
    """A machine of a backend with fields of its own."""

    spec: _TemplateSpec


@pytest.mark.parametrize(
    ("namespace", "policy", "made"),
    [
        ("team-a", {}, False),
        ("team-a", {"template": ["golden-*"], "options": ["numa=*"]}, False),
        ("team-a", {"template": ["*"]}, False),
        ("team-a", {"template": ["vault-of-team-b"], "options": ["numa=*"]}, True),
        (PROVIDER.namespace, {}, True),
    ],
)
async def test_a_tenant_names_no_template_that_the_provider_does_not_allow(
    bench: MachineBench, namespace: str, policy: dict[str, list[str]], *, made: bool
) -> None:
    """Else a tenant clones the disks of another by naming its VM."""
    bench.backend = replace(bench.backend, kinds=(_TemplateMachine,))
    bench.restart()
    bench.api.edit(
        PROVIDERS, PROVIDER, lambda obj: obj["spec"].update(policy={"concreteFields": policy})
    )
    key = Key(namespace, "db-1")
    bench.make_machine(key, template="vault-of-team-b", options={"numa": "off"})
    await bench.run(key)
    assert (len(bench.vms()) == 1) is made
    if not made:
        assert bench.condition("Ready", key) == ("False", "ValueNotAllowed")
        assert "instance" not in bench.machine(key)["spec"]


async def test_a_forged_identity_does_not_keep_news_from_the_machine_it_names(
    bench: MachineBench,
) -> None:
    bench.make_machine()
    await bench.run()
    instance = bench.machine()["spec"]["instance"]
    forged = Key("team-evil", "db-1")
    bench.make_machine(forged, instance=instance, providerID="simulated://forged")
    await bench.run(forged)
    assert bench.condition("Ready", forged) == ("False", "OwnershipConflict")

    asked: list[Key] = []
    bench.reconciler.ctx = replace(
        bench.reconciler.ctx, enqueue=lambda _, request: asked.append(request.key)
    )
    for word in (instance["uuid"], instance["name"]):
        asked.clear()
        bench.reconciler.changed(PROVIDER, Changes(uuids=frozenset({word})))
        assert MACHINE in asked


@pytest.mark.identity("4.3")
@pytest.mark.parametrize(("on_missing", "made"), [("Report", 0), ("Recreate", 1)])
async def test_an_owner_whose_vm_was_seen_gets_no_second_one_with_a_new_machine_object(
    bench: MachineBench, on_missing: str, made: int
) -> None:
    """The object that knew the VM was deleted by hand, and the VM is not to be found."""
    bench.make_machine()
    await bench.run()
    bench.delete(mode="Release")
    await bench.run()
    bench.control("remove", vm=bench.vms()[0].id)
    bench.restart()
    bench.make_machine()

    def tell(obj: Obj) -> None:
        obj["status"]["initialization"] = {"provisioned": True}
        obj["spec"]["onMissing"] = on_missing

    bench.api.edit(VIRTUAL_MACHINES, MACHINE, tell)
    await bench.run()
    assert len(bench.vms()) == made
    if not made:
        assert bench.condition("Ready") == ("False", "VMMissing")
        assert "instance" not in bench.machine()["spec"]
