"""Which machines of Cluster API look again when something beside them changes."""

import copy
from collections.abc import Callable

import pytest

from banlieue.api import names
from banlieue.api.resources import CAPI_CLUSTERS, CAPI_MACHINES
from banlieue.controller.capi import berths
from banlieue.controller.capi.waking import MachineWakes
from banlieue.controller.scheduling.assume import Ledger, Waiting
from banlieue.controller.scheduling.placement import Demand, Place, Resident
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.machine import pausing
from banlieue.sdk.reconcile import Change
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.testing.fakes import FakeClock
from test.kit.capiworld import CLUSTER, CapiWorld
from test.kit.controllerworld import NAMESPACE, SYSTEM

NODE = Key(NAMESPACE, "node-1")
ASKED = Key(NAMESPACE, f"{SIMULATED_MACHINES.crd_name}/node-1")
KEY = Key(NAMESPACE, CLUSTER)


def surroundings() -> tuple[CapiWorld, MachineWakes]:
    world = CapiWorld.with_cluster()
    world.add_machine()
    services = world.role.services
    return world, MachineWakes(world.api.cache, services.kinds, services.cluster_machines)


def changed(obj: Obj, change: Callable[[Obj], object], resource: object, key: Key) -> Change:
    new = copy.deepcopy(obj)
    change(new)
    return Change(resource, key, obj, new)  # type: ignore[arg-type] # one of the resources


@pytest.mark.parametrize(
    ("change", "wakes"),
    [
        (lambda it: it["spec"].update(paused=True), True),
        (lambda it: it.update(status={"initialization": {}}), True),
        (lambda it: it["spec"].update(infrastructureRef={}), True),
        (lambda it: it["status"].update(phase="Provisioned"), False),
        (lambda it: it["metadata"].update(labels={"a": "b"}), False),
    ],
)
def test_a_cluster_wakes_its_machines(change: Callable[[Obj], object], *, wakes: bool) -> None:
    world, rules = surroundings()
    obj = world.api.peek(CAPI_CLUSTERS, KEY) or {}
    found = list(rules.cluster(changed(obj, change, CAPI_CLUSTERS, KEY)))
    assert [it.key for it in found] == ([ASKED] if wakes else [])


def test_a_cluster_wakes_nobody_elses_machines() -> None:
    world, rules = surroundings()
    obj = world.api.peek(CAPI_CLUSTERS, KEY) or {}
    for other in (Key(NAMESPACE, "other"), Key("other", CLUSTER)):
        change = changed(obj, lambda it: it["spec"].update(paused=True), CAPI_CLUSTERS, other)
        assert list(rules.cluster(change)) == []


@pytest.mark.parametrize(
    ("change", "wakes"),
    [
        (lambda it: it["spec"].update(bootstrap={"dataSecretName": "new"}), True),
        (lambda it: it["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"), True),
        (lambda it: it.update(status={"phase": "Running"}), False),
    ],
)
def test_a_machine_wakes_what_it_refers_to(change: Callable[[Obj], object], *, wakes: bool) -> None:
    world, rules = surroundings()
    found = list(rules.owner(changed(world.owner(), change, CAPI_MACHINES, NODE)))
    assert [it.key for it in found] == ([ASKED] if wakes else [])


def test_a_machine_that_refers_to_a_foreign_kind_wakes_nobody() -> None:
    world, rules = surroundings()

    def foreign(obj: Obj) -> None:
        obj["spec"]["infrastructureRef"]["apiGroup"] = "infrastructure.other.example"

    owner = world.owner()
    foreign(owner)
    change = changed(owner, lambda it: it["spec"].update(bootstrap={}), CAPI_MACHINES, NODE)
    assert list(rules.owner(change)) == []


@pytest.mark.parametrize(
    ("change", "wakes"),
    [
        (lambda it: it["spec"].update(cpus=4), True),
        (lambda it: it["metadata"].update(ownerReferences=[]), True),
        (lambda it: it["metadata"].update(annotations={names.CAPI_ANNOTATION_PAUSED: ""}), True),
        (lambda it: it["metadata"].update(resourceVersion="99", managedFields=[]), False),
        (lambda it: it["spec"].update(virtualMachineRef={"name": "vm"}), False),
    ],
)
def test_a_machine_object_is_looked_at_when_it_says_something_new(
    change: Callable[[Obj], object], *, wakes: bool
) -> None:
    world, rules = surroundings()
    found = list(
        rules.machine(SIMULATED_MACHINES, changed(world.node(), change, SIMULATED_MACHINES, NODE))
    )
    assert [it.key for it in found] == ([ASKED] if wakes else [])


def test_a_provider_is_told_of_a_resumed_cluster() -> None:
    """A machine's own object stays as it is then."""
    world, _ = surroundings()
    obj = world.api.peek(CAPI_CLUSTERS, KEY) or {}

    def asked(change: Callable[[Obj], object]) -> list[Key]:
        told = changed(obj, change, CAPI_CLUSTERS, KEY)
        return [it.key for it in pausing.machines_of(world.api.cache, SIMULATED_MACHINES, told)]

    assert asked(lambda it: it["spec"].update(paused=True)) == [NODE]
    assert asked(lambda it: it["status"].update(phase="Provisioned")) == []
    gone = Change(CAPI_CLUSTERS, KEY, obj, None)
    assert len(list(pausing.machines_of(world.api.cache, SIMULATED_MACHINES, gone))) == 1


def test_a_refusal_of_a_machine_of_unknown_size_is_its_own_alone() -> None:
    ledger = Ledger(FakeClock())
    place = Place(Key(SYSTEM, "one"), "one-a")
    sized = Demand(Key(NAMESPACE, "vm"), cpus=2, memory_mib=2048, image="")
    bare = Demand(Key(NAMESPACE, "node"), cpus=0, memory_mib=0, image="")
    ledger.refuse(bare, place, "InsufficientCapacity")
    assert ledger.refusals(bare) == {place: "InsufficientCapacity"}
    assert ledger.refusals(sized) == {}
    ledger.refuse(sized, place, "InsufficientCapacity")
    larger = Demand(Key(NAMESPACE, "other"), cpus=2, memory_mib=4096, image="")
    assert ledger.refusals(larger) == {place: "InsufficientCapacity"}


def test_two_ledgers_count_together_and_tell_apart() -> None:
    """A VirtualMachine's pass must not be asked for with the key of another sort of machine."""
    ledger = Ledger(FakeClock())
    other = ledger.beside()
    provider = Key(SYSTEM, "one")
    place = Place(provider, "one-a")
    vm, node = Key(NAMESPACE, "twin"), berths.berth(SIMULATED_MACHINES, Key(NAMESPACE, "twin"))
    ledger.observe(Resident(vm, (place,), digest="aa", cpus=1))
    other.observe(Resident(node, (place,), digest="ab", cpus=2))
    other.wait(node, Waiting(None, None))
    assert (ledger.at(provider), other.at(provider)) == ([vm], [node])
    assert ledger.waiting() == []
    assert ledger.owners_of({"aa", "ab"}) == [vm]
    assert other.owners_of({"aa", "ab"}) == [node]
    assert ledger.residents().promised_cpus(place, Key("", "")) == 3
    assert other.turn is ledger.turn
    assert other.forget(node)
    assert ledger.residents().population(place, Key("", "")) == 1
    assert berths.request_of(node) == Key(NAMESPACE, f"{SIMULATED_MACHINES.crd_name}/twin")
