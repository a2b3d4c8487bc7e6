import itertools
from collections.abc import Callable

import pytest

from test.kit.waiting import WaitTimeoutError, patient, stays_true, wait_until, wait_until_async


def _counter(true_from: int) -> Callable[[], int]:
    """Answers 0 until it is asked the given time, then which time that was."""
    calls = itertools.count(1)

    def answer() -> int:
        number = next(calls)
        return number if number >= true_from else 0

    return answer


def test_a_wait_returns_the_first_true_answer() -> None:
    assert wait_until(_counter(3), 5, "the third call") == 3


def test_a_wait_that_fails_says_for_what_and_what_was_seen() -> None:
    with pytest.raises(WaitTimeoutError) as caught:
        wait_until(list, 0.05, "a machine", exact=True)

    assert str(caught.value) == "timed out after 0.05 s waiting for a machine; last seen: []"


def test_a_slower_machine_has_more_patience() -> None:
    with pytest.raises(WaitTimeoutError, match=f"timed out after {patient(0.05):g} s"):
        wait_until(list, 0.05, "a machine")
    assert patient(600) <= 720, "what is broken does not take an hour"


def test_a_wait_looks_once_even_without_time() -> None:
    assert wait_until(lambda: "there", 0, "what is there")


def test_listed_errors_mean_not_yet_and_are_the_cause_in_the_end() -> None:
    def refuse() -> bool:
        raise ConnectionRefusedError("closed")

    with pytest.raises(WaitTimeoutError, match="last seen: ConnectionRefusedError") as caught:
        wait_until(refuse, 0.05, "a server", retry_on=(OSError,))

    assert isinstance(caught.value.__cause__, ConnectionRefusedError)
    with pytest.raises(ConnectionRefusedError):
        wait_until(refuse, 5, "a server", retry_on=(KeyError,))


async def test_the_async_wait_takes_functions_and_coroutines() -> None:
    asked = _counter(3)

    async def ask() -> int:
        return asked()

    assert await wait_until_async(ask, 5, "the third call") == 3
    assert await wait_until_async(_counter(2), 5, "the second call") == 2
    with pytest.raises(WaitTimeoutError, match="waiting for a machine; last seen: 0"):
        await wait_until_async(lambda: 0, 0.05, "a machine")


def test_what_has_to_hold_is_asked_to_the_end() -> None:
    calls = itertools.count(1)
    stays_true(lambda: next(calls), 0.15, "it counts")
    assert next(calls) > 2

    holds_twice = iter([True, True, False])
    with pytest.raises(AssertionError, match=r"no longer true after .* s: it holds; saw False"):
        stays_true(lambda: next(holds_twice), 5, "it holds")
