"""Compares an object with the structural schema of its kind, as the API server does. Pure."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from banlieue.api.crd.schema import Schema, structural_schema
from banlieue.api.meta import ResourceObject

_METADATA: Mapping[str, Schema] = {
    name: {}
    for name in (
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    )
}
"""Fields every object's metadata may have; what is in them is not looked at."""

_NAMES: Mapping[str, tuple[str, type | tuple[type, ...]]] = {
    "object": ("an object", Mapping),
    "array": ("a list", list),
    "string": ("a string", str),
    "boolean": ("true or false", bool),
    "integer": ("an integer", (int, float)),
    "number": ("a number", (int, float)),
}


def unknown(obj: Mapping[str, Any], kind: type[ResourceObject]) -> list[str]:
    """Paths of fields that the kind's schema does not have."""
    return list(_unknown(obj, _schema(kind), ""))


def wrong(obj: Mapping[str, Any], kind: type[ResourceObject]) -> list[str]:
    """What is of another type than its field, and what a list has twice that may be there once."""
    return list(_wrong(obj, _schema(kind), ""))


_schema = cache(structural_schema)


def _unknown(value: object, schema: Schema, path: str) -> Iterator[str]:
    if isinstance(value, list):
        inner = schema.get("items") or {}
        for number, item in enumerate(value):
            yield from _unknown(item, inner, f"{path}[{number}]")
    elif isinstance(value, Mapping):
        yield from _unknown_in(value, schema, path)


def _unknown_in(value: Mapping[str, Any], schema: Schema, path: str) -> Iterator[str]:
    known = _METADATA if path == "metadata" else schema.get("properties")
    if known is None:
        return
    for name, inner in value.items():
        where = f"{path}.{name}" if path else str(name)
        if name in known:
            yield from _unknown(inner, known[name], where)
        else:
            yield where


def _wrong(value: object, schema: Schema, path: str) -> Iterator[str]:
    if value is None:
        return  # as if it were not there: the model says whether it is required
    wanted = schema.get("type", "")
    if wanted in _NAMES and not _is(value, wanted):
        yield f"{path or 'the object'} must be {_NAMES[wanted][0]}{_example(schema)}"
    elif isinstance(value, list):
        yield from _repeated(value, schema, path)
        inner = schema.get("items") or {}
        for number, item in enumerate(value):
            yield from _wrong(item, inner, f"{path}[{number}]")
    elif isinstance(value, Mapping):
        known, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, item in value.items():
            inner = known.get(name, others if isinstance(others, dict) else {})
            yield from _wrong(item, inner, f"{path}.{name}" if path else str(name))


def _is(value: object, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _NAMES[wanted][1])


def _example(schema: Schema) -> str:
    return ", such as {name: small}" if schema.get("required") == ["name"] else ""


def _repeated(value: list[Any], schema: Schema, path: str) -> Iterator[str]:
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    seen: list[Any] = []
    for number, item in enumerate(value):
        if keys and isinstance(item, Mapping):
            of_item: Any = [item.get(key) for key in keys]
        elif schema.get("x-kubernetes-list-type") == "set":
            of_item = item
        else:
            continue
        if of_item in seen:
            what = f"the {' and '.join(keys)}" if keys else "the value"
            first = f"{path}[{seen.index(of_item)}]"
            yield f"{path}[{number}] has {what} of {first}; each may be there once"
        seen.append(of_item)
