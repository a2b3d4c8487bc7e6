"""Eighteen failures that controllers of virtual machines are known for, each shown to be absent.

One test per failure, short and in process; the areas' own tests go deeper.
"""

from pathlib import Path
from typing import Any

import pytest

from banlieue.api import names
from banlieue.api.reasons import Reason
from banlieue.api.resources import (
    PROVIDERS,
    VIRTUAL_MACHINES,
    VM_CLASSES,
    VM_IMAGES,
)
from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.controller import writes
from banlieue.controller.scheduling.placement import (
    TOPOLOGY_FAILURE_DOMAIN,
    Apart,
    Capacity,
    ImageState,
    Place,
)
from banlieue.controller.scheduling.scheduler import schedule
from banlieue.sdk.driver import FailureDomain
from banlieue.sdk.errors import Unreachable
from banlieue.sdk.image.reconciler import ImageReconciler
from banlieue.sdk.kube import Conflict, Key, Obj
from banlieue.sdk.provider import capabilities
from banlieue.sdk.runtime.health import Health
from banlieue.sdk.runtime.metrics import Metrics
from banlieue.sdk.testing.fakes import context_for
from test.kit import scheduling
from test.kit.controllerworld import NAMESPACE, SYSTEM, THIS, ControllerWorld
from test.kit.machinebench import MachineBench
from test.kit.providerbench import KEY, ProviderBench
from test.kit.scheduling import VM, chosen, demand, labelled, refusal, resident, site
from test.kit.yaml_text import yaml_documents

RBAC = Path(__file__).parents[2] / "config" / "rbac"
IMAGE = Key("", "ubuntu")


async def _running(**providers: dict[str, Any]) -> ControllerWorld:
    world = ControllerWorld.ready(**providers)
    world.add_vm()
    await world.settle()
    assert world.condition("Ready")["status"] == "True"
    return world


def _condition(obj: Obj | None, kind: str) -> tuple[str, str]:
    found = list(((obj or {}).get("status") or {}).get("conditions") or ())
    return next(((it["status"], it["reason"]) for it in found if it["type"] == kind), ("", ""))


async def test_01_a_machine_that_runs_is_scheduled_and_ready() -> None:
    """Failure: Scheduled is never set, so Ready never becomes true."""
    world = await _running()
    assert world.condition("Scheduled")["status"] == "True"
    assert world.status()["phase"] == "Running"


async def test_02_a_failure_domain_publishes_what_is_reachable_from_it() -> None:
    """Failure: no classes are published, so nothing that asks for one fits anywhere."""
    bench = ProviderBench()
    bench.endpoint.domains = (
        FailureDomain("d1", ("dc", "c1"), ("gold",), ("prod",), ("TPM",)),
        FailureDomain("d2", ("dc", "c2"), (), ("prod",)),
    )
    await bench.run()
    first, second = (it.attributes for it in bench.provider.status.failure_domains)
    assert first.available_storage_classes == ["gold"]
    assert first.available_network_classes == ["prod"]
    assert [it.value for it in first.features] == ["TPM"]
    assert second.available_storage_classes == []
    await bench.stop()


async def test_03_what_a_pass_does_not_know_is_not_wiped() -> None:
    """Failure: partial status writes remove placement, domains and other conditions."""
    world = await _running()
    before = world.status()
    world.api.drop(VM_CLASSES, Key("", "small"))
    world.api.edit(PROVIDERS, Key(SYSTEM, "one"), lambda it: it["status"].pop("failureDomains"))
    await world.settle()
    for part in ("scheduled", "infrastructureRef", "addresses", "providerID"):
        assert world.status().get(part) == before.get(part)
    kinds = {it["type"] for it in before["conditions"]}
    assert kinds <= {it["type"] for it in world.status()["conditions"]}

    bench = ProviderBench()
    await bench.run()
    domains = bench.provider.status.failure_domains
    bench.endpoint.fail["about"] = bench.endpoint.fail["failure_domains"] = Unreachable("gone")
    await bench.run_for(600)
    assert bench.ready[0] == "False"
    assert bench.provider.status.failure_domains == domains
    await bench.stop()


async def test_04_nothing_is_written_while_nothing_changes() -> None:
    """Failure: fresh times in every status wake the watch, which writes again."""
    world = await _running()
    written = len(world.api.writes())
    for _ in range(3):
        world.restart()
        await world.settle()
    assert len(world.api.writes()) == written

    bench = ProviderBench()
    await bench.run_for(60)
    written, logins = len(bench.api.writes()), len(bench.endpoint.logins)
    await bench.run_for(1800)
    assert (len(bench.api.writes()), len(bench.endpoint.logins)) == (written, logins)
    await bench.stop()


async def test_05_what_was_observed_is_in_the_status() -> None:
    """Failure: addresses, initialization and power state are computed and not written."""
    status = (await _running()).status()
    assert status["addresses"] == [{"type": "InternalIP", "address": "10.0.0.7"}]
    assert status["initialization"] == {"provisioned": True}
    assert status["observedPowerState"] == "PoweredOn"
    assert status["host"] == "host-1"


async def test_06_a_place_that_looks_better_now_moves_nothing() -> None:
    """Failure: a new Provider, an image or a full domain destroys healthy machines."""
    world = await _running()
    vms, machine = [vm.uuid for vm in world.vms()], (world.machine() or {})["metadata"]["uid"]
    world.add_provider("a")
    world.api.edit(VM_IMAGES, IMAGE, lambda it: it["status"].update(perProvider=[]))
    full = {"total": 4096, "free": 0}
    world.api.edit(
        PROVIDERS,
        Key(SYSTEM, "one"),
        lambda it: it["status"]["failureDomains"][0]["attributes"].update(
            capacity={"memoryMiB": full}
        ),
    )
    await world.settle()
    assert [vm.uuid for vm in world.vms()] == vms
    assert (world.machine() or {})["metadata"]["uid"] == machine


async def test_07_a_machine_is_made_anew_only_after_the_old_one_is_gone() -> None:
    """Failure: the new object meets the old one of its name, and what was invalid stays so."""
    world = await _running()
    before = (world.machine() or {})["metadata"]["uid"]
    most: list[int] = []
    world.api.subscribe(lambda _: most.append(len(world.machines())))
    world.api.drop(THIS, Key(NAMESPACE, "db-1"))
    await world.settle()
    assert max(most) == 1
    assert (world.machine() or {})["metadata"]["uid"] != before
    assert len(world.vms()) == 1

    selector = {"matchLabels": {"zone": "b"}}
    world.edit_vm(placement={"providerSelector": selector})
    await world.settle()
    assert world.condition("PlacementValid")["status"] == "False"
    world.api.edit(
        PROVIDERS, Key(SYSTEM, "one"), lambda it: it["metadata"].update(labels={"zone": "b"})
    )
    await world.settle()
    assert world.condition("PlacementValid")["status"] == "True"
    assert len(world.vms()) == 1


def test_08_anti_affinity_compares_places_and_never_a_machine_with_itself() -> None:
    """Failure: names are compared with label values, `preferred` and the machine are ignored."""
    sites = [site("one", scheduling.domain("one-a"), scheduling.domain("one-b"))]
    here = Place(Key("system", "one"), "one-a")
    there = Place(Key("system", "one"), "one-b")
    must = Apart(TOPOLOGY_FAILURE_DOMAIN, labelled(app="db"), required=True)
    rather = Apart(TOPOLOGY_FAILURE_DOMAIN, labelled(app="db"))
    itself = resident(VM.name, here)
    assert chosen(schedule(demand(apart=(must,)), sites, [itself])) == "one-a"
    assert chosen(schedule(demand(apart=(must,)), sites, [resident("x", here)])) == "one-b"
    assert chosen(schedule(demand(apart=(rather,)), sites, [resident("x", here)])) == "one-b"
    crowd = [resident("x", here), resident("y", there)]
    assert chosen(schedule(demand(apart=(rather,)), sites, crowd))
    assert refusal(schedule(demand(apart=(must,)), sites, crowd)).reason is (
        Reason.ANTI_AFFINITY_UNSATISFIED
    )


async def test_08_a_machine_that_is_being_deleted_still_counts() -> None:
    """Failure: terminating machines are not considered, so two meet for a while."""
    world = ControllerWorld.ready(one={"domains": ("a",)})
    term = {
        "topologyKey": names.TOPOLOGY_FAILURE_DOMAIN,
        "labelSelector": {"matchLabels": {"app": "db"}},
        "mode": "required",
    }
    placement = {"antiAffinity": [term]}
    world.add_vm("first", labels={"app": "db"}, placement=placement)
    await world.settle()
    world.providers[0].down = True
    world.delete_vm("first")
    world.add_vm("second", labels={"app": "db"}, placement=placement)
    await world.settle(seconds=60)
    assert world.condition("Scheduled", "second")["reason"] == "AntiAffinityUnsatisfied"
    world.providers[0].down = False
    world.api.edit(THIS, Key(NAMESPACE, "first"), lambda it: it["metadata"].update(labels={}))
    await world.settle(seconds=600)
    assert world.vm("first") is None
    assert world.condition("Scheduled", "second")["status"] == "True"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ready": False}, Reason.PROVIDER_NOT_READY),
        ({"paused": True}, Reason.PROVIDER_PAUSED),
        ({"deleting": True}, Reason.PROVIDER_DELETING),
        (
            {"domains": (scheduling.domain("one-a", architectures=frozenset({"arm64"})),)},
            Reason.ARCHITECTURE_UNSUPPORTED,
        ),
        (
            {"domains": (scheduling.domain("one-a", capacity=Capacity(8192, 1024)),)},
            Reason.INSUFFICIENT_CAPACITY,
        ),
        ({"images": {"ubuntu": ImageState(ready=False)}}, Reason.IMAGE_NOT_READY),
    ],
)
def test_09_the_scheduler_looks_at_all_that_decides(changes: Any, reason: Reason) -> None:  # noqa: ANN401 - fields
    """Failure: readiness, pause, deletion, architecture and room are ignored."""
    found = refusal(schedule(demand(), [site("one", **changes)], []))
    assert found.reason is reason


def test_09_the_scheduler_counts_machines_in_flight() -> None:
    """Failure: machines that are on their way take no room."""
    place = scheduling.domain("one-a", capacity=Capacity(8192, 8192))
    coming = resident("x", Place(Key("system", "one"), "one-a"), memory_mib=6144, since=9.0)
    assert refusal(schedule(demand(), [site("one", place)], [coming])).reason is (
        Reason.INSUFFICIENT_CAPACITY
    )


async def test_10_a_target_is_taken_whole_and_every_disk_has_its_own() -> None:
    """Failure: the first value of a map is "the" target, and only the first disk's counts."""
    declared = Capabilities.model_validate(
        {"networkClasses": [{"name": "lan", "target": {"bridge": "br0", "vlan": 12}}]}
    )
    where = FailureDomain("d", ("d",), network_classes=("lan",))
    assert capabilities.network(declared, "lan", where).target == {"bridge": "br0", "vlan": 12}

    bench = MachineBench()
    both = [{"name": name, "target": {"pool": name}} for name in ("fast", "slow")]
    bench.api.edit(
        PROVIDERS,
        Key(SYSTEM, "sim"),
        lambda it: it["spec"]["capabilities"].update(storageClasses=both),
    )
    bench.restart()
    disks = [
        {"name": "root", "storageClass": "fast"},
        {"name": "data", "storageClass": "slow", "sizeGiB": 1},
    ]
    bench.make_machine(disks=disks)
    await bench.run()
    (vm,) = bench.vms()
    assert [(disk.name, disk.pool) for disk in vm.disks] == [("root", "fast"), ("data", "slow")]


async def test_11_an_image_is_ready_where_it_is_and_each_provider_has_its_row() -> None:
    """Failure: one dead backend fails an image, kinds fight for its status, one place is all."""
    world = ControllerWorld.ready(one={}, two={"backend": "that"})
    rows = [
        {"providerNamespace": SYSTEM, "providerName": "one", "ready": True},
        {"providerNamespace": SYSTEM, "providerName": "two", "ready": False, "reason": "X"},
    ]
    world.api.edit(VM_IMAGES, IMAGE, lambda it: it["status"].update(perProvider=rows))
    await world.settle()
    image = world.api.peek(VM_IMAGES, IMAGE) or {}
    assert _condition(image, "Ready") == ("True", "Ready")
    assert image["status"]["readyProviders"] == "1/2"

    bench = MachineBench()
    other = {"providerNamespace": "x", "providerName": "y", "ready": True}
    bench.api.edit(VM_IMAGES, IMAGE, lambda it: it.update(status={"perProvider": [other]}))
    bench.world.state.domains[1].images.remove("ubuntu-24.04")
    ctx = context_for(bench.api, clock=bench.clock)
    await ImageReconciler(ctx, bench.backend, bench).reconcile(IMAGE)
    told = {
        row["providerName"]: row
        for row in (bench.api.peek(VM_IMAGES, IMAGE) or {})["status"]["perProvider"]
    }
    assert told["y"] == other
    assert told["sim"]["resolvedRef"] == "ubuntu-24.04"
    assert told["sim"]["readyFailureDomains"] == ["sim-a"]


async def test_12_what_is_missing_is_told_and_noticed_when_it_comes() -> None:
    """Failure: a missing class is a bare retry, pause is ignored, changes elsewhere unseen."""
    world = ControllerWorld()
    world.add_vm()
    await world.settle(seconds=60)
    assert world.condition("Scheduled")["reason"] == "ClassNotFound"
    world.add_class()
    await world.settle(seconds=1)
    assert world.condition("Scheduled")["reason"] == "ImageNotFound"
    world.add_image()
    await world.settle(seconds=1)
    assert world.condition("Scheduled")["reason"] == "NoProviderMatched"
    world.edit_vm(paused=True)
    world.add_provider("one")
    await world.settle(seconds=60)
    assert world.machines() == []
    assert world.condition("Paused")["status"] == "True"
    world.edit_vm(paused=False)
    await world.settle(seconds=60)
    assert world.condition("Ready")["status"] == "True"


async def test_13_an_object_of_the_same_name_is_neither_taken_nor_deleted() -> None:
    """Failure: a machine of that name that somebody else made is hijacked or deleted."""
    world = ControllerWorld.ready()
    owner = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "name": "db-1",
        "uid": "somebody",
        "controller": True,
    }
    foreign = world.api.put(
        THIS,
        {
            "metadata": {"namespace": NAMESPACE, "name": "db-1", "ownerReferences": [owner]},
            "spec": {"imageRef": {"name": "ubuntu"}},
        },
    )
    world.add_vm()
    await world.settle(seconds=60)
    assert world.condition("InfrastructureReady")["reason"] == "OwnershipConflict"
    world.delete_vm()
    await world.settle(seconds=60)
    assert world.vm() is None
    left = world.machine() or {}
    assert left["metadata"]["uid"] == foreign["metadata"]["uid"]
    assert left["metadata"]["ownerReferences"] == [owner]
    assert left["spec"] == foreign["spec"]


async def test_14_health_tells_the_truth_and_there_are_metrics_and_events() -> None:
    """Failure: probes always answer 200, nothing is counted and nothing is told."""
    metrics = Metrics()
    health = Health(metrics)
    await health.serve("127.0.0.1", 0)
    health.add_ready("lease", lambda: "the lease is not held yet")
    assert any(health.ready().values())
    assert not any(health.live().values())
    assert b"leader_election_master_status" in metrics.render()
    await health.close()
    assert (await _running()).recorder.reasons()


async def test_15_a_finalizer_that_somebody_adds_meanwhile_is_kept() -> None:
    """Failure: the whole list is replaced without a version, and a concurrent finalizer is lost."""
    world = ControllerWorld()
    key = world.add_vm()
    stale = world.api.peek(VIRTUAL_MACHINES, key) or {}
    world.api.edit(VIRTUAL_MACHINES, key, lambda it: it["metadata"].update(finalizers=["other/x"]))
    with pytest.raises(Conflict):
        await writes.add_finalizer(
            world.api, VIRTUAL_MACHINES, stale, names.FINALIZER_VIRTUAL_MACHINE
        )
    fresh = world.api.peek(VIRTUAL_MACHINES, key) or {}
    await writes.add_finalizer(world.api, VIRTUAL_MACHINES, fresh, names.FINALIZER_VIRTUAL_MACHINE)
    held = (world.api.peek(VIRTUAL_MACHINES, key) or {})["metadata"]["finalizers"]
    assert held == ["other/x", names.FINALIZER_VIRTUAL_MACHINE]


async def test_16_a_provider_with_machines_stays_and_machines_without_one_can_go() -> None:
    """Failure: a Provider goes while machines are on it, and then they cannot be deleted."""
    bench = ProviderBench()
    bench.add_machine("db")
    held = [names.FINALIZER_PROVIDER_IN_USE]
    bench.api.edit(PROVIDERS, KEY, lambda it: it["metadata"].update(finalizers=held))
    await bench.run()
    bench.api.drop(PROVIDERS, KEY)
    await bench.run_for(600)
    assert bench.condition("Deleting")[:2] == ("True", "ProviderInUse")
    await bench.stop()

    world = await _running()
    world.edit_vm(deletionPolicy="Orphan")
    await world.settle()
    world.providers[0].down = True
    world.api.drop(PROVIDERS, Key(SYSTEM, "one"))
    world.delete_vm()
    await world.settle()
    assert world.vm() is None
    assert world.machines() == []


def test_17_the_controller_reads_no_secret_and_a_provider_lists_none() -> None:
    """Failure: a process that needs no Secret may list and watch all of them."""
    found: dict[str, set[str]] = {}
    for path in sorted(RBAC.glob("*.yaml")):
        for role in yaml_documents(path.read_text(encoding="utf-8")):
            for rule in (role or {}).get("rules") or ():
                if "" in rule.get("apiGroups", ()) and {"secrets", "*"} & set(rule["resources"]):
                    found.setdefault(role["metadata"]["name"], set()).update(rule["verbs"])
    assert not [name for name in found if "controller" in name]
    assert set().union(*found.values()) <= {"get", "patch"}


async def test_18_an_edit_of_a_class_leaves_machines_as_they_are() -> None:
    """Failure: a class edit is applied to every machine made from it, unasked."""
    world = await _running()
    before = (world.machine() or {})["spec"]
    world.api.edit(VM_CLASSES, Key("", "small"), lambda it: it["spec"]["hardware"].update(cpus=8))
    await world.settle()
    assert (world.machine() or {})["spec"] == before
    assert world.status()["scheduled"]["class"]["name"] == "small"
    world.add_vm("later")
    await world.settle()
    assert (world.machine("later") or {})["spec"]["class"]["hardware"]["cpus"] == 8
