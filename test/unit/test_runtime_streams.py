import asyncio
import copy
import random
from collections.abc import AsyncIterator

import pytest

from banlieue.api.meta import Resource
from banlieue.sdk import kube
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change, Request
from banlieue.sdk.runtime.cache import Cache, EventType, Identity
from banlieue.sdk.runtime.hub import Hub
from banlieue.sdk.runtime.metrics import Metrics
from banlieue.sdk.runtime.sources import KindGoneError, Sink, Stream
from banlieue.sdk.runtime.streams import Intervals, StreamKeeper, StreamState, StreamTools
from test.kit.stepped_clock import SteppedClock

THINGS = Resource("test.banlieue.io", "v1", "Thing", "things")
STREAM = Stream(THINGS)


class Server:
    """What exists, how it is listed, and the watch that a source keeps on it."""

    def __init__(self) -> None:
        self.objects: dict[Key, Obj] = {}
        self.served = True
        self.down = False
        self.version = 0
        self.sinks: list[Sink] = []
        self.fail: asyncio.Future[None] | None = None
        self.lists = 0
        self.gets = 0

    def put(self, name: str, *, tell: bool = True, uid: str = "") -> None:
        self.version += 1
        key = Key("ns", name)
        known = self.objects.get(key)
        uid = uid or (known["metadata"]["uid"] if known else f"uid-{self.version}")
        meta = {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": str(self.version)}
        self.objects[key] = {"kind": "Thing", "metadata": meta, "spec": {"at": self.version}}
        if tell:
            self.tell("MODIFIED" if known else "ADDED", self.objects[key])

    def drop(self, name: str, *, tell: bool = True) -> None:
        obj = self.objects.pop(Key("ns", name))
        if tell:
            self.tell("DELETED", obj)

    def tell(self, kind: EventType, obj: Obj) -> None:
        for sink in self.sinks:
            sink.event(kind, copy.deepcopy(obj))

    def list_again(self) -> None:
        """As after an expired version: what is gone is not told."""
        for sink in self.sinks:
            sink.listed()
            for obj in self.objects.values():
                sink.event(None, copy.deepcopy(obj))
            sink.watching()

    # What the keeper asks of its source and client.

    async def watch(self, stream: Stream, sink: Sink) -> None:
        assert stream == STREAM
        self.fail = asyncio.get_running_loop().create_future()
        for obj in self.objects.values():
            sink.event(None, copy.deepcopy(obj))
        sink.watching()
        self.sinks.append(sink)
        try:
            await self.fail
        finally:
            self.sinks.remove(sink)

    async def serves(self, _: Resource) -> bool:
        if self.down:
            raise kube.Unavailable(0, "connection refused")
        return self.served

    async def list(
        self,
        _: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[Obj]:
        self.gets += 1
        assert not label_selector
        name = field_selector.removeprefix("metadata.name=")
        found = self.objects.get(Key(namespace, name))
        return [copy.deepcopy(found)] if found else []

    async def identities(
        self,
        _: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> dict[Key, Identity]:
        assert (namespace, label_selector, field_selector) == ("", "", "")
        if self.down:
            raise kube.Unavailable(0, "connection refused")
        self.lists += 1
        return {key: Identity.of(obj) for key, obj in self.objects.items()}


class Rig:
    def __init__(self, *, optional: bool = False, stream: Stream = STREAM) -> None:
        self.server = Server()
        self.clock = SteppedClock()
        self.cache = Cache()
        self.metrics = Metrics()
        self.hub = Hub(self.cache, self.metrics)
        self.changes: list[tuple[str, bool]] = []
        self.hub.subscribe(STREAM, "c", self._note, lambda _: None)
        tools = StreamTools(
            source=self.server,
            client=self.server,
            hub=self.hub,
            clock=self.clock,
            rng=random.Random(1),
            metrics=self.metrics,
            intervals=Intervals(discovery=20.0, sweep=900.0),
        )
        self.keeper = StreamKeeper(stream, tools, optional=optional)
        self.task: asyncio.Task[None] | None = None

    def _note(self, change: Change) -> list[Request]:
        self.changes.append((change.key.name, change.new is not None))
        return []

    async def start(self, seconds: float = 2.0) -> None:
        self.task = asyncio.ensure_future(self.keeper.run())
        await self.clock.advance(seconds)

    def cached(self) -> dict[str, int]:
        return {it["metadata"]["name"]: it["spec"]["at"] for it in self.cache.list(THINGS)}

    async def end(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    yield made
    await made.end()


async def test_is_synced_when_everything_listed_has_arrived(rig: Rig) -> None:
    rig.server.put("a")
    settled: list[bool] = []
    rig.keeper.on_settled(lambda: settled.append(True))
    assert not rig.keeper.synced
    await rig.start()
    assert rig.keeper.synced
    assert settled == [True]
    assert rig.cached() == {"a": 1}
    assert rig.keeper.state is StreamState.WATCHING


async def test_a_stream_of_many_is_synced_by_its_list_and_swept_all_the_same_later() -> None:
    rig = Rig(stream=Stream(THINGS, many=True))
    rig.server.put("a")
    await rig.start()
    assert rig.keeper.synced
    assert rig.cached() == {"a": 1}
    assert rig.server.lists == 0
    rig.server.drop("a", tell=False)
    await rig.clock.advance(1200.0)
    assert rig.cached() == {}
    await rig.end()


async def test_is_not_synced_while_something_listed_is_missing(rig: Rig) -> None:
    await rig.start(0.0)
    rig.server.put("late", tell=False)
    await rig.clock.advance(3.0)
    assert not rig.keeper.synced
    rig.server.tell("ADDED", rig.server.objects[Key("ns", "late")])
    await rig.clock.advance(6.0)
    assert rig.keeper.synced


async def test_a_deletion_lost_by_listing_again_is_noticed_soon(rig: Rig) -> None:
    rig.server.put("a")
    rig.server.put("b")
    await rig.start()
    rig.server.drop("a", tell=False)
    rig.server.list_again()
    await rig.clock.advance(5.0)
    assert rig.cached() == {"b": 2}
    assert ("a", False) in rig.changes


async def test_that_a_new_list_is_empty_is_noticed_soon(rig: Rig) -> None:
    rig.server.put("a")
    await rig.start()
    rig.server.drop("a", tell=False)
    rig.server.list_again()
    await rig.clock.advance(5.0)
    assert rig.cached() == {}
    assert ("a", False) in rig.changes


async def test_a_watch_that_is_opened_anew_costs_no_list(rig: Rig) -> None:
    rig.server.put("a")
    await rig.start()
    before = rig.server.lists
    for sink in rig.server.sinks:
        sink.watching()
    await rig.clock.advance(60.0)
    assert rig.server.lists == before


async def test_a_lost_deletion_is_noticed_by_the_regular_sweep(rig: Rig) -> None:
    rig.server.put("a")
    await rig.start()
    rig.server.drop("a", tell=False)
    await rig.clock.advance(300.0)
    assert rig.cached() == {"a": 1}
    await rig.clock.advance(900.0)
    assert rig.cached() == {}


async def test_a_deletion_and_creation_under_the_same_name_both_lost(rig: Rig) -> None:
    rig.server.put("a")
    await rig.start()
    rig.server.drop("a", tell=False)
    rig.server.put("a", tell=False)
    await rig.clock.advance(1200.0)
    assert rig.cached() == {"a": 2}


async def test_a_server_restored_from_a_backup_is_believed(rig: Rig) -> None:
    rig.server.put("a")
    for _ in range(10):
        rig.server.put("a")
    await rig.start()
    assert rig.cached() == {"a": 11}
    uid = rig.server.objects[Key("ns", "a")]["metadata"]["uid"]
    rig.server.version = 4
    rig.server.put("a", tell=False, uid=uid)
    await rig.clock.advance(1200.0)
    assert rig.cached() == {"a": 5}


async def test_what_changes_all_the_time_is_not_read_live(rig: Rig) -> None:
    rig.server.put("a")
    await rig.start()
    for _ in range(200):
        rig.server.put("a", tell=False)
        await rig.clock.advance(10.0)
        rig.server.tell("MODIFIED", rig.server.objects[Key("ns", "a")])
    assert rig.server.gets == 0


async def test_steady_state_costs_one_list_per_interval(rig: Rig) -> None:
    rig.server.put("a")
    await rig.start()
    before = rig.server.lists
    await rig.clock.advance(3600.0)
    assert 3 <= rig.server.lists - before <= 5
    assert rig.server.gets == 0


async def test_a_kind_that_comes_later_is_noticed(rig: Rig) -> None:
    rig.server.served = False
    rig.server.put("a")
    await rig.start()
    assert rig.keeper.state is StreamState.ABSENT
    assert not rig.keeper.synced
    rig.server.served = True
    await rig.clock.advance(30.0)
    assert rig.keeper.synced
    assert rig.cached() == {"a": 1}


async def test_an_absent_optional_kind_holds_nothing_up_until_it_comes() -> None:
    rig = Rig(optional=True)
    rig.server.served = False
    await rig.start()
    assert rig.keeper.synced
    rig.server.served = True
    rig.server.put("a")
    await rig.clock.advance(30.0)
    assert rig.keeper.synced
    assert rig.cached() == {"a": 1}
    await rig.end()


class Refusing:
    """A source that is told "no rights" until they come."""

    def __init__(self, server: Server, clock: SteppedClock) -> None:
        self.server, self.clock, self.rights = server, clock, False

    async def watch(self, stream: Stream, sink: Sink) -> None:
        while not self.rights:
            sink.trouble("HTTP 403")
            sink.refused()
            await self.clock.sleep(2.0)
        sink.listed()
        await self.server.watch(stream, sink)


def refusing(*, optional: bool) -> tuple[Rig, Refusing]:
    rig = Rig(optional=optional)
    source = Refusing(rig.server, rig.clock)
    rig.keeper._source = source
    return rig, source


async def test_an_optional_kind_without_rights_holds_nothing_up_and_is_read_when_they_come() -> (
    None
):
    rig, source = refusing(optional=True)
    settled: list[bool] = []
    rig.keeper.on_settled(lambda: settled.append(rig.keeper.synced))
    rig.server.put("a")
    await rig.start(8.0)
    # An API server that just started refuses everybody for a moment.
    assert not rig.keeper.unreadable
    await rig.clock.advance(6.0)
    assert rig.keeper.unreadable
    assert settled == [False]
    # Nobody may take its empty cache for the truth.
    assert not rig.keeper.synced
    source.rights = True
    await rig.clock.advance(30.0)
    assert rig.keeper.synced
    assert not rig.keeper.unreadable
    assert rig.cached() == {"a": 1}
    assert settled == [False, True]
    await rig.end()


async def test_a_kind_that_must_be_read_is_waited_for_without_end() -> None:
    rig, _ = refusing(optional=False)
    await rig.start(600.0)
    assert not rig.keeper.unreadable
    assert not rig.keeper.synced
    await rig.end()


async def test_a_kind_that_goes_takes_its_objects_along_but_not_in_haste(rig: Rig) -> None:
    rig.server.put("a")
    await rig.start()
    rig.server.served = False
    assert rig.server.fail is not None
    rig.server.fail.set_exception(KindGoneError("things"))
    await rig.clock.advance(10.0)
    assert rig.cached() == {"a": 1}
    await rig.clock.advance(90.0)
    assert rig.cached() == {}
    assert ("a", False) in rig.changes
    assert not rig.keeper.synced


async def test_a_kind_that_was_gone_for_a_moment_is_watched_again(rig: Rig) -> None:
    rig.server.put("a")
    await rig.start()
    assert rig.server.fail is not None
    rig.server.fail.set_exception(KindGoneError("things"))
    await rig.clock.advance(5.0)
    rig.server.put("b")
    assert rig.cached() == {"a": 1, "b": 2}


async def test_any_other_end_of_the_source_is_raised(rig: Rig) -> None:
    await rig.start()
    assert rig.task is not None
    assert rig.server.fail is not None
    rig.server.fail.set_exception(RuntimeError("broken"))
    await rig.clock.advance(1.0)
    with pytest.raises(RuntimeError, match="broken"):
        rig.task.result()
    rig.task = None


async def test_an_api_server_that_is_away_at_start_is_waited_for(rig: Rig) -> None:
    rig.server.put("a")
    rig.server.down = True
    await rig.start(60.0)
    assert not rig.keeper.synced
    assert rig.keeper.last_trouble
    rig.server.down = False
    await rig.clock.advance(10.0)
    assert rig.keeper.synced
    assert not rig.keeper.last_trouble


async def test_a_watch_that_never_opens_is_started_anew(rig: Rig) -> None:
    opened = 0

    async def dead(_: Stream, __: Sink) -> None:
        nonlocal opened
        opened += 1
        await asyncio.Event().wait()

    rig.server.watch = dead  # type: ignore[assignment,method-assign]  # as if it had missed the kind
    await rig.start(130.0)
    assert opened == 2 + 1
