"""The runtime against a real API server: watches, cache, and what happens when it goes away."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from banlieue.api.meta import Resource
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Result, Watch
from test.kit import things
from test.kit.controlplane import ControlPlane
from test.kit.kube import Kube
from test.kit.live_process import CONTROLLER, LiveProcess, by_key
from test.kit.ports import LOOPBACK
from test.kit.stepped_clock import settle
from test.kit.things import THINGS, thing

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def crd(kube: Kube) -> None:
    kube.apply_crds([things.definition()])


class Gap:
    """A way to the API server that the test can close: connections break and none is taken."""

    def __init__(self, url: str) -> None:
        self._target = int(url.rsplit(":", 1)[1])
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._link, LOOPBACK, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._links:
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)
        # Transports close in the loop's next rounds.
        await settle()

    def kubeconfig(self, original: Path, target: Path) -> Path:
        document = yaml.safe_load(original.read_text())
        for cluster in document["clusters"]:
            cluster["cluster"]["server"] = f"https://{LOOPBACK}:{self.port}"
        target.write_text(yaml.safe_dump(document))
        return target

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(LOOPBACK, self._target)
            writers.append(far_writer)
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for it in writers:
                it.transport.abort()
            self._links.discard(task)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.transport.abort()


@pytest.fixture
async def gap(control_plane: ControlPlane) -> AsyncIterator[Gap]:
    made = Gap(control_plane.url)
    await made.open()
    yield made
    await made.close()


async def test_only_selected_objects_arrive_and_their_whole_life_does(
    control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    mine, other = Key(namespace, "mine"), Key(namespace, "other")
    await asyncio.to_thread(kube.create, thing("mine", "me"), namespace)
    await asyncio.to_thread(kube.create, thing("other", "you"), namespace)
    watch = Watch(THINGS, by_key, field_selector="spec.owner=me")
    async with LiveProcess(control_plane.kubeconfig, watch) as live:
        await live.ready()
        await live.until(lambda: mine in live.seen, "the first pass")
        patch = {"spec": {"size": 7}}
        await asyncio.to_thread(kube.patch, "things", "mine", patch, namespace)
        await live.until(lambda: (live.seen[mine] or {}).get("spec", {}).get("size") == 7, "it")
        stamp = {"spec": {"owner": "me"}}
        await asyncio.to_thread(kube.patch, "things", "other", stamp, namespace)
        await live.until(lambda: other in live.seen, "an object that came to match")
        await asyncio.to_thread(kube.patch, "things", "other", {"spec": {"owner": "x"}}, namespace)
        await live.until(lambda: live.seen[other] is None, "an object that ceased to match")
        await asyncio.to_thread(kube.delete, "things", "mine", namespace)
        await live.until(lambda: live.seen[mine] is None, "the deletion")
    assert live.code == 0


async def test_a_namespaced_watch_sees_its_namespace_only(
    control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    await asyncio.to_thread(kube.create, thing("here"), namespace)
    await asyncio.to_thread(kube.create, thing("there"), "default")
    watch = Watch(THINGS, by_key, namespace=namespace)
    async with LiveProcess(control_plane.kubeconfig, watch) as live:
        await live.ready()
        await live.until(lambda: live.seen, "a pass")
        assert {it.namespace for it in live.seen} == {namespace}
    await asyncio.to_thread(kube.delete, "things", "there", "default")


async def test_watching_leaves_objects_and_the_api_server_alone(
    control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    made = await asyncio.to_thread(kube.create, thing("a"), namespace)
    before = control_plane.audit_position()
    async with LiveProcess(control_plane.kubeconfig, Watch(THINGS, by_key)) as live:
        await live.ready()
        await live.until(lambda: live.seen, "a pass")
    assert await asyncio.to_thread(kube.get, "things", "a", namespace) == made
    writes = [it for it in control_plane.audit_writes(before) if "live-test" in it.user_agent]
    assert writes == []


async def test_own_writes_are_read_at_once_and_cause_no_further_pass(
    control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    key = Key(namespace, "a")
    after_write: list[object] = []

    async def write(live: LiveProcess, key: Key, obj: Obj | None) -> Result | None:
        context = live.process.context
        if obj is not None and "status" not in obj:
            body = {
                "metadata": {"namespace": key.namespace, "name": key.name},
                "status": {"phase": "Seen"},
            }
            await context.api.apply(THINGS, body, manager="test", subresource="status")
            cached = context.cache.get(THINGS, key)
            after_write.append((cached or {}).get("status"))
        return None

    async with LiveProcess(
        control_plane.kubeconfig, Watch(THINGS, by_key, namespace=namespace), body=write
    ) as live:
        await live.ready()
        await asyncio.to_thread(kube.create, thing("a"), namespace)
        await live.until(lambda: after_write, "the write")
        marker = {"metadata": {"annotations": {"x": "y"}}}
        await asyncio.to_thread(kube.patch, "things", "a", marker, namespace)
        await live.until(lambda: len(live.passes) > 1, "the pass that the marker causes")
        assert after_write == [{"phase": "Seen"}]
        assert live.passes == [key, key], "one for the creation, one for the marker, no echo"


async def test_the_api_server_may_go_away_and_come_back(
    control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    kept, gone = Key(namespace, "kept"), Key(namespace, "gone")
    for key in (kept, gone):
        await asyncio.to_thread(kube.create, thing(key.name), namespace)
    watch = Watch(THINGS, by_key, namespace=namespace)
    async with LiveProcess(control_plane.kubeconfig, watch) as live:
        await live.ready()
        try:
            await asyncio.to_thread(control_plane.stop_apiserver)
            await live.until(lambda: live.process.health.ready()["synced"], "unreadiness")
        finally:
            await asyncio.to_thread(control_plane.start_apiserver)
        await asyncio.to_thread(kube.delete, "things", "gone", namespace)
        await asyncio.to_thread(kube.create, thing("new"), namespace)
        await live.ready()
        await live.until(lambda: Key(namespace, "new") in live.seen, "an object made after")
        await live.until(lambda: live.seen[gone] is None, "a deletion after")
        assert live.process.cache.get(THINGS, kept) is not None
    assert live.code == 0


async def test_a_deletion_that_no_watch_tells_is_noticed(
    control_plane: ControlPlane, kube: Kube, namespace: str, gap: Gap, tmp_path: Path
) -> None:
    """The API server forgets what happened meanwhile (410), and lists show no deletions."""
    kept, gone = Key(namespace, "kept"), Key(namespace, "gone")
    for key in (kept, gone):
        await asyncio.to_thread(kube.create, thing(key.name), namespace)
    kubeconfig = gap.kubeconfig(control_plane.kubeconfig, tmp_path / "gap.yaml")
    watch = Watch(THINGS, by_key, namespace=namespace)
    async with LiveProcess(kubeconfig, watch) as live:
        await live.ready()
        await gap.close()
        await asyncio.to_thread(kube.delete, "things", "gone", namespace)
        # A fresh API server knows changes only from its own start on.
        await asyncio.to_thread(control_plane.stop_apiserver)
        await asyncio.to_thread(control_plane.start_apiserver)
        await gap.open()
        await live.until(lambda: live.seen.get(gone) is None, "the deletion", timeout=40.0)
        assert live.process.cache.get(THINGS, kept) is not None
        lists = live.process.metrics.registry.get_sample_value(
            "banlieue_watch_events_total", {"kind": f"things.{things.GROUP}", "type": "LISTED"}
        )
        assert lists == 3, "two objects at the start, one when listed again"


async def test_a_watch_of_a_kind_that_comes_later_can_be_added_while_running(
    control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    later = Resource(things.GROUP, "v1", "Later", "laters")
    key = Key(namespace, "a")
    async with LiveProcess(
        control_plane.kubeconfig, Watch(THINGS, by_key, namespace=namespace)
    ) as live:
        await live.ready()
        live.process.add_watch(CONTROLLER, Watch(later, by_key, optional=True))
        live.process.add_watch(CONTROLLER, Watch(later, by_key, optional=True))
        await live.ready()
        await asyncio.to_thread(kube.apply_crds, [things.definition(later)])
        await asyncio.to_thread(kube.create, thing("a", resource=later), namespace)
        await live.until(lambda: key in live.passes, "the new kind")
        await asyncio.to_thread(kube.delete, "crd", f"laters.{things.GROUP}")
        await live.until(lambda: live.process.cache.get(later, key) is None, "the end of the kind")
        await live.ready()
        await asyncio.to_thread(kube.create, thing("b"), namespace)
        await live.until(lambda: Key(namespace, "b") in live.passes, "the kind that stayed")
    assert live.code == 0


async def test_a_missing_kind_that_is_required_shows_in_readiness(
    control_plane: ControlPlane,
) -> None:
    never = Resource(things.GROUP, "v1", "Never", "nevers")
    async with LiveProcess(control_plane.kubeconfig, Watch(never, by_key)) as live:
        await live.until(lambda: "nevers" in live.process.health.ready()["kinds"], "the report")
        assert live.passes == []


async def test_a_token_that_is_refused_is_read_again(
    control_plane: ControlPlane, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    def make_account() -> str:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}}
        kube.create(account, namespace)
        issued = control_plane.kubeconfig_for_service_account(namespace, "sa")
        return str(yaml.safe_load(issued.read_text())["users"][0]["user"]["token"])

    token_file = tmp_path / "token"
    token_file.write_text(await asyncio.to_thread(make_account))
    document = yaml.safe_load(control_plane.kubeconfig.read_text())
    document["users"][0]["user"] = {"tokenFile": str(token_file)}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document))
    subject = {"kind": "ServiceAccount", "name": "sa", "namespace": namespace}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": namespace},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [subject],
    }
    await asyncio.to_thread(kube.create, binding)
    async with LiveProcess(kubeconfig, Watch(THINGS, by_key, namespace=namespace)) as live:
        await live.ready()
        # The account that comes back under the name is another one: old tokens are refused.
        await asyncio.to_thread(kube.delete, "serviceaccounts", "sa", namespace)
        token = await asyncio.to_thread(make_account)
        await asyncio.to_thread(control_plane.stop_apiserver)
        await asyncio.to_thread(control_plane.start_apiserver)
        await live.until(lambda: "401" in live.process.health.ready()["synced"], "the refusal")
        token_file.write_text(token)
        await live.ready()
        await asyncio.to_thread(kube.create, thing("a"), namespace)
        await live.until(lambda: Key(namespace, "a") in live.seen, "an object after the change")
        await live.process.client.get(THINGS, Key(namespace, "a"))
    assert live.code == 0
    await asyncio.to_thread(kube.delete, "clusterrolebindings", namespace)
