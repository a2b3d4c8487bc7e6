"""Field and label selectors, as the API server reads them."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_SET = re.compile(r"^\s*(\S+)\s+(in|notin)\s+\(([^)]*)\)\s*$")
_COMMA = re.compile(r",(?![^(]*\))")


def matches_fields(obj: Mapping[str, Any], selector: str) -> bool:
    """Whether the object's fields have the values of `a.b=c,d.e!=f`; absent counts as empty."""
    for path, unequal, value in _comparisons(selector):
        if (_field(obj, path) == value) == unequal:
            return False
    return True


@lru_cache(maxsize=256)
def _comparisons(selector: str) -> tuple[tuple[tuple[str, ...], bool, str], ...]:
    terms = (_comparison(part.strip()) for part in selector.split(",") if part.strip())
    return tuple((tuple(path.split(".")), unequal, value) for path, unequal, value in terms)


def matches_labels(labels: Mapping[str, str], selector: str) -> bool:
    """Whether labels meet `a=b,c!=d,e in (x,y),f notin (z),g,!h`."""
    if not selector:
        return True
    terms = (part.strip() for part in _COMMA.split(selector))
    return all(_label_term(labels, term) for term in terms if term)


def _label_term(labels: Mapping[str, str], term: str) -> bool:
    if found := _SET.match(term):
        key, operator, values = found.groups()
        inside = labels.get(key) in {value.strip() for value in values.split(",")}
        return inside == (operator == "in")
    if "=" not in term:
        return term.lstrip("!") not in labels if term.startswith("!") else term in labels
    key, unequal, value = _comparison(term)
    return (labels.get(key) == value) != unequal


def _comparison(term: str) -> tuple[str, bool, str]:
    for operator, unequal in (("!=", True), ("==", False), ("=", False)):
        if operator in term:
            key, _, value = term.partition(operator)
            return key.strip(), unequal, value.strip()
    raise ValueError(f"not a selector term: {term!r}")


def _field(obj: Mapping[str, Any], path: tuple[str, ...]) -> str:
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
