from collections.abc import AsyncIterator

import pytest

from banlieue.api import names
from banlieue.api.events import EventReason
from banlieue.api.meta import Resource
from banlieue.api.reasons import Reason
from banlieue.api.resources import (
    CONFIG_MAPS,
    LEASES,
    PROVIDER_CLASSES,
    PROVIDERS,
    SECRETS,
)
from banlieue.sdk.driver import About
from banlieue.sdk.errors import NeedsOperator
from banlieue.sdk.identity import Owner
from banlieue.sdk.kube import Forbidden, Key, Obj
from banlieue.sdk.powers import Changes
from banlieue.sdk.provider.in_use import FINALIZER, ensure_in_use
from banlieue.sdk.reconcile import Change, Request
from banlieue.sdk.testing.memory_api import Call, Moment
from banlieue.sdk.testing.scripted import MACHINES
from test.kit.providerbench import (
    CREDENTIALS,
    KEY,
    ProviderBench,
    class_object,
    instance,
    marked_vm,
    meta,
    provider_spec,
)


@pytest.fixture
async def bench() -> AsyncIterator[ProviderBench]:
    made = ProviderBench()
    yield made
    await made.stop()


# Class, lease, pause


async def test_a_class_of_another_backend_is_refused_and_served_on(bench: ProviderBench) -> None:
    bench.add_machine("m")
    await bench.run()
    bench.api.put(PROVIDER_CLASSES, {"metadata": {"name": "other"}, "spec": class_object("other")})
    bench.edit(providerClassRef={"name": "other"})
    await bench.run()
    assert bench.ready == ("False", "ProviderClassMismatch")
    assert bench.provider.status.failure_domain_count == 1
    session = bench.sessions.open(KEY)
    assert session is not None
    assert not session.writable
    bench.edit(providerClassRef={"name": "c"})
    await bench.run()
    assert bench.ready == ("True", "Ready")
    assert session.writable


async def test_a_provider_of_another_backend_is_none_of_our_business(bench: ProviderBench) -> None:
    bench.api.put(PROVIDER_CLASSES, {"metadata": {"name": "c"}, "spec": class_object("other")})
    await bench.run()
    assert not bench.api.calls
    assert bench.sessions.find(KEY) is None
    assert not bench.candidates.made


async def test_told_to_serve_one_provider_a_mismatch_is_ours_to_tell(bench: ProviderBench) -> None:
    bench.start(only=KEY)
    bench.api.put(PROVIDER_CLASSES, {"metadata": {"name": "c"}, "spec": class_object("other")})
    await bench.run()
    assert bench.ready == ("False", "ProviderClassMismatch")
    assert not bench.endpoint.logins


async def test_a_missing_class_tears_nothing_down(bench: ProviderBench) -> None:
    bench.add_machine("m")
    await bench.run()
    bench.api.drop(PROVIDER_CLASSES, Key("", "c"))
    await bench.run()
    assert bench.ready == ("False", "ProviderClassNotFound")
    session = bench.sessions.open(KEY)
    assert session is not None
    assert session.writable


async def test_without_the_lease_nothing_is_said_or_done(bench: ProviderBench) -> None:
    await bench.run()
    await bench.lease.give("other-pod")
    bench.api.calls.clear()
    bench.endpoint.calls.clear()
    result = await bench.run(400)
    assert not bench.api.calls
    assert not bench.endpoint.calls
    assert bench.sessions.open(KEY) is None
    assert result.requeue_after is not None
    [event] = bench.recorder.events
    assert event.reason == EventReason.SERVED_ELSEWHERE
    assert "other-pod" in event.message
    await bench.lease.give("me")
    assert KEY in bench.queue.asked
    await bench.run()
    assert bench.sessions.open(KEY) is not None


async def test_a_lease_that_only_could_not_be_renewed_keeps_the_session(
    bench: ProviderBench,
) -> None:
    await bench.run()
    bench.lease.held = False
    await bench.run()
    session = bench.sessions.open(KEY)
    assert session is not None
    assert not session.writable
    assert bench.endpoint.sessions == 1


@pytest.mark.parametrize("where", ["provider", "class"])
async def test_paused_stops_changes_but_not_observation(bench: ProviderBench, where: str) -> None:
    if where == "provider":
        bench.edit(paused=True)
    else:
        spec = class_object("scripted", paused=True)
        bench.api.put(PROVIDER_CLASSES, {"metadata": {"name": "c"}, "spec": spec})
    await bench.run()
    assert bench.ready == ("True", "Ready")
    assert bench.condition("Paused")[0] == "True"
    session = bench.sessions.open(KEY)
    assert session is not None
    assert not session.writable


# Unclaimed machines


@pytest.mark.identity("12.1")
async def test_marked_machines_without_object_are_listed(bench: ProviderBench) -> None:
    bench.endpoint.marked = (
        marked_vm("u1", "claimed"),
        marked_vm("u2", "lost"),
        marked_vm("u3", "copy", marked="u2"),
        marked_vm("u4", "stranger", installation="other"),
    )
    bench.add_machine("m", instance=instance("u1"))
    await bench.run()
    found = bench.provider.status.unclaimed
    assert found is not None
    assert (found.complete, found.count) == (True, 1)
    assert found.owners[0].hash == Owner("inst", "VirtualMachine", "ns", "lost").digest
    assert found.sample[0].owner == "VirtualMachine/ns/lost"
    assert found.sample[0].failure_domain == "prod-dc1-c1"
    assert bench.provider.status.machine_count == 1


async def test_machines_of_another_provider_of_the_same_backend_are_not_left_over(
    bench: ProviderBench,
) -> None:
    """Else they look like leftovers, and their owner seems to exist on both Providers."""
    bench.endpoint.marked = (
        marked_vm("u1", "ours"),
        marked_vm("u2", "theirs"),
        marked_vm("u3", "lost"),
    )
    bench.add_machine("m", instance=instance("u1"))
    bench.add_machine(
        "n", providerRef={"namespace": "ns", "name": "second"}, instance=instance("u2")
    )
    await bench.run()
    found = bench.provider.status.unclaimed
    assert found is not None
    assert [owner.hash for owner in found.owners] == [
        Owner("inst", "VirtualMachine", "ns", "lost").digest
    ]
    assert bench.provider.status.machine_count == 1


async def test_counts_are_written_at_most_every_ten_seconds(bench: ProviderBench) -> None:
    await bench.run()
    bench.api.calls.clear()
    for number in range(30):
        bench.add_machine(f"m{number}")
        await bench.run(0.5)
    assert len(bench.api.writes()) == 1
    await bench.run_for(11)
    assert len(bench.api.writes()) == 2
    assert bench.provider.status.machine_count == 30


async def test_a_stranger_in_the_feed_is_looked_at_once_a_minute(bench: ProviderBench) -> None:
    bench.add_machine("m", instance=instance("u1"))
    await bench.run()
    bench.endpoint.marked = (marked_vm("u9", "restored"),)
    bench.sessions.changed(KEY, Changes(uuids=frozenset({"u1"})))
    await bench.run(61)
    assert bench.endpoint.calls["marked"] == 1
    bench.sessions.changed(KEY, Changes(uuids=frozenset({"u9"})))
    assert KEY in bench.queue.asked
    await bench.run()
    for _ in range(5):
        bench.sessions.changed(KEY, Changes(uuids=frozenset({"u9"})))
        await bench.run(5)
    assert bench.endpoint.calls["marked"] == 2
    found = bench.provider.status.unclaimed
    assert found is not None
    assert found.count == 1


async def test_without_installation_nobody_is_called_unclaimed(bench: ProviderBench) -> None:
    bench.endpoint.marked = (marked_vm("u2", "lost"),)
    bench.api.drop(CONFIG_MAPS, Key("system", names.INSTALLATION_CONFIG_MAP))
    await bench.run()
    assert bench.ready == ("True", "Ready")
    assert bench.provider.status.unclaimed is None


# In use, and the end


def _finalizers(bench: ProviderBench) -> list[list[str]]:
    lease = Key("ns", bench.provider.metadata.uid or "")
    sources = ((PROVIDERS, KEY), (SECRETS, CREDENTIALS), (LEASES, lease))
    found = (bench.api.peek(resource, key) or {} for resource, key in sources)
    return [(obj.get("metadata") or {}).get("finalizers") or [] for obj in found]


async def _use(bench: ProviderBench) -> None:
    uid = bench.provider.metadata.uid or ""
    bench.api.put(LEASES, {"metadata": meta(uid)})
    await bench.run()
    bench.add_machine("m", instance=instance("u1"))
    await ensure_in_use(bench.api, bench.provider, manager="m")


@pytest.mark.identity("7.1")
async def test_before_the_mint_everything_is_held(bench: ProviderBench) -> None:
    await _use(bench)
    assert _finalizers(bench) == [[FINALIZER]] * 3
    bench.api.calls.clear()
    await ensure_in_use(bench.api, bench.provider, manager="m")
    assert not bench.api.calls


async def test_the_lease_goes_with_its_provider(bench: ProviderBench) -> None:
    uid = bench.provider.metadata.uid or ""
    bench.api.put(LEASES, {"metadata": meta(uid)})
    await bench.run()
    bench.api.drop(PROVIDERS, KEY)
    bench.api.collect_garbage()
    assert not bench.api.peek_all(LEASES)


async def test_where_who_may_not_delete_may_not_say_whose_a_lease_is_the_provider_is_served(
    bench: ProviderBench,
) -> None:
    """Admission plugin OwnerReferencesPermissionEnforcement, which OpenShift has on."""
    bench.api.put(LEASES, {"metadata": meta(bench.provider.metadata.uid or "")})

    def refuse(call: Call, moment: Moment) -> None:
        if call.resource == LEASES and call.verb == "json_patch" and moment is Moment.BEFORE:
            raise Forbidden(
                403, "Forbidden", "cannot set an ownerRef on a resource you can't delete"
            )

    bench.api.intercept(refuse)
    await bench.run()
    assert bench.condition("Ready")[0] == "True"


async def test_a_finalizer_somebody_took_off_comes_back(bench: ProviderBench) -> None:
    await _use(bench)
    await bench.run()
    bench.api.edit(SECRETS, CREDENTIALS, lambda obj: obj["metadata"].pop("finalizers"))
    await bench.run_for(400)
    assert _finalizers(bench) == [[FINALIZER]] * 3


async def test_leftovers_of_a_restored_status_go(bench: ProviderBench) -> None:
    restored = {"failureDomains": [{"name": "old", "id": "d0"}], "workload": {"name": "w"}}
    bench.api.edit(PROVIDERS, KEY, lambda obj: obj.update(status=restored))
    await bench.run()
    assert [d.name for d in bench.provider.status.failure_domains] == ["prod-dc1-c1"]
    assert bench.raw["status"]["workload"] == {"name": "w"}


async def test_a_deleted_provider_is_never_taken_into_use(bench: ProviderBench) -> None:
    await _use(bench)
    bench.api.drop(PROVIDERS, KEY)
    with pytest.raises(NeedsOperator) as caught:
        await ensure_in_use(bench.api, bench.provider, manager="m")
    assert caught.value.reason == Reason.PROVIDER_DELETING


async def test_finalizers_of_others_stay(bench: ProviderBench) -> None:
    bench.api.edit(SECRETS, CREDENTIALS, lambda o: o["metadata"].update(finalizers=["x.io/a"]))
    await _use(bench)
    assert _finalizers(bench)[1] == ["x.io/a", FINALIZER]
    bench.api.drop(MACHINES, Key("ns", "m"))
    bench.api.drop(PROVIDERS, KEY)
    await bench.run()
    assert (bench.api.peek(SECRETS, CREDENTIALS) or {})["metadata"]["finalizers"] == ["x.io/a"]


@pytest.mark.identity("7.3")
async def test_a_deleted_provider_waits_for_its_machines_and_serves_them(
    bench: ProviderBench,
) -> None:
    await _use(bench)
    bench.api.drop(PROVIDERS, KEY)
    await bench.run()
    status, reason, message = bench.condition("Deleting")
    assert (status, reason) == ("True", "ProviderInUse")
    assert "1 machine" in message
    assert bench.sessions.open(KEY) is not None
    bench.api.drop(MACHINES, Key("ns", "m"))
    await bench.run()
    assert bench.api.peek(PROVIDERS, KEY) is None
    assert (bench.api.peek(SECRETS, CREDENTIALS) or {})["metadata"].get("finalizers", []) == []
    await bench.run()
    assert bench.sessions.find(KEY) is None


async def test_a_stale_cache_does_not_let_a_deleted_provider_go(bench: ProviderBench) -> None:
    await _use(bench)
    bench.api.drop(MACHINES, Key("ns", "m"))
    bench.api.cache.hold()
    bench.add_machine("m2")
    bench.api.drop(PROVIDERS, KEY)
    bench.api.cache.follow()
    bench.api.cache._objects[MACHINES].clear()
    await bench.run()
    assert FINALIZER in _finalizers(bench)[0]


async def test_paused_the_finalizer_stays(bench: ProviderBench) -> None:
    await _use(bench)
    bench.edit(paused=True)
    bench.api.drop(MACHINES, Key("ns", "m"))
    bench.api.drop(PROVIDERS, KEY)
    await bench.run()
    assert FINALIZER in _finalizers(bench)[0]


async def test_an_idle_provider_is_let_go_after_a_while(bench: ProviderBench) -> None:
    await _use(bench)
    bench.api.drop(MACHINES, Key("ns", "m"))
    await bench.run()
    assert _finalizers(bench) == [[FINALIZER]] * 3
    await bench.run_for(300)
    assert _finalizers(bench) == [[]] * 3
    assert bench.ready == ("True", "Ready")
    bench.api.calls.clear()
    await bench.run_for(290)
    assert not bench.api.writes()


async def test_a_machine_made_while_letting_go_is_protected_again(bench: ProviderBench) -> None:
    await _use(bench)
    bench.api.drop(MACHINES, Key("ns", "m"))

    def mint(call: Call, moment: Moment) -> None:
        if moment is Moment.AFTER and call.verb == "json_patch" and call.resource == SECRETS:
            bench.add_machine("late")

    bench.api.intercept(mint)
    await bench.run_for(400)
    assert _finalizers(bench) == [[FINALIZER]] * 3


async def test_another_secret_is_held_and_the_former_let_go(bench: ProviderBench) -> None:
    await _use(bench)
    await bench.run()
    secret = bench.api.peek(SECRETS, CREDENTIALS) or {}
    bench.api.put(SECRETS, {"metadata": meta("creds-2"), "data": secret["data"]})
    bench.edit(connection={"endpoint": "https://vc/sdk", "credentialsRef": {"name": "creds-2"}})
    await bench.run()
    assert _finalizers(bench)[1] == []
    held = bench.api.peek(SECRETS, Key("ns", "creds-2")) or {}
    assert held["metadata"]["finalizers"] == [FINALIZER]


async def test_a_new_provider_of_the_same_name_starts_afresh(bench: ProviderBench) -> None:
    await bench.run()
    bench.api.drop(PROVIDERS, KEY)
    bench.endpoint.about = About("backend-2", "9.0")
    bench.api.put(PROVIDERS, {"metadata": meta("prod"), "spec": provider_spec()})
    await bench.run()
    assert bench.ready == ("True", "Ready")
    assert bench.provider.status.backend_identity == "backend-2"
    assert len(bench.candidates.made) == 2


# Watches


def _mapped(
    bench: ProviderBench, resource: Resource, old: Obj | None, new: Obj | None
) -> list[Request]:
    controller = bench.reconciler.controller()
    [watch] = [w for w in controller.watches if w.resource == resource]
    return list(watch.map(Change(resource, Key.of(new or old or {}), old, new)))


async def test_status_writes_wake_nobody(bench: ProviderBench) -> None:
    old = bench.raw
    await bench.run()
    assert not _mapped(bench, PROVIDERS, old, bench.raw)
    changed = {**bench.raw, "spec": {**bench.raw["spec"], "paused": True}}
    assert [r.key for r in _mapped(bench, PROVIDERS, bench.raw, changed)] == [KEY]


async def test_machines_wake_their_provider_when_they_come_mint_and_go(
    bench: ProviderBench,
) -> None:
    machine = bench.add_machine("m")
    minted = {**machine, "spec": {**machine["spec"], "instance": instance("u1")}}
    status = {**minted, "status": {"powerState": "PoweredOn"}}
    for old, new in ((None, machine), (machine, minted), (minted, None)):
        [request] = _mapped(bench, MACHINES, old, new)
        assert request.key == KEY
        assert request.delay > 0
    assert not _mapped(bench, MACHINES, minted, status)


async def test_class_edits_fan_out(bench: ProviderBench) -> None:
    raw = bench.api.peek(PROVIDER_CLASSES, Key("", "c"))
    assert [r.key for r in _mapped(bench, PROVIDER_CLASSES, raw, raw)] == [KEY]


async def test_serving_one_provider_selects_on_the_server(bench: ProviderBench) -> None:
    bench.start(only=KEY)
    selectors = {w.resource.kind: w.field_selector for w in bench.reconciler.controller().watches}
    assert selectors["Provider"] == "metadata.name=prod"
    assert selectors[MACHINES.kind] == ("spec.providerRef.namespace=ns,spec.providerRef.name=prod")
