"""Writes TOML, which the standard library only reads."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

Value: TypeAlias = "str | bool | int | Sequence[str] | Mapping[str, Value]"


def dump(document: Mapping[str, Value]) -> str:
    """The document as TOML. Tables nest; lists hold strings only."""
    return "\n".join(_table(document, ())) + "\n"


def _table(table: Mapping[str, Value], path: tuple[str, ...]) -> Iterator[str]:
    # The values of a table stand before its sub-tables, or they would belong to those.
    for key, value in table.items():
        if not isinstance(value, Mapping):
            yield f"{_quote(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield f"[{'.'.join(_quote(part) for part in (*path, key))}]"
            yield from _table(value, (*path, key))


def _value(value: "str | bool | int | Sequence[str]") -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _quote(value)
    return f"[{', '.join(_quote(item) for item in value)}]"


def _quote(text: str) -> str:
    # A basic string of TOML escapes as JSON does, but for DEL, which no configuration holds.
    return json.dumps(text)
