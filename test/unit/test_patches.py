import pytest
from hypothesis import given
from hypothesis import strategies as st

from banlieue.api.resources import CONFIG_MAPS
from banlieue.sdk.kube import Conflict, Key, Obj
from banlieue.sdk.patches import finalizer_ops, patch_unchanged
from banlieue.sdk.testing.memory_api import MemoryApi

OURS = "banlieue.io/ours"
KEY = Key("ns", "a")
NAMES = st.lists(st.sampled_from([OURS, "x.io/one", "x.io/two"]), unique=True)


def stored(api: MemoryApi, finalizers: list[str]) -> Obj:
    meta = {"namespace": "ns", "name": "a", "finalizers": finalizers}
    return api.put(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})


def held(api: MemoryApi) -> list[str]:
    obj = api.peek(CONFIG_MAPS, KEY)
    assert obj is not None
    return list(obj["metadata"].get("finalizers") or ())


@given(before=NAMES, present=st.booleans())
async def test_a_finalizer_is_set_or_taken_and_others_stay(
    before: list[str], *, present: bool
) -> None:
    api = MemoryApi()
    obj = stored(api, before)
    ops = finalizer_ops(obj, OURS, present=present)
    await patch_unchanged(api, CONFIG_MAPS, obj, ops, manager="m")
    after = held(api)
    assert (OURS in after) == present
    assert [it for it in after if it != OURS] == [it for it in before if it != OURS]
    assert bool(api.calls) == ((OURS in before) != present), "no request without a change"


async def test_a_changed_object_is_left_alone() -> None:
    api = MemoryApi()
    obj = stored(api, [])
    api.edit(CONFIG_MAPS, KEY, lambda it: it["metadata"].update(finalizers=["x.io/new"]))
    with pytest.raises(Conflict):
        await patch_unchanged(
            api, CONFIG_MAPS, obj, finalizer_ops(obj, OURS, present=True), manager="m"
        )
    assert held(api) == ["x.io/new"]
