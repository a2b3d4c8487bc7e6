"""A Provider whose account may not see everything does not claim to have told of all VMs."""

from typing import Any

from banlieue.api.resources import PROVIDERS
from banlieue.sdk.driver import About, MissingPrivilege
from test.kit.providerbench import KEY, ProviderBench


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
