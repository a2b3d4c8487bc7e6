"""Copies of JSON data."""

import copy
from typing import Any, TypeVar, cast

T = TypeVar("T")

_SCALARS = (str, int, float, bool, type(None))


def clone(value: T) -> T:
    """A deep copy of JSON data, many times faster than one of anything."""
    return cast("T", _clone(value))


def _clone(value: Any) -> Any:  # noqa: ANN401 - JSON data
    kind = type(value)
    if kind is dict:
        return {key: _clone(below) for key, below in value.items()}
    if kind is list:
        return [_clone(below) for below in value]
    return value if isinstance(value, _SCALARS) else copy.deepcopy(value)
