"""Copies of JSON data."""

import copy
import marshal
from typing import Any, TypeVar, cast

T = TypeVar("T")

_SCALARS = (str, int, float, bool, type(None))


def clone(value: T) -> T:
    """A deep copy of JSON data, many times faster than one of anything."""
    try:
        data = marshal.dumps(cast("Any", value))
    except ValueError:
        return cast("T", _clone(value))  # something in it is of a subclass of a plain type
    return cast("T", marshal.loads(data))  # noqa: S302 - written right here


def _clone(value: Any) -> Any:  # noqa: ANN401 - JSON data
    kind = type(value)
    if kind is dict:
        return {key: _clone(below) for key, below in value.items()}
    if kind is list:
        return [_clone(below) for below in value]
    return value if isinstance(value, _SCALARS) else copy.deepcopy(value)
