from random import Random

from banlieue.sdk.provider.breaker import Breaker, Permit
from banlieue.sdk.testing.fakes import FakeClock


def silence(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        breaker.silent()


def test_only_silences_in_a_row_open_it() -> None:
    breaker = Breaker(FakeClock(), Random(1))
    silence(breaker, 4)
    breaker.answered()
    silence(breaker, 4)
    assert breaker.ask() is Permit.PASS
    assert breaker.silent()
    assert breaker.ask() is Permit.REFUSED


def test_one_probe_at_a_time_and_longer_pauses() -> None:
    clock = FakeClock()
    breaker = Breaker(clock, Random(1))
    silence(breaker, 5)
    pauses = []
    for _ in range(8):
        pauses.append(breaker.wait)
        clock.advance(breaker.wait - 0.01)
        assert breaker.ask() is Permit.REFUSED
        clock.advance(0.02)
        assert breaker.ask() is Permit.PROBE
        assert breaker.ask() is Permit.REFUSED
        assert not breaker.silent()
    for number, pause in enumerate(pauses):
        planned = min(120.0, 5.0 * 2**number)
        assert 0.8 * planned <= pause <= 1.2 * planned


def test_a_probe_that_is_answered_closes_it_and_pauses_start_anew() -> None:
    clock = FakeClock()
    breaker = Breaker(clock, Random(1))
    silence(breaker, 5)
    clock.advance(200)
    assert breaker.ask() is Permit.PROBE
    assert breaker.answered()
    assert breaker.ask() is Permit.PASS
    assert not breaker.answered()
    silence(breaker, 5)
    assert breaker.wait <= 6.0


def test_late_failures_of_earlier_calls_do_not_end_a_probe_or_stretch_a_pause() -> None:
    clock = FakeClock()
    breaker = Breaker(clock, Random(1))
    silence(breaker, 5)
    pause = breaker.wait
    silence(breaker, 10)
    assert breaker.wait == pause


def test_silence_is_measured_from_the_first() -> None:
    clock = FakeClock()
    breaker = Breaker(clock, Random(1))
    assert breaker.silence == 0.0
    breaker.silent()
    clock.advance(7)
    breaker.silent()
    assert breaker.silence == 7.0
    breaker.answered()
    assert breaker.silence == 0.0


def test_silence_counts_from_when_an_answer_was_awaited() -> None:
    clock = FakeClock()
    breaker = Breaker(clock, Random(1))
    asked = clock.monotonic()
    clock.advance(10)
    breaker.silent(asked)
    assert breaker.silence == 10.0


def test_calls_from_before_the_last_answer_tell_nothing() -> None:
    """After an outage the calls it swallowed still run into their time-outs, one by one."""
    clock = FakeClock()
    breaker = Breaker(clock, Random(1))
    asked = clock.monotonic()
    clock.advance(10)
    breaker.answered()
    for _ in range(8):
        assert not breaker.silent(asked)
    assert breaker.silence == 0.0
    assert breaker.ask() is Permit.PASS
    assert breaker.answered_at == asked + 10.0
