"""Copies of JSON data."""

import copy
import marshal
from typing import Any, TypeVar

T = TypeVar("T")

_SCALARS = (str, int, float, bool, type(None))


def clone(value: T) -> T:
    """A deep copy of JSON data, many times faster than one of anything."""
    plain: Any = value
    if type(plain) in _SCALARS:
        return value
    try:
        copied: T = marshal.loads(marshal.dumps(plain))  # noqa: S302 - written right here
    except ValueError:
        copied = _clone(value)  # something in it is of a subclass of a plain type
    return copied


def _clone(value: Any) -> Any:  # noqa: ANN401 - JSON data
    kind = type(value)
    if kind is dict:
        return {key: _clone(below) for key, below in value.items()}
    if kind is list:
        return [_clone(below) for below in value]
    return value if isinstance(value, _SCALARS) else copy.deepcopy(value)
