"""What clusterctl does with the variables of a template."""

import re
from collections.abc import Mapping
from typing import Final

_VARIABLE: Final = re.compile(r"\$\{\s*([A-Z0-9_]+)\s*(?::?=([^}]*))?\}")
_ANY: Final = re.compile(r"\$\{[^}]*\}?")


def variables(text: str) -> dict[str, str | None]:
    """The variables of a template with their defaults, None for those that must be given.

    Raises:
        ValueError: Something looks like a variable and is none, or has two defaults.
    """
    found: dict[str, str | None] = {}
    for match in _ANY.finditer(text):
        whole = _VARIABLE.fullmatch(match[0])
        if whole is None:
            raise ValueError(f"{match[0]} is no variable")
        # clusterctl takes an empty default for none; a quoted empty string is one.
        name, default = whole[1], whole[2] or None
        if found.setdefault(name, default) != default:
            raise ValueError(f"{name} has two defaults")
    return found


def substitute(text: str, values: Mapping[str, str]) -> str:
    """Put values, or defaults, in the place of variables.

    Raises:
        KeyError: A variable has neither.
    """
    defaults = variables(text)

    def value(match: re.Match[str]) -> str:
        name = match[1]
        default = defaults[name]
        return values[name] if name in values or default is None else default

    return _VARIABLE.sub(value, text)
