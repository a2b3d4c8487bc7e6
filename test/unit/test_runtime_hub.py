from banlieue.api.meta import Resource
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change, Priority, Request
from banlieue.sdk.runtime.cache import Cache
from banlieue.sdk.runtime.hub import Hub
from banlieue.sdk.runtime.metrics import Metrics
from banlieue.sdk.runtime.sources import Stream

THINGS = Resource("test.banlieue.io", "v1", "Thing", "things")
STREAM = Stream(THINGS)
KEY, OWNER = Key("ns", "a"), Key("ns", "owner")
WRITER = ("first", KEY)


def thing(version: int) -> Obj:
    meta = {"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": str(version)}
    return {"kind": "Thing", "metadata": meta, "spec": {"at": version}}


class Rig:
    def __init__(self) -> None:
        self.metrics = Metrics()
        self.cache = Cache()
        self.hub = Hub(self.cache, self.metrics)
        self.asked: list[tuple[str, Request]] = []
        self.changes: list[Change] = []
        self.listen("first")
        self.hub.event(STREAM, "ADDED", thing(10))
        self.asked.clear()

    def listen(self, controller: str, *also: Key) -> None:
        def mapper(change: Change) -> list[Request]:
            self.changes.append(change)
            return [Request(change.key, priority=Priority.USER), *map(Request, also)]

        self.hub.subscribe(
            STREAM, controller, mapper, lambda it: self.asked.append((controller, it))
        )

    def write(self, version: int) -> None:
        self.hub.begin_write(THINGS, KEY)
        self.hub.end_write(THINGS, KEY, thing(version), WRITER)

    def asked_keys(self) -> list[tuple[str, Key]]:
        return [(controller, request.key) for controller, request in self.asked]


def test_an_echo_asks_for_everything_but_the_pass_that_wrote() -> None:
    rig = Rig()
    rig.listen("second")
    rig.listen("first", OWNER)
    rig.write(11)
    rig.hub.event(STREAM, "MODIFIED", thing(11))
    assert sorted(rig.asked_keys()) == [("first", OWNER), ("second", KEY)]


def test_an_event_that_overtakes_the_answer_is_an_echo_all_the_same() -> None:
    rig = Rig()
    rig.hub.begin_write(THINGS, KEY)
    rig.hub.event(STREAM, "MODIFIED", thing(11))
    assert not rig.asked
    rig.hub.end_write(THINGS, KEY, thing(11), WRITER)
    assert not rig.asked
    cached = rig.cache.get(THINGS, KEY)
    assert cached is not None
    assert cached["spec"]["at"] == 11


def test_events_held_during_a_write_that_failed_are_delivered() -> None:
    rig = Rig()
    rig.hub.begin_write(THINGS, KEY)
    rig.hub.begin_write(THINGS, KEY)
    rig.hub.event(STREAM, "MODIFIED", thing(11))
    rig.hub.end_write(THINGS, KEY, None, WRITER)
    assert not rig.asked
    rig.hub.end_write(THINGS, KEY, None, WRITER)
    assert rig.asked_keys() == [("first", KEY)]


def test_a_replay_without_change_is_a_resync_and_one_with_change_is_not() -> None:
    rig = Rig()
    rig.hub.event(STREAM, None, thing(10))
    rig.hub.event(STREAM, None, thing(11))
    assert [request.priority for _, request in rig.asked] == [Priority.RESYNC, Priority.USER]


def test_a_failing_mapper_disturbs_nobody_and_is_counted() -> None:
    rig = Rig()

    def fail(_: Change) -> list[Request]:
        raise ValueError("bug")

    rig.hub.subscribe(STREAM, "broken", fail, lambda _: None)
    rig.listen("last")
    rig.hub.event(STREAM, "MODIFIED", thing(11))
    assert ("last", KEY) in rig.asked_keys()
    labels = {"controller": "broken"}
    assert rig.metrics.registry.get_sample_value("banlieue_mapper_errors_total", labels) == 1


def test_who_joins_late_is_shown_what_is_there() -> None:
    rig = Rig()
    late: list[Request] = []
    rig.hub.replay(STREAM, lambda change: [Request(change.key)], late.append)
    assert [it.key for it in late] == [KEY]
