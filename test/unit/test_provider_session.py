import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from random import Random
from typing import Any

import pytest
from pydantic import SecretStr

from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.provider import Capabilities, Provider
from banlieue.sdk.calls import CallPool
from banlieue.sdk.driver import About, Connection, Driver
from banlieue.sdk.errors import DriverError, NeedsOperator, NotYet, Transient, Unreachable
from banlieue.sdk.kube import Key
from banlieue.sdk.powers import Changes
from banlieue.sdk.provider.feed import FeedLoop
from banlieue.sdk.provider.ports import OpenProvider
from banlieue.sdk.provider.seams import Seams, Served
from banlieue.sdk.provider.session import ProviderSession
from banlieue.sdk.testing.fakes import FakeClock, InlinePool
from banlieue.sdk.testing.scripted import ScriptedEndpoint, scripted_backend
from test.kit.waiting import wait_until_async

KEY = Key("ns", "p")


def provider(**spec: object) -> Provider:
    whole = {"providerClassRef": {"name": "c"}, "connection": {"endpoint": "x://y"}, **spec}
    return Provider.from_api({"metadata": {"namespace": "ns", "name": "p"}, "spec": whole})


RIGHT = "right"


def connection(secret: str = RIGHT, storage: str = "") -> Connection:
    return Connection(
        provider_namespace="ns",
        provider_name="p",
        endpoints=("x://y",),
        credentials={"password": SecretStr(secret)},
        capabilities=Capabilities.from_api(
            {"storageClasses": [{"name": storage}] if storage else []}
        ),
    )


class Log:
    def __init__(self) -> None:
        self.changes: list[Changes] = []
        self.unsettled_times = 0

    def changed(self, provider: Key, changes: Changes) -> None:
        assert provider == KEY
        self.changes.append(changes)

    def unsettled(self, provider: Key) -> None:
        assert provider == KEY
        self.unsettled_times += 1


class Bench:
    """A session over a scripted endpoint, with threads only where the test starts them."""

    def __init__(self) -> None:
        self.endpoint = ScriptedEndpoint()
        self.clock = FakeClock()
        self.pool = InlinePool()
        self.log = Log()
        self.leased = True
        self.session = ProviderSession(
            KEY,
            scripted_backend(self.endpoint),
            Served(provider(), identity="backend-1", trusted=True),
            Seams(
                self.pool,
                self.clock,
                Random(1),
                self.log,
                lambda: self.leased,
                _never,
            ),
        )

    async def about(self) -> About:
        return await self.session.call(_about)

    async def fail(self, times: int) -> None:
        for _ in range(times):
            with pytest.raises(Unreachable):
                await self.about()


def _never(feed: FeedLoop, *, name: str) -> None:
    del feed
    assert name == "changes-p"


def _about(driver: Driver[Any]) -> About:
    return driver.about()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    made.session.close()
    await made.session.drained()
    assert made.endpoint.sessions == 0


async def test_calls_reach_the_driver(bench: Bench) -> None:
    assert await bench.session.connect(connection())
    assert (await bench.about()).identity == "backend-1"
    assert bench.log.changes == [Changes(everything=True)]


async def test_before_the_login_nothing_is_called(bench: Bench) -> None:
    with pytest.raises(Unreachable):
        await bench.about()
    assert not bench.endpoint.calls


async def test_an_equal_connection_keeps_the_login(bench: Bench) -> None:
    await bench.session.connect(connection())
    assert not await bench.session.connect(connection())
    assert len(bench.endpoint.logins) == 1


async def test_new_credentials_log_in_anew_and_the_old_login_out(bench: Bench) -> None:
    await bench.session.connect(connection())
    bench.endpoint.password = "new"
    assert await bench.session.connect(connection("new"))
    await bench.about()
    await _until(lambda: bench.endpoint.sessions == 1)
    assert len(bench.endpoint.logins) == 2


async def test_a_wrong_new_password_leaves_the_old_login_at_work(bench: Bench) -> None:
    await bench.session.connect(connection())
    with pytest.raises(NeedsOperator):
        await bench.session.connect(connection("wrong"))
    assert (await bench.about()).identity == "backend-1"


async def test_a_refused_login_is_not_repeated_until_something_changes(bench: Bench) -> None:
    for _ in range(3):
        with pytest.raises(NeedsOperator) as caught:
            await bench.session.connect(connection("wrong"))
        assert caught.value.reason == Reason.PROVIDER_AUTH_FAILED
        bench.clock.advance(50)
    with pytest.raises(NeedsOperator):
        await bench.about()
    assert len(bench.endpoint.logins) == 1
    bench.clock.advance(40)
    with pytest.raises(NeedsOperator):
        await bench.session.connect(connection("wrong"))
    assert len(bench.endpoint.logins) == 2
    assert await bench.session.connect(connection("right"))
    assert (await bench.about()).version == "8.0.3"


async def test_a_capability_edit_does_not_open_the_gate(bench: Bench) -> None:
    for storage in ("", "gold"):
        with pytest.raises(NeedsOperator):
            await bench.session.connect(connection("wrong", storage))
    assert len(bench.endpoint.logins) == 1


async def test_an_account_refused_in_a_call_is_left_alone(bench: Bench) -> None:
    await bench.session.connect(connection())
    bench.endpoint.calls.clear()
    bench.endpoint.fail["about"] = NeedsOperator(Reason.PROVIDER_AUTH_FAILED, "expired")
    for _ in range(3):
        with pytest.raises(NeedsOperator):
            await bench.about()
    assert bench.endpoint.calls["about"] == 1
    assert not bench.session.connected
    assert bench.log.unsettled_times == 1
    del bench.endpoint.fail["about"]
    with pytest.raises(NeedsOperator):
        await bench.session.connect(connection())
    bench.clock.advance(181)
    assert await bench.session.connect(connection())
    await bench.about()


async def test_a_login_that_leads_elsewhere_is_distrusted_before_anything_is_asked(
    bench: Bench,
) -> None:
    await bench.session.connect(connection())
    assert bench.session.is_backend("backend-1")
    bench.log.changes.clear()
    bench.endpoint.about = About("backend-2", "9.0")
    bench.endpoint.password = "new"
    found = await bench.session.connect(connection("new"))
    assert found == About("backend-2", "9.0")
    assert not bench.session.is_backend("backend-1")
    assert not bench.session.writable
    assert bench.log.changes == []
    bench.session.identified("backend-2", trusted=True)
    assert bench.session.is_backend("backend-2")
    assert bench.log.changes == [Changes(everything=True)]


class HeldPool(InlinePool):
    """A pool whose next call waits for its thread until `gate` is set."""

    gate: asyncio.Event | None = None

    async def __call__(self, call: Callable[[], object], *, timeout: float) -> object:
        gate, self.gate = self.gate, None
        if gate is not None:
            await gate.wait()
        return await super().__call__(call, timeout=timeout)


async def test_a_call_that_waited_is_not_carried_out_on_another_backend(bench: Bench) -> None:
    """Its machine was compared with the backend that answered when the call was asked for."""
    bench.session._pool = pool = HeldPool()
    await bench.session.connect(connection())
    gate = pool.gate = asyncio.Event()
    late = asyncio.ensure_future(bench.session.call(lambda driver: driver.failure_domains()))
    await asyncio.sleep(0)  # sleep-ok: lets the call ask for its thread
    bench.endpoint.about = About("backend-2", "9.0")
    bench.endpoint.password = "new"
    await bench.session.connect(connection("new"))
    gate.set()
    with pytest.raises(NeedsOperator) as refusal:
        await late
    assert refusal.value.reason is Reason.BACKEND_IDENTITY_CHANGED
    with pytest.raises(NeedsOperator):
        await bench.session.call(lambda driver: driver.failure_domains())
    assert bench.endpoint.calls["failure_domains"] == 0
    assert bench.session.connected, "the login that tells who is there is kept"
    assert (await bench.session.ask_about()).identity == "backend-2"


async def test_a_login_that_was_led_elsewhere_is_given_up(bench: Bench) -> None:
    await bench.session.connect(connection())
    changed = NeedsOperator(Reason.BACKEND_IDENTITY_CHANGED, "another backend answers")
    bench.endpoint.fail["about"] = changed
    with pytest.raises(NeedsOperator):
        await bench.about()
    assert not bench.session.connected
    assert bench.log.unsettled_times == 1
    with pytest.raises(Unreachable):
        await bench.about()
    bench.endpoint.fail.clear()
    assert await bench.session.connect(connection())
    assert (await bench.about()).identity == "backend-1"


async def test_the_breaker_opens_and_one_probe_closes_it(bench: Bench) -> None:
    await bench.session.connect(connection())
    bench.endpoint.calls.clear()
    bench.endpoint.fail["about"] = Unreachable("no route")
    await bench.fail(20)
    assert bench.endpoint.calls["about"] == 5
    assert bench.log.unsettled_times == 1
    bench.clock.advance(bench.session.breaker.wait)
    await bench.fail(3)
    assert bench.endpoint.calls["about"] == 6
    del bench.endpoint.fail["about"]
    bench.clock.advance(bench.session.breaker.wait)
    bench.log.changes.clear()
    observed = bench.session.call(lambda _driver: "done")
    assert await observed == "done"
    assert bench.endpoint.calls["about"] == 7
    assert bench.log.changes == [Changes(everything=True)]


async def test_time_outs_are_silence(bench: Bench) -> None:
    await bench.session.connect(connection())
    bench.pool.stuck = True
    await bench.fail(5)
    assert bench.session.breaker.is_open
    bench.pool.stuck = False


async def test_errors_that_are_answers_never_open_the_breaker(bench: Bench) -> None:
    await bench.session.connect(connection())
    bench.endpoint.calls.clear()
    bench.endpoint.fail["about"] = Transient(Reason.PROVIDER_BUSY, "locked")
    for _ in range(20):
        with pytest.raises(Transient):
            await bench.about()
    assert bench.endpoint.calls["about"] == 20


async def test_to_be_told_later_is_no_answer_of_the_endpoint(bench: Bench) -> None:
    """Nobody was asked: an outage must not go unseen because of it."""
    await bench.session.connect(connection())

    def later(_driver: object) -> None:
        raise NotYet

    bench.endpoint.fail["about"] = Unreachable("no route")
    for _ in range(5):
        await bench.fail(1)
        with pytest.raises(Transient):
            await bench.session.call(later)
    assert bench.session.breaker.is_open


async def test_a_defect_during_a_probe_does_not_block_the_next(bench: Bench) -> None:
    await bench.session.connect(connection())
    bench.endpoint.fail["about"] = Unreachable("no route")
    await bench.fail(5)
    bench.clock.advance(bench.session.breaker.wait)

    def broken(_driver: object) -> None:
        raise ZeroDivisionError

    bench.endpoint.fail.clear()
    with pytest.raises(ZeroDivisionError):
        await bench.session.call(broken)
    assert (await bench.about()).identity == "backend-1"


async def test_defects_and_cancelled_calls_say_nothing_about_the_endpoint(bench: Bench) -> None:
    await bench.session.connect(connection())

    def broken(_driver: object) -> None:
        raise ZeroDivisionError

    for _ in range(10):
        with pytest.raises(ZeroDivisionError):
            await bench.session.call(broken)
    assert (await bench.about()).identity == "backend-1"


async def test_a_changed_endpoint_is_tried_at_once_although_the_breaker_is_open(
    bench: Bench,
) -> None:
    bench.endpoint.fail["login"] = Unreachable("no route")
    for _ in range(8):
        with pytest.raises(Unreachable):
            await bench.session.connect(connection())
    assert len(bench.endpoint.logins) == 5
    del bench.endpoint.fail["login"]
    bench.endpoint.password = "other"
    assert await bench.session.connect(connection("other"))
    await bench.about()


@pytest.mark.parametrize(
    "spec",
    [{"paused": True}, {"mode": "ReadOnly"}],
)
def test_nothing_is_written_against_the_providers_word(spec: dict[str, object]) -> None:
    bench = Bench()
    bench.session.served = Served(provider(**spec), identity="b", trusted=True)
    assert not bench.session.writable


def test_nothing_is_written_without_the_lease() -> None:
    bench = Bench()
    assert bench.session.writable
    bench.leased = False
    assert not bench.session.writable


async def test_a_call_that_waited_while_the_lease_was_lost_is_not_made(bench: Bench) -> None:
    await bench.session.connect(connection())
    before = len(bench.endpoint.calls)
    bench.leased = False
    with pytest.raises(NeedsOperator) as refused:
        await bench.about()
    assert refused.value.reason is Reason.SERVED_ELSEWHERE
    assert len(bench.endpoint.calls) == before


def test_an_untrusted_backend_is_nobodys() -> None:
    bench = Bench()
    accepted = {"endpoint": "x://y", "acceptedIdentities": ["old"]}
    bench.session.served = Served(provider(connection=accepted), identity="new", trusted=True)
    assert bench.session.is_backend("new")
    assert bench.session.is_backend("old")
    assert not bench.session.is_backend("other")
    bench.session.served = Served(provider(connection=accepted), identity="new", trusted=False)
    assert not bench.session.is_backend("new")
    assert not bench.session.writable


def test_a_session_is_what_machine_reconcilers_ask_for() -> None:
    port: OpenProvider = Bench().session
    assert port.provider.metadata.name == "p"


# With real threads.


async def _until(holds: Callable[[], bool]) -> None:
    await wait_until_async(holds, 10, "the other thread")


@pytest.fixture
async def threaded() -> AsyncIterator[Bench]:
    made = Bench()
    made.session._pool = CallPool("test")
    made.session._start = _start
    yield made
    for held in made.endpoint.hold.values():
        held.set()
    made.session.close()
    for _ in range(4):
        made.endpoint.announce(Changes())  # wakes every feed there may be
    await made.session.drained()
    await _until(lambda: made.endpoint.sessions == 0)


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    yield
    deadline = time.monotonic() + 10
    for thread in threading.enumerate():
        if thread.name.startswith("changes-"):
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive()


def _start(feed: FeedLoop, *, name: str) -> None:
    threading.Thread(target=feed.run, name=name, daemon=True).start()


async def test_a_login_given_up_is_logged_out_when_it_comes_after_all(threaded: Bench) -> None:
    threaded.endpoint.hold["login"] = threading.Event()
    attempt = asyncio.ensure_future(threaded.session.connect(connection()))
    await _until(lambda: threaded.endpoint.calls["login"] == 1)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    threaded.endpoint.hold["login"].set()
    await threaded.session.drained()
    await _until(lambda: threaded.endpoint.sessions == 0)


async def test_a_call_under_way_keeps_its_login_open(threaded: Bench) -> None:
    await threaded.session.connect(connection())
    held = threaded.endpoint.hold["failure_domains"] = threading.Event()
    slow = asyncio.ensure_future(threaded.session.call(lambda driver: driver.failure_domains()))
    await _until(lambda: threaded.endpoint.calls["failure_domains"] == 1)
    threaded.endpoint.password = "new"
    await threaded.session.connect(connection("new"))
    assert threaded.endpoint.sessions == 2
    held.set()
    assert [domain.id for domain in await slow] == ["d1"]
    await _until(lambda: threaded.endpoint.sessions == 1)


async def test_the_feed_delivers_on_the_loop(threaded: Bench) -> None:
    await threaded.session.connect(connection())
    threaded.log.changes.clear()
    threaded.endpoint.announce(Changes(uuids=frozenset({"u1"})))
    await _until(lambda: bool(threaded.log.changes))
    assert threaded.log.changes == [Changes(uuids=frozenset({"u1"}))]


async def test_a_lost_feed_asks_for_everything_when_it_is_back(
    threaded: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("banlieue.sdk.provider.feed.FIRST_PAUSE", 0.001)
    await threaded.session.connect(connection())
    threaded.log.changes.clear()
    lost: list[DriverError] = [Unreachable("reset"), Unreachable("reset")]
    for error in lost:
        threaded.endpoint.announce(error)
    threaded.endpoint.announce(Changes(tasks=frozenset({"t1"})))
    await _until(lambda: bool(threaded.log.changes))
    assert threaded.log.changes == [Changes(tasks=frozenset({"t1"}), everything=True)]
    assert threaded.log.unsettled_times == 2


async def test_after_a_swap_only_the_new_feed_is_heard(threaded: Bench) -> None:
    await threaded.session.connect(connection())
    threaded.endpoint.password = "new"
    await threaded.session.connect(connection("new"))
    threaded.log.changes.clear()
    for number in range(4):
        threaded.endpoint.announce(Changes(uuids=frozenset({f"u{number}"})))
    await _until(lambda: any("u3" in change.uuids for change in threaded.log.changes))


async def test_a_call_that_takes_too_long_is_given_up(threaded: Bench) -> None:
    await threaded.session.connect(connection())
    threaded.endpoint.hold["about"] = threading.Event()
    with pytest.raises(Unreachable):
        await threaded.session.call(_about, timeout=0.05)
    threaded.endpoint.hold.pop("about").set()
    assert (await threaded.about()).identity == "backend-1"


async def test_a_call_without_an_answer_has_its_provider_looked_at(
    threaded: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before the call itself is given up, and its whole silence counts."""
    await threaded.session.connect(connection())
    monkeypatch.setattr("banlieue.sdk.provider.session.DOUBT_AFTER", 0.01)
    before = threaded.log.unsettled_times
    held = threaded.endpoint.hold["about"] = threading.Event()
    waiting = asyncio.ensure_future(threaded.session.call(_about, timeout=30))
    await wait_until_async(
        lambda: threaded.log.unsettled_times > before, 10, "the Provider to be asked for a pass"
    )
    threaded.clock.advance(20)
    with pytest.raises(Unreachable):
        await threaded.session.call(_about, timeout=0.05)
    assert threaded.session.breaker.silence >= 20
    threaded.endpoint.hold.pop("about")
    held.set()
    assert (await waiting).identity == "backend-1"
    assert threaded.session.breaker.silence == 0


async def test_a_closed_session_says_so(threaded: Bench) -> None:
    await threaded.session.connect(connection())
    threaded.session.close()
    with pytest.raises(Unreachable):
        await threaded.about()
