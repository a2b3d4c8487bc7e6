"""What reconcilers lean on in an API server, as cases that run against any `ApiClient`.

The in-memory API and a real API server must both pass every one of them: so simulations and unit
tests show what happens in a cluster.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from banlieue.sdk.kube import AlreadyExists, ApiClient, Conflict, Invalid, Key, NotFound, Obj
from banlieue.sdk.mishaps import PATIENCE, Mishaps, Subject
from banlieue.sdk.status import write_status
from banlieue.sdk.testing.fakes import context_for
from banlieue.sdk.testing.memory_api import MemoryApi
from test.kit.things import THINGS

ME: Final = "banlieue.io/me"
YOU: Final = "banlieue.io/you"
HELD: Final = "test.banlieue.io/held"

Case = Callable[[ApiClient, str], Awaitable[None]]
CASES: dict[str, Case] = {}


def case(check: Case) -> Case:
    """Add a case to the list."""
    CASES[check.__name__] = check
    return check


def _thing(namespace: str, name: str = "a", **parts: Any) -> Obj:  # noqa: ANN401 - JSON data
    metadata = {"namespace": namespace, "name": name, **parts.pop("metadata", {})}
    return {"apiVersion": THINGS.api_version, "kind": THINGS.kind, "metadata": metadata, **parts}


def _ready(status: str = "True", kind: str = "Ready") -> Obj:
    return {"type": kind, "status": status, "reason": "Because", "message": ""}


async def _make(api: ApiClient, namespace: str, name: str = "a", **parts: Any) -> Obj:  # noqa: ANN401 - JSON data
    return await api.create(THINGS, _thing(namespace, name, **parts), manager=ME)


async def _say(api: ApiClient, namespace: str, manager: str = ME, **status: Any) -> Obj:  # noqa: ANN401 - JSON data
    body = _thing(namespace, status=status)
    return await api.apply(THINGS, body, manager=manager, subresource="status")


async def _patch(api: ApiClient, key: Key, *ops: Obj, subresource: str = "") -> Obj:
    return await api.json_patch(THINGS, key, ops, manager=ME, subresource=subresource)


def _set(path: str, value: object) -> Obj:
    return {"op": "add", "path": path, "value": value}


def _version(obj: Obj) -> str:
    return str(obj["metadata"]["resourceVersion"])


def _generation(obj: Obj) -> int:
    return int(obj["metadata"]["generation"])


@case
async def a_create_gives_identity_and_drops_status(api: ApiClient, namespace: str) -> None:
    made = await _make(api, namespace, spec={"size": 1}, status={"phase": "Forged"})
    assert made["metadata"]["uid"]
    assert made["metadata"]["creationTimestamp"]
    assert _generation(made) == 1
    assert "status" not in made
    assert made["spec"] == {"size": 1}


@case
async def a_name_is_taken_once(api: ApiClient, namespace: str) -> None:
    first = await _make(api, namespace)
    with pytest.raises(AlreadyExists):
        await _make(api, namespace)
    await api.delete(THINGS, Key(namespace, "a"))
    second = await _make(api, namespace)
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


@case
async def what_is_not_there_is_not_found(api: ApiClient, namespace: str) -> None:
    key = Key(namespace, "nobody")
    with pytest.raises(NotFound):
        await api.get(THINGS, key)
    with pytest.raises(NotFound):
        await api.delete(THINGS, key)
    with pytest.raises(NotFound):
        await _patch(api, key, _set("/spec", {}))
    with pytest.raises(NotFound):
        await api.apply(
            THINGS,
            _thing(namespace, "nobody", status={"phase": "x"}),
            manager=ME,
            subresource="status",
        )


@case
async def an_apply_makes_what_is_missing(api: ApiClient, namespace: str) -> None:
    made = await api.apply(THINGS, _thing(namespace, spec={"size": 2}), manager=ME)
    assert _generation(made) == 1
    assert (await api.get(THINGS, Key(namespace, "a")))["spec"] == {"size": 2}


@case
async def the_generation_counts_edits_of_the_spec(api: ApiClient, namespace: str) -> None:
    key = Key(namespace, "a")
    await _make(api, namespace, spec={"size": 1})
    assert _generation(await _say(api, namespace, phase="Running")) == 1
    assert _generation(await _patch(api, key, _set("/metadata/labels", {"a": "b"}))) == 1
    assert _generation(await _patch(api, key, _set("/spec/size", 2))) == 2
    assert _generation(await _patch(api, key, _set("/spec/size", 2))) == 2


@case
async def every_change_gets_a_version_and_no_change_gets_none(
    api: ApiClient, namespace: str
) -> None:
    key = Key(namespace, "a")
    made = await _make(api, namespace, spec={"size": 1})
    changed = await _patch(api, key, _set("/spec/size", 2))
    assert _version(changed) != _version(made)
    assert _version(await _patch(api, key, _set("/spec/size", 2))) == _version(changed)
    said = await _say(api, namespace, phase="Running", conditions=[_ready()])
    again = await _say(api, namespace, phase="Running", conditions=[_ready()])
    assert _version(again) == _version(said)


@case
async def a_failed_test_changes_nothing(api: ApiClient, namespace: str) -> None:
    key = Key(namespace, "a")
    made = await _make(api, namespace, spec={"size": 1})
    await _patch(api, key, _set("/spec/size", 2))
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": _version(made)}
    with pytest.raises(Conflict):
        await _patch(api, key, test, _set("/spec/size", 3))
    with pytest.raises(Conflict):
        await _patch(api, key, _set("/spec/size", 3), {"op": "remove", "path": "/spec/owner"})
    assert (await api.get(THINGS, key))["spec"] == {"size": 2}


@case
async def a_delete_may_name_what_it_means(api: ApiClient, namespace: str) -> None:
    key = Key(namespace, "a")
    made = await _make(api, namespace)
    changed = await _patch(api, key, _set("/spec", {"size": 1}))
    with pytest.raises(Conflict):
        await api.delete(THINGS, key, uid="another")
    with pytest.raises(Conflict):
        await api.delete(THINGS, key, uid=made["metadata"]["uid"], resource_version=_version(made))
    uid = changed["metadata"]["uid"]
    await api.delete(THINGS, key, uid=uid, resource_version=_version(changed))
    with pytest.raises(NotFound):
        await api.get(THINGS, key)


@case
async def a_finalizer_holds_a_deleted_object(api: ApiClient, namespace: str) -> None:
    key = Key(namespace, "a")
    made = await _make(api, namespace, metadata={"finalizers": [HELD]})
    await api.delete(THINGS, key)
    held = await api.get(THINGS, key)
    assert held["metadata"]["deletionTimestamp"]
    assert held["metadata"].get("deletionGracePeriodSeconds") == 0
    assert _generation(held) == _generation(made) + 1
    await api.delete(THINGS, key)
    assert _version(await api.get(THINGS, key)) == _version(held)
    with pytest.raises(AlreadyExists):
        await _make(api, namespace)
    last = await _patch(api, key, {"op": "remove", "path": "/metadata/finalizers"})
    assert last["metadata"]["deletionTimestamp"]
    assert not last["metadata"].get("finalizers")
    with pytest.raises(NotFound):
        await api.get(THINGS, key)


@case
async def a_deleted_object_gets_no_new_finalizer(api: ApiClient, namespace: str) -> None:
    key = Key(namespace, "a")
    await _make(api, namespace, metadata={"finalizers": [HELD]})
    await api.delete(THINGS, key)
    with pytest.raises(Invalid):
        await _patch(api, key, _set("/metadata/finalizers/-", "test.banlieue.io/late"))
    assert (await _patch(api, key, _set("/spec", {"size": 1})))["spec"] == {"size": 1}


@case
async def spec_and_status_have_doors_of_their_own(api: ApiClient, namespace: str) -> None:
    key = Key(namespace, "a")
    await _make(api, namespace, spec={"size": 1})
    await _say(api, namespace, phase="Running")
    after = await _patch(api, key, _set("/status/phase", "Forged"), _set("/spec/size", 2))
    assert (after["spec"], after["status"]) == ({"size": 2}, {"phase": "Running"})
    after = await _patch(
        api, key, _set("/status/phase", "Stopped"), _set("/spec/size", 3), subresource="status"
    )
    assert (after["spec"], after["status"]) == ({"size": 2}, {"phase": "Stopped"})
    assert _generation(after) == 2


@case
async def what_only_the_server_writes_cannot_be_patched(api: ApiClient, namespace: str) -> None:
    key = Key(namespace, "a")
    made = await _make(api, namespace, spec={"size": 1})
    after = await _patch(api, key, _set("/metadata/generation", 7), _set("/spec/size", 2))
    assert _generation(after) == 2
    assert after["metadata"]["uid"] == made["metadata"]["uid"]


@case
async def an_apply_takes_away_what_it_does_not_name_any_more(
    api: ApiClient, namespace: str
) -> None:
    await _make(api, namespace)
    await _say(api, namespace, phase="x", note="y", conditions=[_ready(), _ready(kind="Old")])
    after = await _say(api, namespace, phase="x", conditions=[_ready("False")])
    assert after["status"] == {"phase": "x", "conditions": [_ready("False")]}


@case
async def an_apply_leaves_what_others_own(api: ApiClient, namespace: str) -> None:
    await _make(api, namespace)
    await _say(api, namespace, ME, phase="mine", conditions=[_ready(kind="Mine")])
    await _say(api, namespace, YOU, note="yours", conditions=[_ready(kind="Yours")])
    after = await _say(api, namespace, ME)
    assert after["status"] == {"note": "yours", "conditions": [_ready(kind="Yours")]}


@case
async def what_is_applied_comes_in_its_own_order(api: ApiClient, namespace: str) -> None:
    await _make(api, namespace)
    orders = (["B", "D"], ["A", "B", "C", "D"], ["D", "A"], ["A", "B", "D"], ["B", "C"])
    for kinds in orders:
        after = await _say(api, namespace, conditions=[_ready(kind=kind) for kind in kinds])
        assert [it["type"] for it in after["status"]["conditions"]] == kinds


@case
async def what_others_own_keeps_its_place_among_what_is_applied(
    api: ApiClient, namespace: str
) -> None:
    await _make(api, namespace)
    applied = (
        (ME, "BD", "BD"),
        (YOU, "ACX", "BDACX"),
        (ME, "ABD", "ACXBD"),
        (ME, "XD", "ACXD"),
        (ME, "DEB", "ACXDEB"),
    )
    found = []
    for manager, kinds, _ in applied:
        conditions = [_ready(kind=kind) for kind in kinds]
        after = await _say(api, namespace, manager, conditions=conditions)
        found.append("".join(it["type"] for it in after["status"]["conditions"]))
    assert found == [order for *_, order in applied]


@case
async def a_field_of_two_stays_until_both_let_go(api: ApiClient, namespace: str) -> None:
    await _make(api, namespace)
    await _say(api, namespace, ME, phase="both", note="n")
    await _say(api, namespace, YOU, phase="both")
    assert (await _say(api, namespace, ME, note="n"))["status"] == {"phase": "both", "note": "n"}
    await _say(api, namespace, YOU)
    assert (await api.get(THINGS, Key(namespace, "a")))["status"] == {"note": "n"}


@case
async def an_apply_does_not_take_away_what_it_never_applied(api: ApiClient, namespace: str) -> None:
    key = Key(namespace, "a")
    await _make(api, namespace)
    await _patch(api, key, _set("/status", {"note": "patched"}), subresource="status")
    after = await _say(api, namespace, YOU, phase="x")
    assert after["status"] == {"note": "patched", "phase": "x"}


@case
async def an_apply_may_name_the_version_it_means(api: ApiClient, namespace: str) -> None:
    key = Key(namespace, "a")
    made = await _make(api, namespace)
    await _patch(api, key, _set("/spec", {"size": 1}))
    metadata = {"resourceVersion": _version(made)}
    with pytest.raises(Conflict):
        await api.apply(
            THINGS,
            _thing(namespace, metadata=metadata, status={"phase": "x"}),
            manager=ME,
            subresource="status",
        )
    with pytest.raises(Conflict):
        await api.apply(THINGS, _thing(namespace, metadata={"uid": "another"}), manager=ME)


@case
async def a_create_leaves_no_ownership_to_an_apply(api: ApiClient, namespace: str) -> None:
    await _make(api, namespace, spec={"size": 1, "owner": "me"})
    after = await api.apply(THINGS, _thing(namespace, spec={"size": 2}), manager=YOU)
    assert after["spec"] == {"size": 2, "owner": "me"}
    after = await api.apply(THINGS, _thing(namespace, spec={}), manager=YOU)
    assert after["spec"] == {"owner": "me"}


@case
async def lists_are_selected_by_field_label_and_namespace(api: ApiClient, namespace: str) -> None:
    await _make(api, namespace, "a", spec={"owner": "x"})
    labels = {"tier": "db", "zone": "1"}
    await _make(api, namespace, "b", spec={"owner": "y"}, metadata={"labels": labels})

    async def names(**selectors: str) -> list[str]:
        found = await api.list(THINGS, namespace=namespace, **selectors)
        return sorted(obj["metadata"]["name"] for obj in found)

    assert await names() == ["a", "b"]
    assert await names(field_selector="spec.owner=x") == ["a"]
    assert await names(field_selector="spec.owner!=x") == ["b"]
    assert await names(field_selector="metadata.name=b") == ["b"]
    assert await names(label_selector="tier in (db, web),zone=1") == ["b"]
    assert await names(label_selector="!tier") == ["a"]
    assert await api.list(THINGS, namespace="elsewhere") == []


@case
async def answers_tell_what_is_stored(api: ApiClient, namespace: str) -> None:
    key = Key(namespace, "a")
    assert await _make(api, namespace, spec={"size": 1}) == await api.get(THINGS, key)
    assert await _say(api, namespace, phase="x") == await api.get(THINGS, key)
    assert await _patch(api, key, _set("/spec/size", 2)) == await api.get(THINGS, key)
    (listed,) = await api.list(THINGS, namespace=namespace)
    assert listed == await api.get(THINGS, key)


@case
async def what_was_told_of_failures_goes_with_the_next_whole_status(
    api: ApiClient, namespace: str
) -> None:
    found, key = await _make(api, namespace), Key(namespace, "a")
    context = replace(context_for(MemoryApi()), api=api)
    witness = Mishaps(context, "things", lambda _: Subject(THINGS, found, ME))
    for _ in range(PATIENCE):
        await witness.failed(key, KeyError("x"))
    found = await api.get(THINGS, key)
    assert [it["type"] for it in found["status"]["conditions"]] == ["Ready", "Reconciling"]
    whole = {"phase": "Running", "conditions": [_ready()]}
    await write_status(api, THINGS, found, whole, manager=ME)
    found = await api.get(THINGS, key)
    assert found["status"] == whole
    for _ in range(PATIENCE):
        await witness.failed(key, ValueError("x"))
    found = await api.get(THINGS, key)
    assert found["status"]["conditions"][0] == _ready()
    await witness.passed(key)
    assert (await api.get(THINGS, key))["status"] == whole
