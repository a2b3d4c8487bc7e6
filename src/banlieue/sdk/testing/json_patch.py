"""JSON patch (RFC 6902): `test`, `add`, `replace` and `remove`, the operations our writers use."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from banlieue.sdk.testing.plain import clone

Document = Any
"""A JSON value: dict, list, string, number, boolean or None."""


class PatchError(ValueError):
    """The patch is not valid, or points at something that is not there."""


class TestFailed(PatchError):
    """A `test` operation found another value."""

    __test__ = False  # the name starts with Test, but it is no test class


def apply_patch(document: Document, ops: Sequence[Mapping[str, Any]]) -> Document:
    """`document` with all of `ops` applied, in order; all or nothing.

    `document` stays as it is; the answer shares with it whatever the patch does not touch, so
    neither may be changed afterwards. Raises `TestFailed` and `PatchError`.
    """
    result = document
    for op in ops:
        result = _apply(result, op)
    return result


def _apply(document: Document, op: Mapping[str, Any]) -> Document:
    kind, pointer = op.get("op"), _steps(op.get("path"))
    if kind == "test":
        if _lookup(document, pointer) != op.get("value"):
            raise TestFailed(f"test of {op['path']} failed")
        return document
    if kind not in {"add", "replace", "remove"}:
        raise PatchError(f"unknown operation {kind!r}")
    if not pointer:
        if kind == "remove":
            raise PatchError("the whole document cannot be removed")
        return clone(op.get("value"))
    return _changed(document, pointer, str(kind), clone(op.get("value")))


def _changed(document: Document, steps: Sequence[str], kind: str, value: Document) -> Document:
    """A copy of the containers on the way, the last of which is changed."""
    fresh = copy(document)
    if len(steps) == 1:
        _change(fresh, steps[0], kind, value)
        return fresh
    step: Any = steps[0]
    below = _lookup(document, steps[:1])
    if isinstance(document, list):
        step = _index(document, step, len(document) - 1)
    fresh[step] = _changed(below, steps[1:], kind, value)
    return fresh


def _steps(path: object) -> list[str]:
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise PatchError(f"not a JSON pointer: {path!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _lookup(document: Document, steps: Sequence[str]) -> Document:
    value = document
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list):
            value = value[_index(value, step, len(value) - 1)]
        else:
            # A test of an absent member fails as a test, which callers tell from a broken patch.
            raise TestFailed(f"there is no member {step!r}")
    return value


def _index(items: list[Any], step: str, last: int) -> int:
    if not step.isdecimal() or int(step) > last:
        raise PatchError(f"there is no item {step!r} in a list of {len(items)}")
    return int(step)


def _change(parent: Document, step: str, kind: str, value: Document) -> None:
    if isinstance(parent, dict):
        if kind != "add" and step not in parent:
            raise PatchError(f"there is no member {step!r} to {kind}")
        if kind == "remove":
            del parent[step]
        else:
            parent[step] = value
    elif isinstance(parent, list):
        _change_item(parent, step, kind, value)
    else:
        raise PatchError(f"{step!r} does not stand in an object or a list")


def _change_item(items: list[Any], step: str, kind: str, value: Document) -> None:
    if kind == "add":
        at = len(items) if step == "-" else _index(items, step, len(items))
        items.insert(at, value)
        return
    at = _index(items, step, len(items) - 1)
    if kind == "remove":
        del items[at]
    else:
        items[at] = value
