"""A provider beside an operator: rights that come a moment late, and old ones that are gone."""

import base64
from collections.abc import AsyncIterator
from random import Random

import pytest
from pydantic import SecretStr

from banlieue.api import names
from banlieue.api.resources import LEASES, SECRETS
from banlieue.api.v1alpha1.provider import Provider
from banlieue.sdk.driver import Connection
from banlieue.sdk.kube import Forbidden, Key
from banlieue.sdk.provider import in_use
from banlieue.sdk.runtime.process import Options, Process
from banlieue.sdk.runtime.serve import ProviderRole, Scope
from banlieue.sdk.testing.fakes import FakeClock, InlinePool
from banlieue.sdk.testing.memory_api import Call, Hook, Moment
from banlieue.sdk.testing.scripted import ScriptedEndpoint, scripted_backend
from test.kit.providerbench import KEY, PASSWORD, ProviderBench, meta, no_thread, provider_spec

NEW = Key("ns", "new")


@pytest.fixture
async def bench() -> AsyncIterator[ProviderBench]:
    made = ProviderBench()
    yield made
    await made.stop()


def add_secret(bench: ProviderBench) -> None:
    data = {"password": base64.b64encode(PASSWORD.encode()).decode()}
    bench.api.put(SECRETS, {"metadata": meta("new"), "data": data})


def refusing(key: Key) -> Hook:
    def refuse(call: Call, moment: Moment) -> None:
        if (call.resource, call.key) == (SECRETS, key) and moment is Moment.BEFORE:
            raise Forbidden(403, "Forbidden", "no")

    return refuse


async def test_a_secret_named_anew_may_be_readable_a_moment_later(bench: ProviderBench) -> None:
    await bench.run()
    add_secret(bench)
    allow = bench.api.intercept(refusing(NEW))
    bench.edit(connection={**provider_spec()["connection"], "credentialsRef": {"name": "new"}})
    before = len(bench.api.writes())
    await bench.run_for(6)
    assert bench.ready == ("True", "Ready")
    assert len(bench.api.writes()) == before
    allow()
    await bench.run_for(20)
    assert bench.ready == ("True", "Ready")
    assert bench.provider.status.observed_generation == bench.provider.metadata.generation


async def test_a_secret_that_stays_unreadable_is_told(bench: ProviderBench) -> None:
    await bench.run()
    add_secret(bench)
    bench.api.intercept(refusing(NEW))
    bench.edit(connection={**provider_spec()["connection"], "credentialsRef": {"name": "new"}})
    await bench.run_for(60)
    assert bench.ready == ("False", "SecretMissing")
    assert "grant" in bench.condition()[2]


async def test_the_old_secret_without_rights_holds_nothing_up(bench: ProviderBench) -> None:
    await bench.run()
    bench.add_machine("one")
    lease = {"metadata": {"namespace": "ns", "name": bench.provider.metadata.uid}}
    bench.api.put(LEASES, lease)
    await in_use.ensure_in_use(bench.api, bench.provider, manager="m")
    await bench.run_for(320)
    add_secret(bench)
    bench.edit(connection={**provider_spec()["connection"], "credentialsRef": {"name": "new"}})
    bench.api.intercept(refusing(Key("ns", "creds")))
    await bench.run_for(20)
    assert bench.ready == ("True", "Ready")
    assert bench.provider.status.observed_generation == bench.provider.metadata.generation
    held = (bench.api.peek(SECRETS, NEW) or {})["metadata"]["finalizers"]
    assert held == [names.FINALIZER_PROVIDER_IN_USE]


def role(only: Key | None, endpoint: ScriptedEndpoint) -> tuple[Process, ProviderRole]:
    process = Process(Options(role="provider"), clock=FakeClock(), rng=Random(1))
    made = ProviderRole(
        process,
        scripted_backend(endpoint),
        Scope(only),
        make_pool=lambda _: InlinePool(),
        start=no_thread,
    )
    return process, made


def provider() -> Provider:
    return Provider.from_api({"metadata": meta("prod"), "spec": provider_spec()})


async def test_the_process_of_one_provider_is_ready_while_its_backend_answers() -> None:
    endpoint = ScriptedEndpoint()
    process, made = role(KEY, endpoint)
    assert "not served" in process.health.ready()["backend"]
    session = made._sessions.ensure(KEY, provider())
    assert "not reached" in process.health.ready()["backend"]
    await session.connect(
        Connection(
            "ns",
            "prod",
            ("https://a",),
            {"password": SecretStr(PASSWORD)},
            provider().spec.capabilities,
        )
    )
    assert process.health.ready()["backend"] == ""
    for _ in range(5):
        session.breaker.silent()
    assert process.health.ready()["backend"] != ""
    session.breaker.answered()
    assert process.health.ready()["backend"] == ""
    await made._sessions.close()


def test_the_process_of_many_providers_does_not_depend_on_one() -> None:
    process, _ = role(None, ScriptedEndpoint())
    assert "backend" not in process.health.ready()
