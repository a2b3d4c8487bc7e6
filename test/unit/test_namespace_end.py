"""A namespace is deleted with VMs in it: each ends as its policy says, whatever goes first."""

from collections.abc import Callable, Sequence

import pytest

from banlieue.api.meta import Resource
from banlieue.api.resources import NAMESPACES, VIRTUAL_MACHINES
from banlieue.sdk.kube import Forbidden, Key
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.whole import Whole
from test.simulation.platform import NAMESPACE

KINDS = (VIRTUAL_MACHINES, SIMULATED_MACHINES)
NAMES = ("goes", "stays")


def _end(whole: Whole) -> None:
    """The API server marks the namespace; from then on nothing is made in it."""

    def refuse(call: Call, moment: Moment) -> None:
        if call.verb == "create" and call.key.namespace == NAMESPACE and moment is Moment.BEFORE:
            raise Forbidden(403, "Forbidden", f"{NAMESPACE} is being terminated")

    whole.api.intercept(refuse)
    stamp = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/content"]}
    whole.api.edit(NAMESPACES, Key("", NAMESPACE), lambda obj: obj["metadata"].update(stamp))


def _drop(whole: Whole, kind: Resource) -> Callable[[], None]:
    def drop() -> None:
        for obj in whole.api.look(kind):
            whole.api.drop(kind, Key.of(obj))

    return drop


@pytest.mark.identity("6.3", "6.2")
@pytest.mark.parametrize("order", [KINDS, KINDS[::-1]], ids=["VMs first", "machines first"])
@pytest.mark.parametrize("pause", [0.01, 60.0], ids=["at once", "later"])
def test_all_of_it_ends_as_it_should(order: Sequence[Resource], pause: float) -> None:
    with Whole("east") as whole:
        whole.add_vm("goes")
        whole.add_vm("stays", deletionPolicy="Orphan")
        whole.wait(lambda: whole.ready(*NAMES), "VMs")
        orphan = whole.machine("stays")["spec"]["instance"]["uuid"]
        whole.at_work(lambda: _end(whole), 0.01)
        for kind in order:
            whole.at_work(_drop(whole, kind), pause)
        whole.wait(lambda: not any(list(whole.api.look(kind)) for kind in KINDS), "end", 300)
        (left,) = whole.world().state.vms.values()
        assert (left.uuid, left.power, left.mark) == (orphan, "PoweredOn", None)
