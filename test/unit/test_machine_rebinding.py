"""A machine object takes up a VM that exists: it is listened to, also at a leaving Provider."""

from banlieue.api.resources import PROVIDERS
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.powers import Changes
from test.kit.machinebench import MACHINE, PROVIDER, MachineBench


async def _made_again(bench: MachineBench) -> str:
    """A VM whose machine object is a new one; answers the VM's UUID."""
    bench.make_machine()
    await bench.run()
    uuid = bench.vms()[0].uuid
    bench.delete(mode="Release")
    await bench.run()
    assert bench.machine() == {}
    bench.restart()
    bench.make_machine()
    return uuid


async def test_news_of_a_vm_reach_the_machine_that_just_took_it_up() -> None:
    bench = MachineBench()
    uuid = await _made_again(bench)
    result = await bench.reconciler.reconcile(MACHINE)
    assert bench.condition("Ready") == ("True", "Ready")
    # What moved during the pass found nobody who listened, so there is another one soon.
    assert result.requeue_after is not None
    assert result.requeue_after <= 1.0
    asked: list[Key] = []
    object.__setattr__(
        bench.reconciler.ctx, "enqueue", lambda _name, request: asked.append(request.key)
    )
    bench.reconciler.changed(PROVIDER, Changes(uuids=frozenset({uuid})))
    assert asked == [MACHINE]
    assert (await bench.reconciler.reconcile(MACHINE)).requeue_after is None


async def test_a_vm_is_taken_up_again_while_its_provider_is_being_deleted() -> None:
    bench = MachineBench()
    uuid = await _made_again(bench)
    assert "banlieue.io/provider-in-use" in bench.served.provider.metadata.finalizers

    def leave(obj: Obj) -> None:
        obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    bench.api.edit(PROVIDERS, PROVIDER, leave)
    await bench.run()
    assert bench.machine()["spec"]["instance"]["uuid"] == uuid
    assert bench.condition("Ready") == ("True", "Ready")


async def test_nothing_new_is_made_while_the_provider_is_being_deleted() -> None:
    bench = MachineBench()
    await _made_again(bench)
    bench.control("remove", vm=bench.vms()[0].id)

    def leave(obj: Obj) -> None:
        obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    bench.api.edit(PROVIDERS, PROVIDER, leave)
    await bench.run()
    assert bench.vms() == []
    assert bench.condition("Ready") == ("False", "ProviderDeleting")
