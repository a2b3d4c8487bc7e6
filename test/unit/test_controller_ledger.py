"""Promises count until a status confirms them; refusals and waits are remembered for a while."""

from banlieue.api.reasons import Reason
from banlieue.controller.scheduling.assume import REFUSAL_SECONDS, Ledger, Waiting
from banlieue.controller.scheduling.placement import Demand, Place, Rejection, Resident, Unplaced
from banlieue.sdk.kube import Key
from banlieue.sdk.testing.fakes import FakeClock

ONE = Place(Key("system", "one"), "a")
TWO = Place(Key("system", "two"), "a")
VM = Key("ns", "vm")


def _resident(*places: Place, name: str = "vm") -> Resident:
    return Resident(key=Key("ns", name), places=places, memory_mib=1024)


def _demand(memory: int = 1024, name: str = "vm") -> Demand:
    return Demand(key=Key("ns", name), cpus=1, memory_mib=memory, image="i")


def _places(ledger: Ledger) -> set[Place]:
    return {place for resident in ledger.residents() for place in resident.places}


def test_a_promise_counts_until_the_status_shows_it() -> None:
    ledger = Ledger(FakeClock())
    ledger.promise(_resident(ONE))
    assert _places(ledger) == {ONE}
    ledger.observe(_resident())
    assert _places(ledger) == {ONE}
    ledger.observe(_resident(ONE))
    ledger.observe(_resident())
    assert _places(ledger) == set()


def test_a_machine_placed_anew_counts_at_both_places_until_it_is_settled() -> None:
    ledger = Ledger(FakeClock())
    ledger.observe(_resident(ONE))
    ledger.promise(_resident(TWO))
    assert _places(ledger) == {ONE, TWO}
    ledger.withdraw(VM)
    assert _places(ledger) == {ONE}


def test_what_the_cache_said_at_the_start_never_beats_a_later_pass() -> None:
    ledger = Ledger(FakeClock())
    ledger.observe(_resident(TWO))
    ledger.seed([_resident(ONE), _resident(ONE, name="other")])
    assert ledger.at(ONE.provider) == [Key("ns", "other")]
    assert ledger.at(TWO.provider) == [VM]


def test_forgetting_tells_whether_room_was_left() -> None:
    ledger = Ledger(FakeClock())
    ledger.wait(VM, Waiting("c", "i"))
    assert not ledger.forget(VM)
    ledger.promise(_resident(ONE))
    assert ledger.forget(VM)
    assert not ledger.known()


def test_those_that_wait_are_found_by_what_they_wait_for() -> None:
    ledger = Ledger(FakeClock())
    ledger.wait(VM, Waiting("c", "i"))
    assert ledger.waiting(class_name="c") == ledger.waiting(image_name="i") == [VM]
    assert ledger.waiting(namespace="ns") == ledger.waiting() == [VM]
    assert not ledger.waiting(class_name="other")
    assert not ledger.waiting(namespace="other")
    ledger.resume(VM)
    assert not ledger.waiting()


def test_a_refusal_holds_for_the_machine_and_for_larger_ones_for_a_while() -> None:
    clock = FakeClock()
    ledger = Ledger(clock)
    ledger.refuse(_demand(2048), ONE, "full")
    assert ledger.refusals(_demand(64)) == {ONE: "full"}
    assert ledger.refusals(_demand(4096, name="larger")) == {ONE: "full"}
    assert not ledger.refusals(_demand(1024, name="smaller"))
    clock.advance(REFUSAL_SECONDS)
    assert not ledger.refusals(_demand(2048))


def test_only_those_that_more_memory_may_help_are_found_by_it() -> None:
    ledger = Ledger(FakeClock())
    for name in ("unknown", "short", "elsewhere"):
        ledger.wait(Key("ns", name), Waiting("c", "i"))
    full = Rejection(ONE.provider, "a", "memory", Reason.INSUFFICIENT_CAPACITY, "full")
    closed = Rejection(ONE.provider, "a", "open", Reason.PROVIDER_PAUSED, "paused")
    reason = Reason.INSUFFICIENT_CAPACITY
    ledger.miss(_demand(2048, "short"), Unplaced(reason, "", (full,)))
    ledger.miss(_demand(2048, "elsewhere"), Unplaced(reason, "", (closed,)))
    unknown, short = Key("ns", "unknown"), Key("ns", "short")
    assert ledger.short(ONE.provider) == [short, unknown]
    assert ledger.short(ONE.provider, 2048) == [short, unknown]
    assert ledger.short(ONE.provider, 2047) == [unknown]
    assert ledger.short(TWO.provider) == [unknown]
    ledger.wait(short, Waiting("c", "i"))
    assert ledger.short(TWO.provider) == [short, unknown]
    ledger.resume(unknown)
    assert ledger.short(TWO.provider) == [short]


def test_a_promise_that_may_have_been_written_outlives_the_one_that_was_not() -> None:
    """The first write got no answer; the second met another version, so the first had landed."""
    for again in (ONE, TWO):
        ledger = Ledger(FakeClock())
        ledger.promise(_resident(ONE))
        ledger.promise(_resident(again))
        assert _places(ledger) == {ONE, again}
        ledger.withdraw(VM)
        assert _places(ledger) == {ONE}
        ledger.observe(_resident(ONE), ONE)
        ledger.observe(_resident())
        assert _places(ledger) == set()


def test_a_machine_the_backend_moved_at_once_is_only_where_it_is() -> None:
    ledger = Ledger(FakeClock())
    ledger.promise(_resident(ONE))
    ledger.observe(_resident(TWO), ONE)
    assert _places(ledger) == {TWO}
