"""Field ownership for server-side apply, enough of it for objects whose lists merge by known keys.

A field set is a set of paths to leaves. A step is a member name, or the key of an item in a list
that merges by key or by value; every other list is one leaf.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from banlieue.sdk.testing.plain import clone

Value = Any
"""A JSON value."""

Item = tuple[tuple[str, Any], ...]
"""Key of a list item: its key members with their values; the member "" stands for the item."""

Path = tuple[str | Item, ...]

MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "disks": ("name",),
    "failureDomains": ("name",),
    "finalizers": ("",),
    "interfaces": ("name",),
    "networkInterfaces": ("name",),
    "ipam": ("family",),
    "ownerReferences": ("uid",),
    "perProvider": ("providerNamespace", "providerName"),
}
"""Lists that merge, by the name of their field; ("",) is a set of scalars."""


def leaves(value: Value, path: Path = ()) -> Iterator[tuple[Path, Value]]:
    """Every leaf below `value` with its path; an empty map is a leaf."""
    found: list[tuple[Path, Value]] = []
    _collect(value, path, found)
    return iter(found)


def _collect(value: Value, path: Path, found: list[tuple[Path, Value]]) -> None:
    if isinstance(value, dict) and value:
        for member, below in value.items():
            if isinstance(below, dict | list):
                _collect(below, (*path, member), found)
            else:
                found.append(((*path, member), below))
        return
    name = path[-1] if path and isinstance(path[-1], str) else ""
    keys = MERGE_KEYS.get(name) if isinstance(value, list) else None
    if keys is None:
        found.append((path, value))
        return
    for entry in value:
        item = item_key(entry, keys)
        if keys == ("",):
            found.append(((*path, item), entry))
        else:
            _collect(entry, (*path, item), found)


def difference(old: Value, new: Value) -> tuple[list[Path], list[Path]]:
    """Paths of the leaves of `new` that `old` has not or has otherwise, and of those it lacks."""
    changed: list[Path] = []
    gone: list[Path] = []
    if not _is_same(old, new):
        _compare(old, new, (), changed, gone)
    return changed, gone


_ABSENT = object()


def _is_same(old: Value, new: Value) -> bool:
    return old is new or (type(old) is type(new) and old == new)


def _compare(old: Value, new: Value, path: Path, changed: list[Path], gone: list[Path]) -> None:
    before, after = _members(old, path), _members(new, path)
    if before and after:
        for step, value in after.items():
            held = before.get(step, _ABSENT)
            if not _is_same(held, value):
                _compare(held, value, (*path, step), changed, gone)
        for step, value in before.items():
            if step not in after:
                _compare(value, _ABSENT, (*path, step), changed, gone)
        return
    there = {} if old is _ABSENT else dict(leaves(old, path))
    mine = {} if new is _ABSENT else dict(leaves(new, path))
    changed += [it for it, value in mine.items() if there.get(it, _ABSENT) != value]
    gone += [it for it in there if it not in mine]


def _members(value: Value, path: Path) -> dict[str | Item, Value] | None:
    """What stands below a map, or a list that merges by key; None for every leaf."""
    if isinstance(value, dict):
        return value
    name = path[-1] if path and isinstance(path[-1], str) else ""
    keys = MERGE_KEYS.get(name) if isinstance(value, list) else None
    if not keys or keys == ("",):
        return None
    return {item_key(entry, keys): entry for entry in value}


def item_key(entry: Value, keys: tuple[str, ...]) -> Item:
    """Key of a list item by these members."""
    if len(keys) == 1:  # nearly always
        return ((keys[0], entry if keys[0] == "" else entry.get(keys[0])),)
    return tuple([(key, entry.get(key)) for key in keys])


def _is_item(entry: Value, key: Item) -> bool:
    """Whether the item of a list has that key."""
    return all((entry if name == "" else entry.get(name)) == value for name, value in key)


def assign(root: dict[str, Any], path: Path, value: Value) -> None:
    """Set the leaf at `path`, making the maps, lists and items on the way."""
    here: Value = root
    for step, following in zip(path, (*path[1:], None), strict=True):
        if isinstance(step, str):
            if following is None:
                if value != {} or not isinstance(here.get(step), dict):
                    here[step] = clone(value)
                return
            fresh: Value = [] if isinstance(following, tuple) else {}
            if not isinstance(here.get(step), type(fresh)):
                here[step] = fresh
            here = here[step]
        else:
            here = _item(here, step)


def _item(items: list[Any], key: Item) -> Value:
    for entry in items:
        if _is_item(entry, key):
            return entry
    fresh = key[0][1] if key[0][0] == "" else dict(key)
    items.append(fresh)
    return fresh


def discard_all(root: dict[str, Any], paths: Iterable[Path]) -> None:
    """Remove the leaves at `paths` and every container that becomes empty by it."""
    # An item is found by its key members, so these go last.
    for path in sorted(paths, key=lambda path: (_is_key_member(path), repr(path))):
        _discard(root, path)


def _is_key_member(path: Path) -> bool:
    item = path[-2] if len(path) > 1 else ""
    return isinstance(item, tuple) and path[-1] in {name for name, _ in item}


def _discard(root: dict[str, Any], path: Path) -> None:
    trail: list[tuple[Value, str | Item]] = []
    here: Value = root
    for step in path:
        trail.append((here, step))
        here = _below(here, step)
        if here is None:
            break
    if isinstance(here, dict) and here:
        return  # somebody else keeps members of the map this owner had declared
    _drop(*trail.pop())
    for container, step in reversed(trail):
        below = _below(container, step)
        if below is None or below in ({}, []):
            _drop(container, step)
        else:
            return


def _below(container: Value, step: str | Item) -> Value:
    if isinstance(step, str):
        return container.get(step) if isinstance(container, dict) else None
    for entry in container if isinstance(container, list) else ():
        if _is_item(entry, step):
            return entry
    return None


def _drop(container: Value, step: str | Item) -> None:
    if isinstance(step, str):
        if isinstance(container, dict):
            container.pop(step, None)
    elif isinstance(container, list):
        container[:] = [entry for entry in container if entry != {} and not _is_item(entry, step)]
