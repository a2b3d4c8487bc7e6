"""A Provider whose account may not see everything does not claim to have told of all VMs."""

from typing import Any

from banlieue.api import names
from banlieue.api.resources import CONFIG_MAPS, PROVIDERS
from banlieue.sdk.driver import About, MissingPrivilege
from banlieue.sdk.kube import Key
from test.kit.providerbench import KEY, ProviderBench

INSTALLATION = Key("system", names.INSTALLATION_CONFIG_MAP)


def unclaimed(bench: ProviderBench) -> Any:  # noqa: ANN401 - JSON data
    return ((bench.api.peek(PROVIDERS, KEY) or {}).get("status") or {}).get("unclaimed")


async def test_what_may_not_be_seen_may_be_there() -> None:
    bench = ProviderBench()
    lacking = (MissingPrivilege("Read", "vm-1"),)
    bench.endpoint.about = About("backend-1", "8.0.3", lacking)
    await bench.run()
    assert unclaimed(bench)["complete"] is False
    bench.endpoint.about = About("backend-1", "8.0.3")
    await bench.run_for(120)
    assert unclaimed(bench)["complete"] is True
    bench.endpoint.about = About("backend-1", "8.0.3", lacking)
    await bench.run_for(400)
    assert unclaimed(bench)["complete"] is False
    await bench.stop()


async def test_a_rebuilt_cluster_waits_for_creates_that_a_lost_one_began() -> None:
    bench = ProviderBench()
    bench.api.edit(CONFIG_MAPS, INSTALLATION, lambda it: it["data"].update(recovery="true"))
    bench.endpoint.creating = ("db-1-12345678",)
    await bench.run()
    assert unclaimed(bench)["complete"] is False
    bench.endpoint.creating = ()
    await bench.run_for(60)
    assert unclaimed(bench)["complete"] is True
    await bench.stop()


async def test_nobody_asks_for_creates_while_nothing_recovers() -> None:
    bench = ProviderBench()
    bench.endpoint.creating = ("db-1-12345678",)
    await bench.run()
    assert unclaimed(bench)["complete"] is True
    assert not bench.endpoint.calls["creating"]
    await bench.stop()
