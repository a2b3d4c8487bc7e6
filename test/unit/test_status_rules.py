"""The rules of the status watch notice what a client would stumble over, and nothing else."""

import copy
from typing import Any

import pytest

from test.kit.statusrules import difference, faults_between, faults_of, is_ours

T0, T1 = "2026-01-01T00:00:00Z", "2026-01-01T00:00:07Z"


def condition(**changes: object) -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": T0,
        "observedGeneration": 1,
        **changes,
    }


def virtual_machine(*conditions: dict[str, Any], **status: object) -> dict[str, Any]:
    return {
        "kind": "VirtualMachine",
        "metadata": {"name": "a", "generation": 2, "resourceVersion": "1", "managedFields": []},
        "spec": {},
        "status": {"observedGeneration": 1, "conditions": list(conditions), **status},
    }


def machine(**spec: object) -> dict[str, Any]:
    return {**virtual_machine(), "kind": "SimulatedMachine", "spec": spec}


def wrote(obj: dict[str, Any], manager: str, at: str, fields: str = "f:a") -> dict[str, Any]:
    changed = copy.deepcopy(obj)
    entries = [it for it in obj["metadata"]["managedFields"] if it["manager"] != manager]
    entry = {"manager": manager, "operation": "Update", "time": at, "fieldsV1": {fields: {}}}
    changed["metadata"]["managedFields"] = [*entries, entry]
    return changed


@pytest.mark.parametrize(
    "change",
    [
        {"type": "not a type"},
        {"status": "true"},
        {"reason": ""},
        {"reason": "Two words"},
        {"reason": "Colon:"},
        {"message": "x" * 32769},
        {"message": "waits since 12:00:01"},
        {"message": "waits since 2026-01-01T12:00:01Z"},
        {"message": "50 % done"},
        {"lastTransitionTime": "2026-01-01T00:00:00.5Z"},
        {"lastTransitionTime": "2026-01-01T00:00:00+00:00"},
        {"lastTransitionTime": "2026-13-01T00:00:00Z"},
        {"observedGeneration": None},
        {"observedGeneration": 0},
        {"observedGeneration": 3},
    ],
    ids=str,
)
def test_a_condition_that_is_not_valid_is_noticed(change: dict[str, Any]) -> None:
    obj = virtual_machine({k: v for k, v in condition(**change).items() if v is not None})
    assert len(list(faults_of(obj))) == 1


@pytest.mark.parametrize(
    "message",
    [
        "",
        "the endpoint 10.0.0.10:8443 of 00:50:56:01:02:03 (fe80::12:34:56) does not answer",
        "none of 2 failure domains can take 1 vCPU/512 MiB",
    ],
)
def test_a_valid_version_is_fine(message: str) -> None:
    obj = virtual_machine(condition(message=message), condition(type="example.com/Own"))
    assert list(faults_of(obj)) == []


def test_a_doubled_condition_a_null_and_a_generation_ahead_are_noticed() -> None:
    assert len(list(faults_of(virtual_machine(condition(), condition())))) == 1
    assert len(list(faults_of(virtual_machine(host=None)))) == 1
    assert len(list(faults_of(virtual_machine(observedGeneration=3)))) == 1


def test_a_write_without_change_is_noticed() -> None:
    restored = virtual_machine(condition())
    old = wrote(restored, "banlieue.io/controller", T0)
    assert list(faults_between(restored, old)) == [], "its fields are recorded as ours, once"
    new = wrote(old, "banlieue.io/controller", T1)
    new["metadata"]["resourceVersion"] = "2"
    assert list(faults_between(old, new)) == ["written although nothing changed"]
    assert not list(faults_between(old, virtual_machine(condition(), host="h")))


@pytest.mark.parametrize(
    ("before", "after", "faults"),
    [
        ({}, {"status": "False", "lastTransitionTime": T1}, 0),
        ({}, {"message": "other"}, 0),
        ({}, {"lastTransitionTime": T1}, 1),
        ({"lastTransitionTime": T1}, {"status": "False"}, 1),
        ({"lastTransitionTime": T1}, {"status": "True"}, 2),
        ({"observedGeneration": 2}, {"message": "other"}, 1),
    ],
)
def test_transition_times_follow_the_status(
    before: dict[str, Any], after: dict[str, Any], faults: int
) -> None:
    old, new = virtual_machine(condition(**before)), virtual_machine(condition(**after))
    assert len(list(faults_between(old, new))) == faults


def test_what_lasts_may_come_but_not_go_or_change() -> None:
    uuid = {"uuid": "u", "name": "a-1"}
    assert not list(faults_between(machine(), machine(providerID="x://u", instance=uuid)))
    assert len(list(faults_between(machine(instance=uuid), machine()))) == 1
    assert len(list(faults_between(machine(providerID="x://u"), machine(providerID="x://v")))) == 1
    was = virtual_machine(initialization={"provisioned": True}, providerID="x://u")
    assert len(list(faults_between(was, virtual_machine(providerID="x://u")))) == 1
    now = virtual_machine(initialization={"provisioned": True}, providerID="x://v")
    assert len(list(faults_between(was, now))) == 1
    was["spec"] = now["spec"] = {"onMissing": "Recreate"}
    assert not list(faults_between(was, now))


def test_a_machine_is_not_provisioned_before_it_has_its_provider_id() -> None:
    done = {"initialization": {"provisioned": True}}
    unnamed = {**machine(), "status": done}
    assert len(list(faults_of(unnamed, machine()))) == 1
    assert not list(faults_of({**machine(providerID="x://u"), "status": done}, machine()))
    assert not list(faults_of(unnamed, unnamed)), "somebody else took it off before"
    assert not list(faults_of(virtual_machine(**done)))


def test_only_writes_of_our_processes_are_judged() -> None:
    bare = virtual_machine(condition())
    ours = wrote(bare, "banlieue.io/controller", T0)
    assert is_ours(bare, ours)
    assert is_ours(ours, {**ours, "status": {}}), "values of fields that were ours before"
    assert is_ours(ours, wrote(ours, "banlieue.io/controller", T1))
    assert not is_ours(ours, wrote(ours, "test-kit", T1))
    assert not is_ours(ours, wrote(ours, "test-kit", T0))
    wiped = copy.deepcopy(ours)
    wiped["metadata"]["managedFields"][0]["fieldsV1"] = {}
    assert not is_ours(ours, wiped), "an admin took fields away"
    assert not is_ours(ours, bare)
    assert not is_ours(bare, bare), "others tidied the record of their own fields up"


def test_the_difference_shows_what_changed_only() -> None:
    old, new = virtual_machine(condition()), virtual_machine(condition(reason="Other"))
    shown = difference(old, new)
    assert '-    "reason": "Ready"' in shown
    assert '+    "reason": "Other"' in shown
    assert "resourceVersion" not in shown


def test_what_a_restore_brought_is_not_ours() -> None:
    """A restored status counts the generations of the object it was saved from."""
    restored = virtual_machine(condition(observedGeneration=7), observedGeneration=7)
    edited = {**restored, "metadata": {**restored["metadata"], "generation": 3}}
    assert not list(faults_of(edited, restored))
    caught_up = virtual_machine(condition(observedGeneration=2), observedGeneration=2)
    assert not list(faults_between(restored, caught_up))
    behind = virtual_machine(condition(observedGeneration=1), observedGeneration=1)
    assert len(list(faults_between(restored, behind))) == 2
    assert len(list(faults_of(restored))) == 2
