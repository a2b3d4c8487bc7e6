"""What the watch on a cluster of Cluster API takes for wrong."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from test.kit import contractwatch as rules

Object = dict[str, Any]
Rule = Callable[[rules.Lives], None]

CLONED = "cluster.x-k8s.io/cloned-from-name"


def version(*owners: str, **more: Any) -> Object:  # noqa: ANN401 - parts of objects
    """A machine object as it is at one moment; owners control it when they are Machines."""
    references = [{"kind": it, "controller": it == "Machine"} for it in owners]
    metadata = {
        "ownerReferences": references,
        "annotations": {CLONED: "template"},
        "managedFields": [{"manager": "capi-machineset"}],
        **more.pop("metadata", {}),
    }
    return {"metadata": metadata, "spec": {}, **more}


def says(reason: str) -> Object:
    return {"conditions": [{"type": "Ready", "status": "False", "reason": reason}]}


HELD = {"finalizers": ["ours"]}
NAMED = {"instance": {"uuid": "1"}}
SEEN = {**NAMED, "providerID": "vsphere://1"}
DONE = {"initialization": {"provisioned": True}}
OURS = {"managedFields": [{"manager": "banlieue.io/controller"}]}
EARLY, CLAIMED = version("MachineSet"), version("Machine")
WAITING, JOINING = (
    version("Machine", status=says(f"WaitingFor{it}"))
    for it in ("ControlPlaneInitialized", "BootstrapData")
)
MADE = [
    EARLY,
    CLAIMED,
    WAITING,
    JOINING,
    version("Machine", metadata=HELD, spec=NAMED),
    version("Machine", metadata=HELD, spec=SEEN, status=DONE),
]
OF_MACHINES: tuple[Rule, ...] = (
    rules.nothing_is_written_until_a_machine_controls,
    rules.the_finalizer_stands_before_the_identity_and_that_before_the_id,
    rules.what_is_waited_for_is_told_in_order,
    rules.metadata_of_others_is_left_alone,
    rules.provisioned_stays,
)


@pytest.mark.parametrize("rule", OF_MACHINES, ids=lambda it: it.__name__)
def test_a_machine_as_it_should_be_breaks_no_rule(rule: Rule) -> None:
    rule({"one": MADE})


@pytest.mark.parametrize(
    ("rule", "versions"),
    [
        (OF_MACHINES[0], [version("MachineSet", metadata=HELD), CLAIMED]),
        (OF_MACHINES[0], [version("MachineSet", metadata=OURS), CLAIMED]),
        (OF_MACHINES[0], [version("MachineSet", status=says("Pending")), CLAIMED]),
        (OF_MACHINES[0], [CLAIMED]),
        (OF_MACHINES[1], [version("Machine", spec=NAMED)]),
        (OF_MACHINES[1], [version("Machine", metadata=HELD, spec=SEEN)]),
        (OF_MACHINES[1], [*MADE, version("Machine", metadata=HELD, spec=NAMED, status=DONE)]),
        (OF_MACHINES[1], [*MADE, version(metadata=HELD, spec={**NAMED, "providerID": "another"})]),
        (OF_MACHINES[2], [JOINING, WAITING]),
        (OF_MACHINES[2], [JOINING]),
        (OF_MACHINES[3], [EARLY, version("Machine", metadata={"annotations": {}})]),
        (OF_MACHINES[4], [*MADE, version("Machine", metadata=HELD, spec=SEEN)]),
        (OF_MACHINES[4], [EARLY, CLAIMED]),
        (
            rules.nothing_is_written_until_a_cluster_owns,
            [version(metadata=OURS), version("Cluster")],
        ),
        (rules.nothing_is_written_until_a_cluster_owns, [version("Cluster")]),
        (rules.templates_get_nothing_but_status, [version("Cluster", metadata=HELD)]),
        (
            rules.templates_get_nothing_but_status,
            [version(metadata={"annotations": {"banlieue.io/note": ""}})],
        ),
    ],
)
def test_what_is_wrong_at_any_moment_is_noticed(rule: Rule, versions: Sequence[Object]) -> None:
    with pytest.raises(AssertionError):
        rule({"one": versions})
