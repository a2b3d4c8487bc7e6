"""Deep copies of models: equal, and nothing in them shared with what they were made from."""

import copy

from banlieue.api.v1alpha1.virtualmachine import VirtualMachine

CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Ready",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def make_vm() -> VirtualMachine:
    return VirtualMachine.from_api(
        {
            "metadata": {"name": "db-1", "labels": {"tier": "db"}},
            "spec": {"classRef": {"name": "small"}, "disks": [{"name": "data", "sizeGiB": 5}]},
            "status": {"conditions": [CONDITION]},
        }
    )


def test_a_copy_says_the_same() -> None:
    vm = make_vm()
    again = copy.deepcopy(vm)
    assert again == vm
    assert again.to_api() == vm.to_api()
    assert again.model_fields_set == vm.model_fields_set


def test_a_changed_copy_leaves_its_original_alone() -> None:
    vm, before = make_vm(), make_vm()
    again = vm.model_copy(deep=True)
    again.metadata.labels["tier"] = "web"
    again.spec.disks[0].size_gib = 9
    again.spec.disks.append(again.spec.disks[0])
    again.status.conditions[0].reason = "Other"
    again.status.conditions.clear()
    assert vm == before
