import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from banlieue.api.meta import Resource
from banlieue.sdk.kube import AlreadyExists, Conflict, Invalid, Key, NotFound, Obj, Unavailable
from banlieue.sdk.reconcile import Change
from banlieue.sdk.testing.memory_api import Call, MemoryApi, Moment

THING = Resource("example.org", "v1", "Thing", "things")
KEY = Key("ns", "a")


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi()


def thing(name: str = "a", /, **more: object) -> Obj:
    meta = {"namespace": "ns", "name": name}
    return {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": meta, **more}


_DOCUMENTS = st.recursive(
    st.integers(0, 3) | st.booleans() | st.lists(st.integers(0, 3), max_size=2),
    lambda below: st.dictionaries(st.sampled_from("abc"), below, min_size=1, max_size=3),
    max_leaves=6,
).filter(lambda value: isinstance(value, dict))


def condition(kind: str, status: str = "True") -> Obj:
    return {"type": kind, "status": status, "reason": "Because"}


async def test_create_gives_identity_and_drops_status(api: MemoryApi) -> None:
    made = await api.create(THING, thing(spec={"a": 1}, status={"b": 2}), manager="m")
    assert made["metadata"]["uid"]
    assert made["metadata"]["generation"] == 1
    assert "status" not in made
    with pytest.raises(AlreadyExists):
        await api.create(THING, thing(), manager="m")


async def test_get_of_nothing_is_not_found(api: MemoryApi) -> None:
    with pytest.raises(NotFound):
        await api.get(THING, KEY)


async def test_answers_are_copies(api: MemoryApi) -> None:
    api.put(THING, thing(spec={"a": 1}))
    (await api.get(THING, KEY))["spec"]["a"] = 2
    cached = api.cache.get(THING, KEY)
    assert cached is not None
    cached["spec"]["a"] = 3
    assert (api.peek(THING, KEY) or {})["spec"] == {"a": 1}


async def test_generation_counts_spec_changes_only(api: MemoryApi) -> None:
    api.put(THING, thing(spec={"a": 1}))
    status = thing(status={"x": 1})
    assert (await api.apply(THING, status, manager="m", subresource="status"))["metadata"][
        "generation"
    ] == 1
    ops = [{"op": "replace", "path": "/spec/a", "value": 2}]
    changed = await api.json_patch(THING, KEY, ops, manager="m")
    assert changed["metadata"]["generation"] == 2


async def test_apply_removes_what_it_no_longer_names(api: MemoryApi) -> None:
    api.put(THING, thing())
    first = thing(status={"a": 1, "b": {"c": 1}, "conditions": [condition("X"), condition("Y")]})
    await api.apply(THING, first, manager="m", subresource="status")
    second = thing(status={"a": 1, "conditions": [condition("Y", "False")]})
    after = await api.apply(THING, second, manager="m", subresource="status")
    assert after["status"] == {"a": 1, "conditions": [condition("Y", "False")]}


async def test_apply_keeps_what_another_manager_owns(api: MemoryApi) -> None:
    api.put(THING, thing())
    await api.apply(
        THING, thing(status={"conditions": [condition("X")]}), manager="one", subresource="status"
    )
    await api.apply(
        THING, thing(status={"conditions": [condition("Y")]}), manager="two", subresource="status"
    )
    after = await api.apply(THING, thing(status={}), manager="one", subresource="status")
    assert after["status"]["conditions"] == [condition("Y")]


async def test_shared_fields_stay_until_the_last_owner_leaves(api: MemoryApi) -> None:
    api.put(THING, thing())
    for manager in ("one", "two"):
        await api.apply(
            THING, thing(status={"a": 1, manager: 1}), manager=manager, subresource="status"
        )
    after = await api.apply(THING, thing(status={"one": 1}), manager="one", subresource="status")
    assert after["status"]["a"] == 1
    after = await api.apply(THING, thing(status={"two": 1}), manager="two", subresource="status")
    assert "a" not in after["status"]


async def test_omission_leaves_what_the_manager_never_applied(api: MemoryApi) -> None:
    api.put(THING, thing(status={"restored": 1}))
    after = await api.apply(THING, thing(status={"a": 1}), manager="m", subresource="status")
    assert after["status"] == {"restored": 1, "a": 1}


async def test_an_equal_apply_is_no_write(api: MemoryApi) -> None:
    await api.apply(THING, thing(spec={"a": [1, 2]}), manager="m")
    version = (api.peek(THING, KEY) or {})["metadata"]["resourceVersion"]
    await api.apply(THING, thing(spec={"a": [1, 2]}), manager="m")
    assert (api.peek(THING, KEY) or {})["metadata"]["resourceVersion"] == version
    assert len(api.writes()) == 1


async def test_main_endpoint_leaves_status_alone(api: MemoryApi) -> None:
    api.put(THING, thing(status={"a": 1}))
    ops: list[Obj] = [
        {"op": "replace", "path": "/status/a", "value": 2},
        {"op": "add", "path": "/spec", "value": {"b": 1}},
    ]
    after = await api.json_patch(THING, KEY, ops, manager="m")
    assert after["status"] == {"a": 1}
    assert after["spec"] == {"b": 1}
    after = await api.json_patch(THING, KEY, ops, manager="m", subresource="status")
    assert after["status"] == {"a": 2}


async def test_failed_version_test_is_a_conflict(api: MemoryApi) -> None:
    stale = api.put(THING, thing())["metadata"]["resourceVersion"]
    api.edit(THING, KEY, lambda obj: obj.update(spec={"a": 1}))
    ops = [{"op": "test", "path": "/metadata/resourceVersion", "value": stale}]
    with pytest.raises(Conflict):
        await api.json_patch(THING, KEY, ops, manager="m")


async def test_apply_with_an_old_version_is_a_conflict(api: MemoryApi) -> None:
    stale = api.put(THING, thing())
    api.edit(THING, KEY, lambda obj: obj.update(spec={"a": 1}))
    with pytest.raises(Conflict):
        await api.apply(THING, stale, manager="m")


async def test_patch_that_does_not_fit_is_a_conflict(api: MemoryApi) -> None:
    api.put(THING, thing(spec={}))
    with pytest.raises(Conflict):
        await api.json_patch(THING, KEY, [{"op": "remove", "path": "/spec/nope"}], manager="m")


async def test_finalizers_hold_a_deleted_object(api: MemoryApi) -> None:
    api.put(THING, thing())
    ops = [{"op": "add", "path": "/metadata/finalizers", "value": ["example.org/f"]}]
    await api.json_patch(THING, KEY, ops, manager="m")
    await api.delete(THING, KEY)
    held = await api.get(THING, KEY)
    assert held["metadata"]["deletionTimestamp"]
    more = [{"op": "add", "path": "/metadata/finalizers/-", "value": "example.org/g"}]
    with pytest.raises(Invalid):
        await api.json_patch(THING, KEY, more, manager="m")
    await api.json_patch(
        THING, KEY, [{"op": "remove", "path": "/metadata/finalizers"}], manager="m"
    )
    assert api.peek(THING, KEY) is None
    assert api.cache.get(THING, KEY) is None


async def test_delete_checks_preconditions(api: MemoryApi) -> None:
    made = api.put(THING, thing())
    with pytest.raises(Conflict):
        await api.delete(THING, KEY, uid="other")
    await api.delete(THING, KEY, uid=made["metadata"]["uid"])
    with pytest.raises(NotFound):
        await api.delete(THING, KEY)


async def test_selectors(api: MemoryApi) -> None:
    api.put(THING, thing("a", spec={"ref": {"name": "x"}}))
    labelled = thing("b", spec={"ref": {"name": "y"}})
    labelled["metadata"]["labels"] = {"tier": "db", "zone": "1"}
    api.put(THING, labelled)

    async def names(*, fields: str = "", labels: str = "") -> list[str]:
        found = await api.list(THING, field_selector=fields, label_selector=labels)
        return [obj["metadata"]["name"] for obj in found]

    assert await names(fields="spec.ref.name=x") == ["a"]
    assert await names(fields="spec.ref.name!=x,metadata.namespace=ns") == ["b"]
    assert await names(labels="tier in (db, web),zone=1") == ["b"]
    assert await names(labels="!tier") == ["a"]
    assert await names(labels="tier notin (db)") == ["a"]


async def test_changes_reach_subscribers_in_order(api: MemoryApi) -> None:
    seen: list[Change] = []
    api.subscribe(seen.append)
    await api.create(THING, thing(spec={"a": 1}), manager="m")
    api.edit(THING, KEY, lambda obj: obj.update(spec={"a": 2}))
    api.drop(THING, KEY)
    moves = [((c.old or {}).get("spec"), (c.new or {}).get("spec")) for c in seen]
    assert moves == [(None, {"a": 1}), ({"a": 1}, {"a": 2}), ({"a": 2}, None)]


async def test_a_held_cache_lags_behind_others_but_not_behind_us(api: MemoryApi) -> None:
    api.put(THING, thing(spec={"a": 1}))
    api.cache.hold()
    api.edit(THING, KEY, lambda obj: obj.update(spec={"a": 2}))
    assert (api.cache.get(THING, KEY) or {})["spec"] == {"a": 1}
    ops = [{"op": "add", "path": "/spec/b", "value": 1}]
    await api.json_patch(THING, KEY, ops, manager="m")
    assert (api.cache.get(THING, KEY) or {})["spec"] == {"a": 2, "b": 1}
    api.cache.follow()
    assert (api.cache.get(THING, KEY) or {})["spec"] == {"a": 2, "b": 1}
    assert [Key.of(obj) for obj in api.cache.list(THING, namespace="ns")] == [KEY]


async def test_a_lost_reply_has_happened_and_a_refused_call_has_not(api: MemoryApi) -> None:
    moment = Moment.AFTER

    def fail(_call: Call, when: Moment) -> None:
        if when is moment:
            raise Unavailable(503, "gone")

    off = api.intercept(fail)
    with pytest.raises(Unavailable):
        await api.create(THING, thing("a"), manager="m")
    moment = Moment.BEFORE
    with pytest.raises(Unavailable):
        await api.create(THING, thing("b"), manager="m")
    off()
    assert [obj["metadata"]["name"] for obj in api.peek_all(THING)] == ["a"]


async def test_garbage_collection_follows_owner_uids(api: MemoryApi) -> None:
    owner = api.put(THING, thing("owner"))
    child = thing("child")
    child["metadata"]["ownerReferences"] = [
        {"kind": "Thing", "name": "owner", "uid": owner["metadata"]["uid"]}
    ]
    stale = thing("stale")
    stale["metadata"]["ownerReferences"] = [{"kind": "Thing", "name": "owner", "uid": "old"}]
    api.put(THING, child)
    api.put(THING, stale)
    assert api.collect_garbage() == 1
    assert {obj["metadata"]["name"] for obj in api.peek_all(THING)} == {"owner", "child"}
    api.drop(THING, Key("ns", "owner"))
    assert api.collect_garbage() == 1


async def test_restored_objects_keep_what_they_bring(api: MemoryApi) -> None:
    backup = thing(spec={"a": 1}, status={"b": 1})
    backup["metadata"] |= {"uid": "old", "finalizers": ["example.org/f"]}
    api.put(THING, backup)
    restored = await api.get(THING, KEY)
    assert restored["metadata"]["uid"] == "old"
    assert restored["status"] == {"b": 1}


@settings(max_examples=60, deadline=None)
@given(st.lists(_DOCUMENTS, min_size=1, max_size=4))
async def test_what_one_manager_applied_last_is_what_is_there(documents: list[Obj]) -> None:
    api = MemoryApi()
    api.put(THING, thing())
    for document in documents:
        await api.apply(THING, thing(status=document), manager="m", subresource="status")
    assert (api.peek(THING, KEY) or {})["status"] == documents[-1]


@settings(max_examples=60, deadline=None)
@given(_DOCUMENTS, _DOCUMENTS)
async def test_managers_of_different_fields_do_not_meet(mine: Obj, yours: Obj) -> None:
    api = MemoryApi()
    api.put(THING, thing())
    for manager, part in (("me", {"mine": mine}), ("you", {"yours": yours}), ("me", {})):
        await api.apply(THING, thing(status=part), manager=manager, subresource="status")
    assert (api.peek(THING, KEY) or {})["status"] == {"yours": yours}
