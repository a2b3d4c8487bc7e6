"""A machine object remembers what becomes of disks that its VirtualMachine lists no longer."""

from typing import Any

import pytest

from banlieue.api.infrastructure.machine import ClassSnapshot, Machine
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.controller.vm.removed_disks import removed_disks

Json = dict[str, Any]


def vm(
    *disks: Json, generation: int = 2, followed: int | None = 1, class_name: str = "small"
) -> VirtualMachine:
    return VirtualMachine.from_api(
        {
            "metadata": {"name": "db", "namespace": "team-a", "generation": generation},
            "spec": {
                "classRef": {"name": class_name},
                "imageRef": {"name": "ubuntu"},
                "disks": list(disks),
            },
            "status": {} if followed is None else {"followedGeneration": followed},
        }
    )


def machine(
    *disks: Json, gone: tuple[Json, ...] = (), there: tuple[str, ...] = ("root",), seen: int = 5
) -> Machine:
    return Machine.from_api(
        {
            "metadata": {"name": "db", "namespace": "team-a", "generation": 5},
            "spec": {"disks": list(disks), "removedDisks": list(gone)},
            "status": {
                "observedGeneration": seen,
                "resources": {"disks": [{"name": name} for name in there]},
            },
        }
    )


def snapshot(*names: str) -> ClassSnapshot:
    disks = [{"name": name, "sizeGiB": 5} for name in names]
    hardware = {"cpus": 1, "memoryMiB": 512, "disks": disks}
    return ClassSnapshot.from_api({"name": "small", "hash": "0123abcd", "hardware": hardware})


def told(asked: VirtualMachine, of_class: ClassSnapshot, current: Machine | None) -> dict[str, str]:
    found = removed_disks(asked, of_class, current)
    return {gone.name: gone.reclaim_policy.value for gone in found}


DATA = {"name": "data", "sizeGiB": 5}


@pytest.mark.parametrize(
    ("disk", "policy"),
    [
        (DATA, "Delete"),
        ({**DATA, "reclaimPolicy": "Retain"}, "Retain"),
        ({"name": "data", "existing": "db-data-0123abcd"}, "Retain"),
        ({"name": "data", "existing": "db-data-0123abcd", "reclaimPolicy": "Delete"}, "Delete"),
    ],
)
def test_what_was_written_beside_the_disk_counts(disk: Json, policy: str) -> None:
    (gone,) = removed_disks(vm(), snapshot(), machine(disk))
    assert (gone.name, gone.reclaim_policy.value) == ("data", policy)
    assert gone.existing == disk.get("existing")


@pytest.mark.parametrize(("generation", "followed"), [(3, 1), (9, 2), (2, None)])
def test_what_may_have_been_retained_in_between_is_kept(
    generation: int, followed: int | None
) -> None:
    """An edit to Retain and then the removal, both while the controller was away."""
    asked = vm(generation=generation, followed=followed)
    assert told(asked, snapshot(), machine(DATA)) == {"data": "Retain"}


def test_a_removal_stands_until_the_provider_has_met_it() -> None:
    gone = {"name": "data", "reclaimPolicy": "Delete"}
    waiting = machine(gone=(gone,), there=("root", "data"))
    assert told(vm(generation=9), snapshot(), waiting) == {"data": "Delete"}
    unseen = machine(gone=(gone,), seen=4)
    assert told(vm(), snapshot(), unseen) == {"data": "Delete"}
    assert told(vm(), snapshot(), machine(gone=(gone,))) == {}


def test_a_disk_that_is_listed_again_is_not_removed() -> None:
    gone = {"name": "data", "reclaimPolicy": "Delete"}
    asked = vm(DATA)
    assert told(asked, snapshot(), machine(gone=(gone,), there=("root", "data"))) == {}


def test_a_class_without_a_disk_removes_none() -> None:
    """Nobody said a word about the data when another class was chosen."""
    assert told(vm(), snapshot(), machine()) == {}
    assert told(vm(), snapshot("data"), machine(DATA)) == {}, "the class has it still"


def test_a_machine_that_is_made_anew_has_no_past() -> None:
    assert told(vm(), snapshot(), None) == {}
