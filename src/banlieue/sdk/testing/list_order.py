"""The order in which server-side apply leaves the items of lists that merge by key.

What is applied comes in its own order; what stays beside it keeps its place among the items that
were there (the rule of structured-merge-diff, which the API server merges with).
"""

from collections.abc import Sequence
from typing import Any

from banlieue.sdk.testing.field_sets import MERGE_KEYS, Item, item_key

Value = Any
"""A JSON value."""

_ARRANGED = (dict, list)


def arrange(merged: Value, live: Value, applied: Value, name: str = "") -> None:
    """Put the lists of `merged`, and those below, into that order, in place.

    Args:
        merged: what an apply makes of `live`, its items in any order.
        live: the object before.
        applied: what was applied.
        name: of the field the three are the values of.
    """
    if isinstance(merged, dict) and isinstance(live, dict) and isinstance(applied, dict):
        for member, value in applied.items():
            if type(value) in _ARRANGED and member in merged and member in live:
                if value == live[member] == merged[member]:
                    continue  # in the same order, too
                arrange(merged[member], live[member], value, member)
        return
    keys = MERGE_KEYS.get(name)
    if keys is None or not (isinstance(merged, list) and isinstance(live, list)):
        return
    before = {item_key(entry, keys): entry for entry in live}
    mine = {item_key(entry, keys): entry for entry in applied}
    there = {item_key(entry, keys): entry for entry in merged}
    if list(before) != list(mine) or list(there) != list(mine):
        order = merged_order(tuple(before), tuple(mine))
        merged[:] = [there[key] for key in order if key in there]
    for key in mine.keys() & before.keys() & there.keys():
        arrange(there[key], before[key], mine[key])


def merged_order(live: Sequence[Item], applied: Sequence[Item]) -> list[Item]:
    """The keys of both lists, each once, in the order of the merged list."""
    shared = [key for key in applied if key in set(live)]
    order: list[Item] = []
    left, right = list(live), list(applied)
    while left or right:
        if left and right and left[0] == right[0]:
            order.append(right.pop(0))
            left.pop(0)
            shared = [key for key in shared if key != order[-1]]
        elif left and (left[0] in order or (right and left[0] in shared and left[0] != shared[0])):
            left.pop(0)  # it comes, or came, where it is applied
        elif left and left[0] not in applied:
            order.append(left.pop(0))
        else:
            order.append(right.pop(0))
            shared = [key for key in shared if key != order[-1]]
    return order
