"""A change wakes exactly those it can matter to, and hurries only where somebody waits."""

import copy
from typing import Any

import pytest

from banlieue.api.meta import Resource
from banlieue.api.resources import NAMESPACES, PROVIDERS, VIRTUAL_MACHINES, VM_CLASSES, VM_IMAGES
from banlieue.controller import wakes
from banlieue.controller.infra import machines
from banlieue.controller.infra.references import References
from banlieue.controller.scheduling.assume import Ledger, Waiting
from banlieue.controller.scheduling.placement import Place, Resident
from banlieue.controller.wakes import MIRROR_DELAY, Wakes
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change, Priority
from banlieue.sdk.testing.fakes import FakeClock
from banlieue.sdk.testing.memory_api import Call, MemoryApi, Moment
from test.kit.controllerworld import THAT, THIS, ControllerWorld, domain

PROVIDER = Key("system", "one")
PLACED, WAITING = Key("ns", "placed"), Key("ns", "waiting")


def _wakes() -> Wakes:
    ledger = Ledger(FakeClock())
    ledger.observe(Resident(PLACED, (Place(PROVIDER, "a"),)))
    ledger.wait(WAITING, Waiting("small", "ubuntu"))
    return Wakes(MemoryApi().cache, ledger)


def _provider(**capacity: int) -> Obj:
    one = domain("a")
    one["attributes"]["capacity"] = {"memoryMiB": {"total": 9, "free": capacity.get("free", 4)}}
    return {
        "metadata": {"namespace": "system", "name": "one", "labels": {"env": "prod"}},
        "spec": {"allowedNamespaces": {"from": "All"}},
        "status": {
            "failureDomains": [one],
            "conditions": [{"type": "Ready", "status": "True"}],
            "unclaimed": {"complete": True},
        },
    }


def _woken(change: Change, mapper: str = "provider") -> set[Key]:
    requests = list(getattr(_wakes(), mapper)(change))
    assert all(request.priority is Priority.RESYNC for request in requests)
    return {request.key for request in requests}


def _set(path: str, value: object) -> Any:  # noqa: ANN401 - a function on objects
    def change(obj: Obj) -> None:
        *parents, last = path.split(".")
        target: Any = obj
        for name in parents:
            target = target[int(name)] if name.isdecimal() else target[name]
        target[last] = value

    return change


@pytest.mark.parametrize(
    ("path", "value", "woken"),
    [
        ("metadata.resourceVersion", "9", set()),
        ("status.failureDomains.0.attributes.capacity.memoryMiB.free", 3, set()),
        ("status.failureDomains.0.attributes.capacity.memoryMiB.free", 5, {WAITING}),
        ("status.conditions.0.lastTransitionTime", "x", set()),
        ("status.conditions.0.status", "False", {WAITING}),
        ("status.unclaimed.owners", [{"hash": "x"}], {WAITING}),
        ("status.unclaimed.recovery", True, {WAITING}),
        ("spec.cordoned", True, {WAITING}),
        ("metadata.labels", {}, {WAITING, PLACED}),
        ("spec.allowedNamespaces", {"from": "Same"}, {WAITING, PLACED}),
        ("status.failureDomains", [], {WAITING, PLACED}),
    ],
)
def test_a_provider_wakes_those_whose_answer_can_change(
    path: str, value: object, woken: set[Key]
) -> None:
    old = _provider()
    new = copy.deepcopy(old)
    _set(path, value)(new)
    assert _woken(Change(PROVIDERS, PROVIDER, old, new)) == woken


def test_a_provider_that_comes_or_goes_wakes_everybody_concerned() -> None:
    assert _woken(Change(PROVIDERS, PROVIDER, None, _provider())) == {WAITING, PLACED}
    assert _woken(Change(PROVIDERS, PROVIDER, _provider(), None)) == {WAITING, PLACED}
    other = Key("system", "two")
    assert _woken(Change(PROVIDERS, other, None, _provider())) == {WAITING}


def test_a_class_or_image_wakes_only_those_that_wait_for_it() -> None:
    assert _woken(Change(VM_CLASSES, Key("", "small"), None, {}), "vm_class") == {WAITING}
    assert not _woken(Change(VM_CLASSES, Key("", "other"), None, {}), "vm_class")
    row = {"providerNamespace": "s", "providerName": "one", "ready": False, "progressPercent": 10}
    old = {"status": {"perProvider": [row]}}
    further = {"status": {"perProvider": [{**row, "progressPercent": 20}]}}
    ready = {"status": {"perProvider": [{**row, "ready": True}]}}
    key = Key("", "ubuntu")
    assert not _woken(Change(VM_IMAGES, key, old, further), "image")
    assert _woken(Change(VM_IMAGES, key, old, ready), "image") == {WAITING}


def test_labels_of_a_namespace_matter_to_everything_in_it() -> None:
    old, new = {"metadata": {"labels": {"a": "1"}}}, {"metadata": {"labels": {"a": "2"}}}
    assert _woken(Change(NAMESPACES, Key("", "ns"), old, new), "namespace") == {WAITING, PLACED}
    assert not _woken(Change(NAMESPACES, Key("", "ns"), old, old), "namespace")
    assert not _woken(Change(NAMESPACES, Key("", "other"), old, new), "namespace")


def test_many_are_woken_one_after_the_other() -> None:
    found = _wakes()
    for number in range(100):
        found.ledger.wait(Key("ns", f"vm-{number}"), Waiting("small", "ubuntu"))
    delays = [it.delay for it in found.vm_class(Change(VM_CLASSES, Key("", "small"), None, {}))]
    assert delays == sorted(delays)
    assert delays[-1] > delays[0]


def _machine(ready: str = "", addresses: str = "") -> Obj:
    told = {"Ready": (ready, "x"), "AddressesAvailable": ("False", addresses)}
    return {
        "metadata": {"namespace": "ns", "name": "m"},
        "spec": {"virtualMachineRef": {"name": "vm"}},
        "status": {
            "conditions": [
                {"type": kind, "status": status, "reason": reason}
                for kind, (status, reason) in told.items()
            ]
        },
    }


@pytest.mark.parametrize(
    ("machine", "delay"),
    [
        (_machine(), MIRROR_DELAY),
        (_machine("False"), MIRROR_DELAY),
        (_machine("True"), 0.0),
        (_machine("True", "AddressPending"), MIRROR_DELAY),
        (_machine("True", "AddressesNotExpected"), 0.0),
        ({**_machine(), "metadata": {"name": "m", "deletionTimestamp": "x"}}, 0.0),
        (None, 0.0),
    ],
)
def test_steps_of_a_machine_on_its_way_are_collected(machine: Obj | None, delay: float) -> None:
    change = Change(THIS, Key("ns", "m"), _machine("Unknown"), machine)
    (request,) = _wakes().machine(change)
    assert request.key == Key("ns", "vm")
    assert request.delay == delay


def test_bookkeeping_of_a_machine_wakes_nobody() -> None:
    old, new = _machine(), _machine()
    new["metadata"] |= {"resourceVersion": "7", "finalizers": ["x"], "managedFields": []}
    assert not list(_wakes().machine(Change(THIS, Key("ns", "m"), old, new)))
    stranger: Obj = {"metadata": {"name": "m"}, "spec": {}}
    assert not list(_wakes().machine(Change(THIS, Key("ns", "m"), None, stranger)))


def test_users_come_before_everything_but_deletions() -> None:
    plain: Obj = {"metadata": {}}
    leaving: Obj = {"metadata": {"deletionTimestamp": "x"}}
    key = Key("ns", "vm")
    edited: Obj = {"metadata": {}, "spec": {"desiredPowerState": "PoweredOff"}}
    (edit,) = _wakes().virtual_machine(Change(VIRTUAL_MACHINES, key, plain, edited))
    (deletion,) = _wakes().virtual_machine(Change(VIRTUAL_MACHINES, key, plain, leaving))
    assert edit.priority is Priority.USER
    assert deletion.priority is Priority.DELETE


def test_a_status_that_another_controller_wrote_is_answered_without_haste() -> None:
    key = Key("ns", "vm")
    before: Obj = {"metadata": {"resourceVersion": "1"}, "status": {"phase": "Running"}}
    after: Obj = {"metadata": {"resourceVersion": "2"}, "status": {"phase": "Unknown"}}
    (answer,) = _wakes().virtual_machine(Change(VIRTUAL_MACHINES, key, before, after))
    assert (answer.delay, answer.priority) == (MIRROR_DELAY, Priority.RESYNC)
    seen_again = Change(VIRTUAL_MACHINES, key, before, after, replayed=True)
    (again,) = _wakes().virtual_machine(seen_again)
    assert again.delay == 0


def test_machines_of_a_virtual_machine_that_is_gone_are_looked_at() -> None:
    named = {"apiGroup": THIS.group, "kind": THIS.kind, "namespace": "ns"}
    status = {
        "infrastructureRef": {**named, "name": "vm-m1"},
        "previous": {"infrastructureRef": {**named, "name": "vm"}, "since": "2026-01-01T00:00:00Z"},
    }
    vm: Obj = {"metadata": {"namespace": "ns", "name": "vm"}, "spec": {}, "status": status}
    gone = Change(VIRTUAL_MACHINES, Key("ns", "vm"), vm, None)
    found = {request.key for request in wakes.machines_left(lambda _: THIS, gone)}
    assert found == {machines.request_key(THIS, Key("ns", it)) for it in ("vm-m1", "vm")}
    assert not list(wakes.machines_left(lambda _: THIS, Change(VIRTUAL_MACHINES, gone.key, vm, vm)))


def test_only_machines_that_need_a_decision_are_looked_at() -> None:
    api, key, named = MemoryApi(), Key("ns", "m"), References()
    api.subscribe(named.note)
    (request,) = wakes.stray_machine(named, THIS, Change(THIS, key, None, _machine()))
    assert request.key == machines.request_key(THIS, key)
    assert request.delay > 0
    made = _machine()
    made["spec"]["instance"] = {"uuid": "u"}
    reference = {"apiGroup": THIS.group, "kind": THIS.kind, "namespace": "ns", "name": "m"}
    vm: Obj = {"metadata": {"namespace": "ns", "name": "vm"}, "spec": {}}
    (request,) = wakes.stray_machine(named, THIS, Change(THIS, key, None, made))
    owned = {**made, "metadata": {**made["metadata"], "ownerReferences": [{"uid": "1"}]}}
    assert not list(wakes.stray_machine(named, THIS, Change(THIS, key, None, owned)))
    api.put(VIRTUAL_MACHINES, {**vm, "status": {"infrastructureRef": reference}})
    assert not list(wakes.stray_machine(named, THIS, Change(THIS, key, None, made)))
    other = {"infrastructureRef": {**reference, "name": "m-m1"}}
    api.edit(VIRTUAL_MACHINES, Key("ns", "vm"), lambda obj: obj.update(status=other))
    (request,) = wakes.stray_machine(named, THIS, Change(THIS, key, None, made))
    assert request.delay > 0
    assert not list(wakes.stray_machine(named, THIS, Change(THIS, key, made, made)))
    made["metadata"]["deletionTimestamp"] = "x"
    (request,) = wakes.stray_machine(named, THIS, Change(THIS, key, None, made))
    assert request.delay == 0


def test_what_a_virtual_machine_names_is_known_by_its_changes() -> None:
    api, vm, named = MemoryApi(), Key("ns", "vm"), References()
    api.subscribe(named.note)

    def reference(name: str, kind: Resource = THIS) -> dict[str, str]:
        return {"apiGroup": kind.group, "kind": kind.kind, "namespace": "ns", "name": name}

    status = {
        "infrastructureRef": reference("vm"),
        "incomingRef": reference("vm-m1", THAT),
        "previous": {"infrastructureRef": reference("old")},
    }
    api.put(VIRTUAL_MACHINES, {"metadata": {"namespace": "ns", "name": "vm"}, "status": status})
    assert named.names(vm, THIS, vm)
    assert named.names(vm, THAT, Key("ns", "vm-m1"))
    assert named.names(vm, THIS, Key("ns", "old"))
    assert not named.names(vm, THAT, vm)
    assert not named.names(vm, THIS, Key("other", "vm"))
    assert not named.names(vm, THIS, Key("ns", "vm-m1"))
    api.edit(VIRTUAL_MACHINES, vm, lambda it: it.pop("status"))
    assert named.knows(vm)
    assert not named.names(vm, THIS, vm)
    api.drop(VIRTUAL_MACHINES, vm)
    assert not named.knows(vm)


async def test_an_image_that_gets_ready_in_the_middle_of_a_pass_is_not_missed() -> None:
    world = ControllerWorld.ready()
    image = Key("", "ubuntu")

    def ready(obj: Obj) -> None:
        obj["status"]["perProvider"][0]["ready"] = True

    world.api.edit(
        VM_IMAGES, image, lambda obj: obj["status"]["perProvider"][0].update(ready=False)
    )
    world.add_vm("db-1")
    edited: list[Obj] = []

    def hook(call: Call, moment: Moment) -> None:
        first_write = call.resource == VIRTUAL_MACHINES and call.verb == "json_patch"
        if first_write and moment is Moment.AFTER and not edited:
            edited.append(world.api.edit(VM_IMAGES, image, ready))

    world.api.intercept(hook)
    await world.settle(seconds=5)
    assert edited
    assert world.condition("Ready")["status"] == "True"
