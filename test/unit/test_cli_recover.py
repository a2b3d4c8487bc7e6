"""`banlieue recover`: what it writes into the installation, and what it refuses to mean."""

import pytest
from click.testing import CliRunner

from banlieue.api import names
from banlieue.api.resources import CONFIG_MAPS, NAMESPACES
from banlieue.cli.recover import _settle, recover
from banlieue.sdk.kube import Key
from banlieue.sdk.testing.memory_api import MemoryApi

KEY = Key("system", names.INSTALLATION_CONFIG_MAP)


@pytest.fixture
def api() -> MemoryApi:
    made = MemoryApi()
    made.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": "here"}})
    data = {"id": "inst", "clusterUID": "there"}
    meta = {"namespace": KEY.namespace, "name": KEY.name}
    made.put(CONFIG_MAPS, {"metadata": meta, "data": data})
    return made


def _data(api: MemoryApi) -> dict[str, str]:
    found: dict[str, str] = (api.peek(CONFIG_MAPS, KEY) or {})["data"]
    return found


async def test_recovery_begins_and_ends_by_ones_word(api: MemoryApi) -> None:
    said = await _settle(api, KEY, confirm=False, recovery=True, chosen="")
    assert said == "installation inst: in recovery"
    assert _data(api) == {"id": "inst", "clusterUID": "there", "recovery": "true"}
    await _settle(api, KEY, confirm=False, recovery=False, chosen="")
    assert _data(api) == {"id": "inst", "clusterUID": "there"}


async def test_a_confirmation_leaves_the_recovery_as_it_is(api: MemoryApi) -> None:
    await _settle(api, KEY, confirm=False, recovery=True, chosen="")
    await _settle(api, KEY, confirm=True, recovery=None, chosen="other")
    assert _data(api) == {"id": "other", "clusterUID": "here", "recovery": "true"}
    annotations = (api.peek(CONFIG_MAPS, KEY) or {})["metadata"]["annotations"]
    assert annotations == {names.ANNOTATION_CONFIRMED_CLUSTER: "here"}


def test_nobody_begins_and_ends_it_at_once() -> None:
    answer = CliRunner().invoke(recover, ["--begin", "--done"])
    assert answer.exit_code == 2
    assert "either --begin or --done" in answer.output
