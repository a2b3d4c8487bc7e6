"""A failure domain that may not be read any more is no failure domain that is gone."""

from collections.abc import AsyncIterator, Collection

import pytest

from banlieue.sdk.driver import FailureDomain
from banlieue.sdk.testing.scripted import ScriptedDriver
from test.kit.providerbench import ProviderBench, able

ONE = FailureDomain("d1", ("dc1", "one"), storage_classes=("gold",))
TWO = FailureDomain("d2", ("dc1", "two"), storage_classes=("gold",), raw={"cluster": "two"})


@pytest.fixture
async def bench() -> AsyncIterator[ProviderBench]:
    made = ProviderBench()
    made.endpoint.domains = (ONE, TWO)
    yield made
    await made.stop()


def shown(bench: ProviderBench) -> dict[str, bool]:
    return {it.name: bool(it.schedulable) for it in bench.provider.status.failure_domains}


async def test_a_hidden_domain_stays_and_takes_no_new_machines(
    bench: ProviderBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Collection[str]] = []

    def hidden_domains(driver: ScriptedDriver, ids: Collection[str]) -> Collection[str]:
        del driver
        asked.append(ids)
        return ids

    able(monkeypatch, hidden_domains=hidden_domains)
    await bench.run()
    before = bench.provider.status.failure_domains
    bench.endpoint.domains = (ONE,)
    await bench.run_for(400)
    assert asked
    assert set(asked[0]) == {"d2"}
    assert shown(bench) == {"prod-dc1-one": True, "prod-dc1-two": False}
    now = bench.provider.status.failure_domains
    assert now[1].id == "d2"
    assert now[1].attributes.raw == before[1].attributes.raw
    assert now[1].attributes.available_storage_classes == ["gold"]
    assert "prod-dc1-two may not be read" in bench.condition()[2]
    bench.endpoint.domains = (ONE, TWO)
    await bench.run_for(400)
    assert shown(bench) == {"prod-dc1-one": True, "prod-dc1-two": True}
    assert bench.condition()[2] == ""


async def test_a_domain_that_is_gone_goes(
    bench: ProviderBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    able(monkeypatch, hidden_domains=lambda *_: ())
    await bench.run()
    bench.endpoint.domains = (ONE,)
    await bench.run_for(400)
    assert shown(bench) == {"prod-dc1-one": True}
