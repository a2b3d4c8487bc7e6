import copy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from banlieue.api.meta import Resource
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.runtime.cache import Cache, EventType, Identity, Observation, Store
from banlieue.sdk.runtime.sources import Stream

THINGS = Resource("test.banlieue.io", "v1", "Thing", "things")
STREAM = Stream(THINGS)
KEY = Key("ns", "a")
WRITER = ("controller", KEY)
OTHER = ("other", KEY)


def thing(version: int, uid: str = "u1", **metadata: object) -> Obj:
    meta = {"namespace": "ns", "name": "a", "uid": uid, "resourceVersion": str(version)}
    return {"kind": "Thing", "metadata": {**meta, **metadata}, "spec": {"at": version}}


def store_with(version: int = 10, stream: Stream = STREAM) -> Store:
    store = Store(stream)
    assert store.observe("ADDED", thing(version)) is not None
    return store


def seen(observation: Observation | None) -> tuple[int | None, int | None]:
    assert observation is not None
    change = observation.change
    old, new = (it["spec"]["at"] if it else None for it in (change.old, change.new))
    return old, new


def version_of(store: Store) -> int | None:
    obj = store.get(KEY)
    return obj["spec"]["at"] if obj else None


class TestEvents:
    def test_a_change_shows_both_sides(self) -> None:
        store = store_with(10)
        assert seen(store.observe("MODIFIED", thing(11))) == (10, 11)
        assert seen(store.observe("DELETED", thing(12))) == (11, None)
        assert store.get(KEY) is None

    def test_an_older_event_is_dropped(self) -> None:
        store = store_with(10)
        assert store.observe("MODIFIED", thing(9)) is None
        assert version_of(store) == 10
        assert store.stale == 1

    def test_a_doubled_event_says_nothing(self) -> None:
        store = store_with(10)
        assert store.observe("ADDED", thing(10)) is None

    def test_versions_that_are_no_numbers_are_taken_as_they_come(self) -> None:
        store = Store(STREAM)
        first = thing(1)
        first["metadata"]["resourceVersion"] = "x"
        second = thing(2)
        second["metadata"]["resourceVersion"] = "a"
        store.observe("ADDED", first)
        assert seen(store.observe("MODIFIED", second)) == (1, 2)

    def test_managed_fields_are_not_kept(self) -> None:
        store = Store(STREAM)
        event = thing(1, managedFields=[{"manager": "m"}])
        store.observe("ADDED", event)
        cached = store.get(KEY)
        assert cached is not None
        assert "managedFields" not in cached["metadata"]
        assert "managedFields" in event["metadata"], "the event itself is left alone"

    def test_readers_get_copies_of_their_own(self) -> None:
        store = store_with(10)
        first = store.get(KEY)
        assert first is not None
        first["spec"]["at"] = "spoiled"
        assert version_of(store) == 10


class TestSuccessors:
    def test_a_recreated_object_replaces_the_old(self) -> None:
        store = store_with(10)
        assert seen(store.observe("ADDED", thing(12, uid="u2"))) == (10, 12)

    def test_the_late_deletion_of_the_former_leaves_the_successor(self) -> None:
        store = store_with(10)
        store.observe("ADDED", thing(12, uid="u2"))
        observation = store.observe("DELETED", thing(11))
        assert seen(observation) == (11, 12)
        assert version_of(store) == 12

    def test_a_late_event_of_the_former_is_dropped(self) -> None:
        store = store_with(10)
        store.observe("ADDED", thing(12, uid="u2"))
        assert store.observe("MODIFIED", thing(11)) is None
        assert version_of(store) == 12


class TestLists:
    def test_a_list_replaces_whatever_the_versions(self) -> None:
        store = store_with(1000)
        observation = store.observe(None, thing(20))
        assert seen(observation) == (1000, 20)
        assert observation is not None
        assert observation.change.replayed
        assert seen(store.observe("MODIFIED", thing(21))) == (20, 21)

    def test_a_list_read_before_our_write_does_not_take_it_back(self) -> None:
        store = store_with(10)
        store.record(thing(12), WRITER)
        assert store.observe(None, thing(11)) is None
        assert version_of(store) == 12

    def test_a_first_sight_is_no_replay(self) -> None:
        observation = Store(STREAM).observe(None, thing(1))
        assert observation is not None
        assert not observation.change.replayed


class TestOwnWrites:
    def test_are_read_at_once(self) -> None:
        store = store_with(10)
        store.record(thing(11), WRITER)
        assert version_of(store) == 11

    def test_their_events_are_echoes_that_show_what_watchers_knew(self) -> None:
        store = store_with(10)
        store.record(thing(11), WRITER)
        store.record(thing(12), WRITER)
        assert store.observe("MODIFIED", thing(11)) is None
        echo = store.observe("MODIFIED", thing(12))
        assert seen(echo) == (10, 12)
        assert echo is not None
        assert echo.echo_of == WRITER

    def test_an_echo_is_one_only_once(self) -> None:
        store = store_with(10)
        store.record(thing(11), WRITER)
        store.observe("MODIFIED", thing(11))
        later = store.observe("MODIFIED", thing(12))
        assert later is not None
        assert later.echo_of is None

    def test_two_writers_both_hear_of_each_other(self) -> None:
        store = store_with(10)
        store.record(thing(11), WRITER)
        store.record(thing(12), OTHER)
        store.observe("MODIFIED", thing(11))
        echo = store.observe("MODIFIED", thing(12))
        assert echo is not None
        assert echo.echo_of is None

    def test_a_foreign_write_between_ours_is_no_echo(self) -> None:
        store = store_with(10)
        store.record(thing(11), WRITER)
        store.record(thing(13), WRITER)
        for version in (11, 12):
            assert store.observe("MODIFIED", thing(version)) is None
        echo = store.observe("MODIFIED", thing(13))
        assert seen(echo) == (10, 13)
        assert echo is not None
        assert echo.echo_of is None

    def test_a_foreign_write_after_ours_is_a_change(self) -> None:
        store = store_with(10)
        store.record(thing(11), WRITER)
        change = store.observe("MODIFIED", thing(12))
        assert seen(change) == (10, 12)
        assert change is not None
        assert change.echo_of is None

    def test_a_write_without_effect_expects_no_event(self) -> None:
        store = store_with(10)
        store.record(thing(10), WRITER)
        later = store.observe("MODIFIED", thing(11))
        assert later is not None
        assert later.echo_of is None

    def test_an_answer_older_than_what_is_known_changes_nothing(self) -> None:
        store = store_with(12)
        store.record(thing(11), WRITER)
        assert version_of(store) == 12

    def test_a_create_is_read_at_once_and_echoes(self) -> None:
        store = Store(STREAM)
        store.record(thing(5), WRITER)
        assert version_of(store) == 5
        echo = store.observe("ADDED", thing(5))
        assert seen(echo) == (None, 5)
        assert echo is not None
        assert echo.echo_of == WRITER

    def test_a_create_behind_a_selector_waits_for_the_watch(self) -> None:
        store = Store(Stream(THINGS, field_selector="spec.x=1"))
        store.record(thing(5), WRITER)
        assert store.get(KEY) is None

    def test_a_create_in_another_namespace_is_not_the_streams(self) -> None:
        store = Store(Stream(THINGS, namespace="elsewhere"))
        store.record(thing(5), WRITER)
        assert store.get(KEY) is None

    def test_taking_the_last_finalizer_removes_the_object_at_once(self) -> None:
        store = store_with(10)
        store.record(thing(11), WRITER)
        store.record(thing(12, deletionTimestamp="2026-01-01T00:00:00Z"), WRITER)
        assert store.get(KEY) is None
        assert store.observe("MODIFIED", thing(11)) is None, "a late event brings no ghost back"
        assert store.get(KEY) is None
        assert seen(store.observe("DELETED", thing(12))) == (12, None)
        assert seen(store.observe("ADDED", thing(13, uid="u2"))) == (None, 13)

    def test_a_delete_that_waits_for_finalizers_keeps_the_object(self) -> None:
        store = store_with(10)
        deleting = thing(11, deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["f"])
        store.record(deleting, WRITER)
        assert version_of(store) == 11


class TestSweeping:
    def test_remove_takes_only_the_object_that_is_gone(self) -> None:
        store = store_with(10)
        assert store.remove(KEY, "u0") is None
        change = store.remove(KEY, "u1")
        assert change is not None
        assert (change.old, change.new) == (thing(10), None)
        assert store.remove(KEY, "u1") is None

    def test_replace_takes_a_live_read_whatever_is_stored(self) -> None:
        store = store_with(1000)
        change = store.replace(thing(7))
        assert (change.old, change.new) == (thing(1000), thing(7))
        assert store.identity(KEY) == Identity("u1", "7")


class TestCache:
    def test_reads_the_newest_of_overlapping_streams(self) -> None:
        cache = Cache()
        narrow = cache.open(Stream(THINGS, namespace="ns"))
        wide = cache.open(STREAM)
        wide.observe("ADDED", thing(10))
        narrow.observe("ADDED", thing(11))
        got = cache.get(THINGS, KEY)
        assert got is not None
        assert got["spec"]["at"] == 11
        assert [it["spec"]["at"] for it in cache.list(THINGS)] == [11]

    def test_lists_by_namespace(self) -> None:
        cache = Cache()
        cache.open(STREAM).observe("ADDED", thing(10))
        assert not list(cache.list(THINGS, namespace="other"))
        assert len(list(cache.list(THINGS, namespace="ns"))) == 1

    def test_a_list_may_be_changed_while_it_is_read(self) -> None:
        cache = Cache()
        store = cache.open(STREAM)
        store.observe("ADDED", thing(10))
        for _ in cache.list(THINGS):
            store.remove(KEY, "u1")
        assert not list(cache.list(THINGS))

    def test_is_synced_when_all_streams_of_all_kinds_are(self) -> None:
        cache, narrow = Cache(), Stream(THINGS, namespace="ns")
        assert not cache.synced(THINGS)
        cache.open(STREAM)
        cache.open(narrow)
        cache.set_synced(STREAM, True)
        assert not cache.synced(THINGS)
        cache.set_synced(narrow, True)
        assert cache.synced(THINGS)


class WatchMachine(RuleBasedStateMachine):
    """One object on a server, its events in order, our writes and lists in between."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(STREAM)
        self.server: Obj | None = None
        self.version = 0
        self.uids = 0
        self.events: list[tuple[EventType, Obj]] = []
        self.own: set[int] = set()

    def write(self, *, ours: bool) -> None:
        self.version += 1
        kind: EventType = "MODIFIED"
        if self.server is None:
            self.uids += 1
            kind = "ADDED"
        self.server = thing(self.version, uid=f"u{self.uids}")
        self.events.append((kind, copy.deepcopy(self.server)))
        if ours:
            self.own.add(self.version)
            self.store.record(copy.deepcopy(self.server), WRITER)
            assert self.store.identity(KEY) == Identity.of(self.server)

    @rule(ours=st.booleans())
    def change(self, *, ours: bool) -> None:
        self.write(ours=ours)

    @precondition(lambda self: self.server is not None)
    @rule()
    def delete(self) -> None:
        assert self.server is not None
        self.version += 1
        last = thing(self.version, uid=f"u{self.uids}")
        self.events.append(("DELETED", last))
        self.server = None

    @precondition(lambda self: self.events)
    @rule()
    def deliver(self) -> None:
        kind, obj = self.events.pop(0)
        observation = self.store.observe(kind, obj)
        version = obj["spec"]["at"]
        if kind != "DELETED" and observation is not None and observation.echo_of is not None:
            assert version in self.own, "somebody else's change was taken for an echo"

    @rule()
    def list_again(self) -> None:
        """The watch broke: events are lost, and the list shows what is."""
        self.events.clear()
        if self.server is not None:
            self.store.observe(None, copy.deepcopy(self.server))
        before = self.store.snapshot()
        listed = {KEY: Identity.of(self.server)} if self.server is not None else {}
        for key, known in before.items():
            if key not in listed or listed[key].uid != known.uid:
                self.store.remove(key, known.uid)

    def teardown(self) -> None:
        while self.events:
            self.deliver()
        expected = Identity.of(self.server) if self.server is not None else None
        assert self.store.identity(KEY) == expected


WatchMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
TestWatch = WatchMachine.TestCase
