"""Differences of trees, as the in-memory server finds out who owns what."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from banlieue.sdk.testing import field_sets

VALUES = st.one_of(st.integers(0, 2), st.sampled_from(["a", "b"]), st.booleans())
ITEMS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("xyz")}, optional={"size": VALUES}),
    unique_by=lambda item: item["name"],
    max_size=3,
)
TREES = st.recursive(
    VALUES | st.lists(VALUES, max_size=2),
    lambda below: st.dictionaries(st.sampled_from(["spec", "a", "b"]), below, max_size=3),
    max_leaves=8,
)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "spec": TREES,
        "disks": ITEMS,
        "finalizers": st.lists(st.sampled_from("fgh"), unique=True, max_size=3),
    },
)


@given(OBJECTS, OBJECTS)
def test_a_difference_is_what_comparing_all_leaves_would_find(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    before, after = dict(field_sets.leaves(old)), dict(field_sets.leaves(new))
    changed, gone = field_sets.difference(old, new)
    assert len(changed) == len(set(changed))
    differ = {path for path, value in after.items() if path not in before or before[path] != value}
    assert set(changed) == differ
    assert set(gone) == before.keys() - after.keys()
