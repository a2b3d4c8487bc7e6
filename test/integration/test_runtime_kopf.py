"""kopf and our own reflector as watch engines, against an API server that misbehaves on demand.

These are the promises we rely on and the traps we work around; an upgrade of kopf has to pass them.
"""

import asyncio
import json
import random
import signal
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.runtime.cache import EventType
from banlieue.sdk.runtime.connection import Connection
from banlieue.sdk.runtime.kopf_source import KopfSource
from banlieue.sdk.runtime.metrics import Metrics
from banlieue.sdk.runtime.reflector import Reflector
from banlieue.sdk.runtime.sources import KindGoneError, Stream
from test.kit.ports import LOOPBACK
from test.kit.things import GROUP, THINGS
from test.kit.waiting import wait_until_async

pytestmark = pytest.mark.slow

EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired"}
ALL = Stream(THINGS)

Engine = type[KopfSource] | type[Reflector]
Fault = Callable[[web.Request], Awaitable[web.StreamResponse]]


def status_answer(code: int, **headers: str) -> Fault:
    async def answer(_: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "status": "Failure", "code": code, "message": "as the test says"}
        return web.json_response(body, status=code, headers=headers)

    return answer


async def hang(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


class FakeApi:
    """Serves one kind: discovery, pages, watches. Faults are used up one per list or watch."""

    def __init__(self) -> None:
        self.objects: dict[str, Obj] = {}
        self.version = 100
        self.log: list[tuple[int, str, Obj]] = []
        self.watchers: list[asyncio.Queue[tuple[str, Obj]]] = []
        self.list_faults: deque[Fault] = deque()
        self.watch_faults: deque[Fault] = deque()
        self.queries: list[dict[str, str]] = []
        self.tokens: set[str] = {"first"}
        self.page = 500
        self.url = ""

    def put(self, name: str) -> None:
        self.version += 1
        kind = "MODIFIED" if name in self.objects else "ADDED"
        meta = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(self.version)}
        self.objects[name] = {
            "apiVersion": THINGS.api_version,
            "kind": "Thing",
            "metadata": meta,
            "spec": {"at": self.version},
        }
        self._tell(kind, self.objects[name])

    def drop(self, name: str) -> None:
        self.version += 1
        self._tell("DELETED", self.objects.pop(name))

    def fail_watches(self, error: Obj) -> None:
        """An ERROR event in all streams."""
        for waiting in self.watchers:
            waiting.put_nowait(("ERROR", error))

    def _tell(self, kind: str, obj: Obj) -> None:
        self.log.append((self.version, kind, obj))
        for waiting in self.watchers:
            waiting.put_nowait((kind, obj))

    async def start(self) -> web.AppRunner:
        app = web.Application(middlewares=[self._authenticate])
        groups = [
            {
                "name": name,
                "versions": [{"groupVersion": f"{name}/v1", "version": "v1"}],
                "preferredVersion": {"groupVersion": f"{name}/v1", "version": "v1"},
            }
            for name in (GROUP, "apiextensions.k8s.io")
        ]
        answers: dict[str, Obj] = {
            "/api": {"versions": ["v1"]},
            "/apis": {"groups": groups},
            "/api/v1": {"resources": [_kind("namespaces", "Namespace")]},
            "/apis/apiextensions.k8s.io/v1": {
                "resources": [_kind("customresourcedefinitions", "CustomResourceDefinition")]
            },
            f"/apis/{GROUP}/v1": {"resources": [_kind("things", "Thing", namespaced=True)]},
        }
        for path, body in answers.items():
            app.router.add_get(path, _always(body))
        app.router.add_get(f"/apis/{GROUP}/v1/things", self._things)
        app.router.add_get(f"/apis/{GROUP}/v1/namespaces/{{ns}}/things", self._things)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, 0).start()
        self.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}"
        return runner

    @web.middleware
    async def _authenticate(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").partition(" ")[2]
        if given not in self.tokens:
            return await status_answer(401)(request)
        return await handler(request)

    async def _things(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        watching = request.query.get("watch") == "true"
        faults = self.watch_faults if watching else self.list_faults
        if faults:
            return await faults.popleft()(request)
        return await (self._watch(request) if watching else self._list(request))

    async def _list(self, request: web.Request) -> web.StreamResponse:
        start = int(request.query.get("continue", "0"))
        items = list(self.objects.values())
        meta = {"resourceVersion": str(self.version)}
        if start + self.page < len(items):
            meta["continue"] = str(start + self.page)
        return web.json_response(
            {"kind": "ThingList", "metadata": meta, "items": items[start : start + self.page]}
        )

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        waiting: asyncio.Queue[tuple[str, Obj]] = asyncio.Queue()
        since = int(request.query["resourceVersion"])
        for version, kind, obj in self.log:
            if version > since:
                waiting.put_nowait((kind, obj))
        self.watchers.append(waiting)
        try:
            while True:
                kind, obj = await waiting.get()
                line = json.dumps({"type": kind, "object": obj})
                await answer.write(f"{line}\n".encode())
        finally:
            self.watchers.remove(waiting)


def _kind(plural: str, kind: str, *, namespaced: bool = False) -> Obj:
    verbs = ["get", "list", "watch", "patch"]
    return {
        "name": plural,
        "singularName": kind.lower(),
        "kind": kind,
        "namespaced": namespaced,
        "verbs": verbs,
    }


def _always(body: Obj) -> Fault:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(body)

    return answer


class Notes:
    """A sink that keeps what it was told."""

    def __init__(self) -> None:
        self.events: list[tuple[EventType, str]] = []
        self.opened = self.lists = self.refusals = 0
        self.troubles: list[str] = []

    def event(self, kind: EventType, obj: Obj) -> None:
        self.events.append((kind, Key.of(obj).name))

    def listed(self) -> None:
        self.lists += 1

    def watching(self) -> None:
        self.opened += 1

    def trouble(self, what: str) -> None:
        self.troubles.append(what)

    def refused(self) -> None:
        self.refusals += 1


class Rig:
    def __init__(self, api: FakeApi, directory: Path, engine: Engine) -> None:
        self.api = api
        self.engine = engine
        self.notes = Notes()
        self.metrics = Metrics()
        self._directory = directory
        self._tasks: list[asyncio.Task[None]] = []
        self.token_file = directory / "token"
        self.token_file.write_text("first")

    async def start(self, stream: Stream = ALL, notes: Notes | None = None) -> None:
        kubeconfig = self._directory / "kubeconfig"
        named = {"name": "x"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "contexts": [{**named, "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{**named, "cluster": {"server": self.api.url}}],
            "users": [{**named, "user": {"tokenFile": str(self.token_file)}}],
        }
        kubeconfig.write_text(yaml.safe_dump(document))
        connection = Connection(str(kubeconfig))
        await connection.load()
        source = self.engine(
            connection, user_agent="engine-test", metrics=self.metrics, rng=random.Random(1)
        )
        task = asyncio.create_task(source.watch(stream, notes or self.notes))
        self._tasks.append(task)

    async def until(self, predicate: Callable[[], Any], what: str) -> None:
        await wait_until_async(lambda: bool(predicate()), 20.0, what)

    async def heard(self, *events: tuple[EventType, str]) -> None:
        await self.until(lambda: set(events) <= set(self.notes.events), f"{events}")

    async def raised(self) -> BaseException | None:
        done, _ = await asyncio.wait(self._tasks[:1], timeout=20.0)
        assert done, "the source goes on"
        return self._tasks[0].exception()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def running(self) -> bool:
        return not self._tasks[0].done()


@pytest.fixture(params=[KopfSource, Reflector])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    api = FakeApi()
    runner = await api.start()
    made = Rig(api, tmp_path, request.param)
    yield made
    await made.stop()
    await runner.cleanup()


async def test_lists_by_pages_then_watches(rig: Rig) -> None:
    rig.api.page = 2
    for name in "abcde":
        rig.api.put(name)
    await rig.start()
    await rig.heard(*((None, name) for name in "abcde"))
    rig.api.put("a")
    rig.api.drop("b")
    rig.api.put("f")
    await rig.heard(("MODIFIED", "a"), ("DELETED", "b"), ("ADDED", "f"))
    assert rig.notes.opened == 1
    assert rig.notes.lists, "that a list was answered is told, even if it was empty"
    assert rig.notes.troubles == []


async def test_selectors_are_evaluated_by_the_api_server(rig: Rig) -> None:
    await rig.start(Stream(THINGS, "spec.owner=me", "a=b", "ns"))
    other = Notes()
    await rig.start(Stream(THINGS, field_selector="spec.owner=you"), other)
    await rig.until(lambda: rig.notes.opened and other.opened, "both watches")
    asked = {(it.get("fieldSelector"), it.get("labelSelector")) for it in rig.api.queries}
    assert asked == {("spec.owner=me", "a=b"), ("spec.owner=you", None)}


@pytest.mark.parametrize("code", [500, 503, 429, 403])
async def test_refusals_of_lists_and_watches_are_lived_through(rig: Rig, code: int) -> None:
    rig.api.put("a")
    rig.api.list_faults.extend([status_answer(code)] * 4)
    rig.api.watch_faults.extend([status_answer(code)] * 3)
    await rig.start()
    await rig.heard((None, "a"))
    rig.api.put("b")
    await rig.heard(("ADDED", "b"))
    assert any(str(code) in it for it in rig.notes.troubles)
    assert bool(rig.notes.refusals) == (code == 403)
    assert rig.running


async def test_an_expired_page_begins_the_list_anew(rig: Rig) -> None:
    rig.api.page = 2
    for name in "abcde":
        rig.api.put(name)
    fine = rig.api._list
    rig.api.list_faults.extend([fine, status_answer(410)])
    await rig.start()
    await rig.heard(*((None, name) for name in "abcde"))
    await rig.until(lambda: rig.notes.opened, "the watch")
    assert rig.running


async def test_an_expired_version_lists_again(rig: Rig) -> None:
    rig.api.put("a")
    await rig.start()
    await rig.until(lambda: rig.notes.opened, "the watch")
    rig.notes.events.clear()
    rig.api.fail_watches(EXPIRED)
    await rig.heard((None, "a"))
    rig.api.put("b")
    await rig.heard(("ADDED", "b"))


async def test_a_connection_that_breaks_off_is_resumed_without_listing(rig: Rig) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        assert request.transport is not None
        request.transport.abort()
        return answer

    rig.api.put("a")
    rig.api.watch_faults.extend([cut] * 3)
    await rig.start()
    await rig.heard((None, "a"))
    rig.api.put("b")
    await rig.heard(("ADDED", "b"))
    assert sum("watch" not in it for it in rig.api.queries) == 1


async def test_refused_credentials_are_read_again_however_long_it_takes(rig: Rig) -> None:
    await rig.start()
    await rig.until(lambda: rig.notes.opened, "the watch")
    rig.api.tokens = {"second"}
    rig.api.fail_watches(EXPIRED)
    await rig.until(lambda: sum("401" in it for it in rig.notes.troubles) > 3, "refusals")
    rig.token_file.write_text("second")
    rig.api.put("a")
    await rig.until(lambda: "a" in {name for _, name in rig.notes.events}, "the object")
    assert rig.running


async def test_a_kind_that_is_gone_is_told_as_such(rig: Rig) -> None:
    rig.api.list_faults.append(status_answer(404))
    await rig.start()
    assert isinstance(await rig.raised(), KindGoneError)


async def test_any_other_error_event_ends_kopf_and_makes_the_reflector_list_again(
    rig: Rig,
) -> None:
    await rig.start()
    await rig.until(lambda: rig.notes.opened, "the watch")
    rig.api.fail_watches({"kind": "Status", "code": 500, "reason": "InternalError"})
    if rig.engine is Reflector:
        rig.api.put("a")
        await rig.until(lambda: "a" in {name for _, name in rig.notes.events}, "the object")
        assert any("InternalError" in it for it in rig.notes.troubles)
        return
    error = await rig.raised()
    assert error is not None
    assert not isinstance(error, KindGoneError)


@pytest.mark.parametrize("rig", [Reflector], indirect=True)
async def test_a_version_of_a_server_before_its_restore_is_given_up(rig: Rig) -> None:
    await rig.start()
    await rig.until(lambda: rig.notes.opened, "the watch")
    rig.api.put("a")
    await rig.heard(("ADDED", "a"))
    rig.notes.events.clear()
    rig.api.watch_faults.extend([status_answer(504)] * 5)
    rig.api.fail_watches({"kind": "Status", "code": 500, "reason": "InternalError"})
    await rig.heard((None, "a"))
    assert sum("watch" not in it for it in rig.api.queries) > 1


@pytest.mark.parametrize("where", ["list", "watch"])
async def test_stopping_is_prompt_even_while_the_server_hangs(rig: Rig, where: str) -> None:
    (rig.api.list_faults if where == "list" else rig.api.watch_faults).append(hang)
    await rig.start()
    await rig.until(
        lambda: [it for it in rig.api.queries if ("watch" in it) == (where == "watch")], where
    )
    async with asyncio.timeout(5.0):
        await rig.stop()


async def test_neither_signal_handlers_nor_foreign_tasks_are_touched(rig: Rig) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    await rig.start()
    await rig.until(lambda: rig.notes.opened, "the watch")
    bystander = asyncio.create_task(asyncio.Event().wait())
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    await rig.stop()
    assert not bystander.done()
    bystander.cancel()


async def test_events_of_one_object_keep_their_order(rig: Rig) -> None:
    await rig.start()
    await rig.until(lambda: rig.notes.opened, "the watch")
    for _ in range(300):
        rig.api.put("a")
        rig.api.drop("a")
    await rig.until(lambda: len(rig.notes.events) == 600, "all events")
    assert [kind for kind, _ in rig.notes.events] == ["ADDED", "DELETED"] * 300


async def test_nothing_is_written(rig: Rig) -> None:
    """The fake has no route for it: a write would end in an error."""
    rig.api.put("a")
    await rig.start()
    await rig.heard((None, "a"))
    sample = rig.metrics.registry.get_sample_value
    assert sample("rest_client_requests_total", {"code": "200", "method": "GET"})
    assert not [
        it
        for metric in rig.metrics.registry.collect()
        for it in metric.samples
        if it.name == "rest_client_requests_total" and it.labels["method"] != "GET"
    ]
