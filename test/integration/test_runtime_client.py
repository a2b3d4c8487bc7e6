"""The API client against a real API server: paths, errors by kind, writes into the cache."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from banlieue.api.events import EventReason
from banlieue.api.resources import CONFIG_MAPS, NAMESPACES
from banlieue.sdk import kube as seam
from banlieue.sdk.kube import Key
from banlieue.sdk.runtime.cache import Cache
from banlieue.sdk.runtime.client import KubeClient
from banlieue.sdk.runtime.clock import SystemClock
from banlieue.sdk.runtime.connection import Connection, NoConnectionError
from banlieue.sdk.runtime.hub import Hub
from banlieue.sdk.runtime.metrics import Metrics
from banlieue.sdk.runtime.recorder import EventRecorder
from banlieue.sdk.runtime.sources import Stream
from banlieue.sdk.status import write_status
from test.kit import things
from test.kit.controlplane import ControlPlane
from test.kit.kube import Kube
from test.kit.things import THINGS, thing

pytestmark = pytest.mark.slow

MANAGER = "banlieue.io/test"


class Rig:
    def __init__(self, connection: Connection) -> None:
        self.metrics = Metrics()
        self.cache = Cache()
        self.client = KubeClient(
            connection,
            role="client-test",
            metrics=self.metrics,
            writes=Hub(self.cache, self.metrics),
        )


async def open_rig(kubeconfig: str) -> Rig:
    connection = Connection(kubeconfig)
    await connection.load()
    rig = Rig(connection)
    await rig.client.open()
    return rig


@pytest.fixture
async def rig(control_plane: ControlPlane, kube: Kube) -> AsyncIterator[Rig]:
    await asyncio.to_thread(kube.apply_crds, [things.definition()])
    made = await open_rig(str(control_plane.kubeconfig))
    yield made
    await made.client.close()


def in_namespace(namespace: str, name: str = "a", **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON data
    return {**thing(name), "metadata": {"namespace": namespace, "name": name}, **fields}


async def test_create_read_change_and_delete(rig: Rig, namespace: str) -> None:
    key, api = Key(namespace, "a"), rig.client
    made = await api.create(THINGS, in_namespace(namespace), manager=MANAGER)
    assert await api.get(THINGS, key) == made
    applied = await api.apply(THINGS, in_namespace(namespace, spec={"size": 5}), manager=MANAGER)
    assert applied["spec"]["size"] == 5
    patched = await api.json_patch(
        THINGS, key, [{"op": "add", "path": "/spec/owner", "value": "me"}], manager=MANAGER
    )
    assert patched["spec"] == {"size": 5, "owner": "me"}
    listed = await api.list(THINGS, namespace=namespace, field_selector="spec.owner=me")
    assert listed == [patched]
    await api.delete(THINGS, key, uid=made["metadata"]["uid"])
    with pytest.raises(seam.NotFound):
        await api.get(THINGS, key)


async def test_core_and_cluster_scoped_kinds(rig: Rig, namespace: str) -> None:
    found = await rig.client.get(NAMESPACES, Key("", namespace))
    assert (found["apiVersion"], found["kind"]) == ("v1", "Namespace")
    body = {"metadata": {"namespace": namespace, "name": "c"}, "data": {"x": "y"}}
    made = await rig.client.create(CONFIG_MAPS, body, manager=MANAGER)
    assert made["data"] == {"x": "y"}
    assert {it["kind"] for it in await rig.client.list(CONFIG_MAPS, namespace=namespace)} == {
        "ConfigMap"
    }


async def test_errors_by_kind(rig: Rig, namespace: str) -> None:
    key, api = Key(namespace, "a"), rig.client
    with pytest.raises(seam.NotFound):
        await api.delete(THINGS, key)
    made = await api.create(THINGS, in_namespace(namespace), manager=MANAGER)
    with pytest.raises(seam.AlreadyExists):
        await api.create(THINGS, in_namespace(namespace), manager=MANAGER)
    with pytest.raises(seam.Invalid):
        await api.create(THINGS, in_namespace(namespace, "b", spec={"size": 1000}), manager=MANAGER)
    with pytest.raises(seam.Invalid):
        await api.create(
            THINGS, in_namespace(namespace, "b", spec={"size": "many"}), manager=MANAGER
        )
    with pytest.raises(seam.Conflict):
        await api.delete(THINGS, key, uid="another")
    with pytest.raises(seam.Conflict):
        await api.delete(THINGS, key, resource_version="1")
    meta = {"namespace": namespace, "name": "a", "uid": "another"}
    assert made["metadata"]["uid"] != meta["uid"]
    with pytest.raises(seam.Conflict):
        await api.apply(THINGS, in_namespace(namespace, metadata=meta), manager=MANAGER)


async def test_a_patch_that_does_not_fit_is_a_conflict_and_a_bad_value_is_not(
    rig: Rig, namespace: str
) -> None:
    key, api = Key(namespace, "a"), rig.client
    made = await api.create(THINGS, in_namespace(namespace, spec={"size": 1}), manager=MANAGER)
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": "1"}
    set_size = {"op": "replace", "path": "/spec/size", "value": 2}
    with pytest.raises(seam.Conflict):
        await api.json_patch(THINGS, key, [test, set_size], manager=MANAGER)
    missing = {"op": "remove", "path": "/spec/owner"}
    with pytest.raises(seam.Conflict):
        await api.json_patch(THINGS, key, [missing], manager=MANAGER)
    test["value"] = made["metadata"]["resourceVersion"]
    set_size["value"] = 1000
    with pytest.raises(seam.Invalid):
        await api.json_patch(THINGS, key, [test, set_size], manager=MANAGER)
    set_size["value"] = 2
    assert (await api.json_patch(THINGS, key, [test, set_size], manager=MANAGER))["spec"] == {
        "size": 2
    }


async def test_missing_rights_are_forbidden(
    rig: Rig, control_plane: ControlPlane, namespace: str
) -> None:
    nobody = await open_rig(str(control_plane.kubeconfig_for_user("nobody")))
    with pytest.raises(seam.Forbidden):
        await nobody.client.list(THINGS, namespace=namespace)
    await nobody.client.close()
    assert rig.client.user_agent.endswith("(client-test)")


async def test_no_answer_is_unavailable(control_plane: ControlPlane, rig: Rig) -> None:
    await asyncio.to_thread(control_plane.stop_apiserver)
    try:
        with pytest.raises(seam.Unavailable):
            await rig.client.list(THINGS)
    finally:
        await asyncio.to_thread(control_plane.start_apiserver)


async def test_discovery_tells_what_is_served(rig: Rig) -> None:
    assert await rig.client.serves(THINGS)
    assert await rig.client.serves(CONFIG_MAPS)
    other_version = type(THINGS)(THINGS.group, "v9", THINGS.kind, THINGS.plural)
    assert not await rig.client.serves(other_version)


async def test_long_lists_are_read_page_by_page(
    rig: Rig, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("banlieue.sdk.runtime.client.PAGE", 3)
    names = [f"n{number}" for number in range(10)]
    for name in names:
        await rig.client.create(THINGS, in_namespace(namespace, name), manager=MANAGER)
    found = await rig.client.list(THINGS, namespace=namespace)
    assert sorted(it["metadata"]["name"] for it in found) == names
    identities = await rig.client.identities(THINGS, namespace=namespace)
    assert {key.name: it.version for key, it in identities.items()} == {
        it["metadata"]["name"]: it["metadata"]["resourceVersion"] for it in found
    }


async def test_writes_are_in_the_cache_before_they_return(rig: Rig, namespace: str) -> None:
    rig.cache.open(Stream(THINGS))
    key, api = Key(namespace, "a"), rig.client

    def cached() -> dict[str, Any] | None:
        return rig.cache.get(THINGS, key)

    body = in_namespace(namespace)
    body["metadata"]["finalizers"] = ["test.banlieue.io/held"]
    await api.create(THINGS, body, manager=MANAGER)
    found = cached()
    assert found is not None
    await api.delete(THINGS, key)
    found = cached()
    assert found is not None
    assert found["metadata"]["deletionTimestamp"]
    remove = [{"op": "remove", "path": "/metadata/finalizers"}]
    await api.json_patch(THINGS, key, remove, manager=MANAGER)
    assert cached() is None
    await api.create(THINGS, in_namespace(namespace), manager=MANAGER)
    assert cached() is not None
    await api.delete(THINGS, key)
    assert cached() is None


async def test_an_equal_status_is_not_written_and_leftovers_are_taken_out(
    rig: Rig, control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    api = rig.client
    obj = await api.create(THINGS, in_namespace(namespace), manager=MANAGER)
    ready = {"type": "Ready", "status": "True", "reason": "Yes", "message": ""}
    status = {"phase": "Running", "conditions": [ready]}
    written = await write_status(api, THINGS, obj, status, manager=MANAGER)
    assert written is not None
    assert written["status"] == status
    before = control_plane.audit_position()
    assert await write_status(api, THINGS, written, status, manager=MANAGER) is None
    assert not [it for it in control_plane.audit_writes(before) if it.resource == "things"]
    # Somebody restores an older status: an apply alone would leave what it does not name.
    old = {"type": "Old", "status": "False", "reason": "Gone", "message": ""}
    restored = {"status": {"note": "left", "conditions": [ready, old]}}
    obj = await asyncio.to_thread(
        lambda: kube.patch("things", "a", restored, namespace, subresource="status")
    )
    written = await write_status(api, THINGS, obj, status, manager=MANAGER)
    assert written is not None
    assert written["status"] == status
    assert (await asyncio.to_thread(kube.get, "things", "a", namespace))["status"] == status


async def test_events_are_accepted_and_said_once(rig: Rig, kube: Kube, namespace: str) -> None:
    obj = await rig.client.create(THINGS, in_namespace(namespace), manager=MANAGER)
    reason = next(iter(EventReason))
    recorder = EventRecorder(
        rig.client,
        controller=MANAGER,
        instance="test",
        clock=SystemClock(),
        metrics=rig.metrics,
        series_every=0.0,
    )
    task = asyncio.ensure_future(recorder.run())
    for _ in range(3):
        recorder.event(obj, reason, "It was made.")
        await recorder.flush(10.0)
    recorder.event(obj, reason, "It was changed.", warning=True)
    await recorder.flush(10.0)
    task.cancel()
    events = await asyncio.to_thread(kube.list, "events.events.k8s.io", namespace)
    found = {it["note"]: it for it in events}
    assert sorted(found) == ["It was changed.", "It was made."]
    assert found["It was made."]["series"]["count"] == 3
    assert found["It was changed."]["type"] == "Warning"


async def test_requests_are_counted(rig: Rig, namespace: str) -> None:
    with pytest.raises(seam.NotFound):
        await rig.client.get(THINGS, Key(namespace, "none"))
    sample = rig.metrics.registry.get_sample_value
    assert sample("rest_client_requests_total", {"code": "404", "method": "GET"}) == 1


async def test_a_missing_kubeconfig_is_said_plainly() -> None:
    with pytest.raises(NoConnectionError, match="no usable Kubernetes configuration"):
        await Connection("/nonexistent/kubeconfig").load()
