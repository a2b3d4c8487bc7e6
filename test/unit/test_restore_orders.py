"""Objects come back in any order: the VMs before and after are the same, and nobody touched them.

Controller and provider run for real, in memory. The same orders over a real API server and vSphere:
`test/integration/test_restores.py`.
"""

from collections.abc import Callable, Iterable

import pytest

from banlieue.api.meta import Resource
from banlieue.api.resources import LEASES, PROVIDERS, SECRETS, VIRTUAL_MACHINES
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.testing.plain import clone
from test.kit.controllerworld import restored
from test.kit.whole import Whole
from test.simulation import platform
from test.simulation.kinds import SIMULATED

pytestmark = pytest.mark.slow

NAMES = ("db-1", "db-2")
Saved = list[tuple[Resource, Obj]]
Order = Callable[[Whole, Saved], None]


def _objects(whole: Whole, *kinds: Resource) -> Saved:
    return [(kind, clone(obj)) for kind in kinds for obj in whole.api.look(kind)]


def _lose(whole: Whole, saved: Saved) -> None:
    """The store lost them, past all finalizers; machines first, before anybody collects them."""
    for kind, obj in sorted(saved, key=lambda it: it[0] != SIMULATED_MACHINES):
        whole.api.drop(kind, Key.of(obj), force=True)


def _put(whole: Whole, saved: Iterable[tuple[Resource, Obj]], *, status: bool = True) -> None:
    """A backup tool brings them back, unless somebody made them anew."""
    for kind, obj in saved:
        if whole.api.look_at(kind, Key.of(obj)) is None:
            whole.api.put(kind, restored(obj, status=status))


def _of(saved: Saved, *kinds: Resource) -> Saved:
    return [item for item in saved if item[0] in kinds]


def vm_first(whole: Whole, saved: Saved) -> None:
    """VirtualMachines come, find their VMs, and then an old machine object comes, too."""
    _put(whole, _of(saved, VIRTUAL_MACHINES))
    whole.rest(60)
    whole.at_work(lambda: _put(whole, _of(saved, SIMULATED_MACHINES)))


def infra_first(whole: Whole, saved: Saved) -> None:
    """Machine objects come; the garbage collector finds that their owners are gone."""
    _put(whole, _of(saved, SIMULATED_MACHINES))
    whole.rest(60)
    whole.at_work(lambda: _put(whole, _of(saved, VIRTUAL_MACHINES)))


def infra_first_and_kept(whole: Whole, saved: Saved) -> None:
    """The backup tool dropped owner references, so the objects wait for their owners."""
    bare = clone(_of(saved, SIMULATED_MACHINES))
    for _, obj in bare:
        del obj["metadata"]["ownerReferences"]
    _put(whole, bare)
    whole.rest(60)
    whole.at_work(lambda: _put(whole, _of(saved, VIRTUAL_MACHINES), status=False))


def provider_last(whole: Whole, saved: Saved) -> None:
    """The Provider, its Secret and its Lease come back when everybody waits for them."""
    apart = _objects(whole, PROVIDERS, SECRETS, LEASES)
    for kind, obj in apart:
        whole.api.drop(kind, Key.of(obj), force=True)
    _put(whole, saved)
    whole.rest(60)
    whole.at_work(lambda: platform.add_provider(whole.api, "east", SIMULATED))


def without_status(whole: Whole, saved: Saved) -> None:
    """Everything at once, as a tool that knows no subresources brings it back."""
    _put(whole, saved, status=False)


def stale_uids(whole: Whole, saved: Saved) -> None:
    """Everything at once; owner references name uids that are gone, and are collected at once."""
    _put(whole, saved)
    whole.api.collect_garbage()


def only_vms_without_status(whole: Whole, saved: Saved) -> None:
    """Nothing of ours but what users wrote."""
    _put(whole, _of(saved, VIRTUAL_MACHINES), status=False)


@pytest.mark.identity("12.5", "0.1", "2.3", "1.3", "6.3")
@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "alive"])
@pytest.mark.parametrize(
    "order",
    [
        vm_first,
        infra_first,
        infra_first_and_kept,
        provider_last,
        without_status,
        stale_uids,
        only_vms_without_status,
    ],
)
def test_the_same_vms_are_found_whatever_comes_back_first(order: Order, *, restarted: bool) -> None:
    with Whole("east") as whole:
        for name in NAMES:
            whole.add_vm(name)
        whole.wait(lambda: whole.ready(*NAMES), "VMs")
        before, saved = whole.vms(), _objects(whole, VIRTUAL_MACHINES, SIMULATED_MACHINES)
        whole.changes.clear()
        if restarted:
            whole.stop()
        whole.at_work(lambda: _lose(whole, saved), 5)
        if restarted:
            whole.start()
        order(whole, saved)
        whole.wait(lambda: whole.ready(*NAMES), "VMs taken up again", 1800)
        whole.rest(120)
        assert whole.ready(*NAMES)
        assert whole.vms() == before
        assert whole.changes == []
        assert {whole.vm(name)["status"]["providerID"] for name in NAMES} == {
            f"simulated://{uuid}" for _, uuid, *_ in before.values()
        }
