"""Builds API objects with every field set, by walking the models, so that none can be forgotten.

Fields that exclude one another (`endpoint` and `endpoints`) cannot all be set in one object:
`variants` gives several objects that together set every field there is.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from banlieue.api.meta import Model, ResourceObject

FieldName = tuple[str, str]
"""A model's name and one of its fields."""

_MOMENT: Final = datetime(2026, 10, 1, 8, 0, 0, tzinfo=UTC)

_STRINGS: Final = (
    "gold-1",
    "eth0",
    "v1alpha1",
    "VSphereMachine",
    "10.0.0.7",
    "10.0.0.0/24",
    "00:50:56:ab:cd:ef",
    "0123abcd",
    "01234567-89ab-4cde-8f01-23456789abcd",
    "https://example.com/sdk",
    "sha256:" + "0123456789abcdef" * 4,
    "168h",
    "250m",
    "1.5",
    "vmx-19",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJvb2s= somebody",
    ":".join(["ab"] * 32),
)
"""One of these meets every pattern the API has."""

_VALUES: Final[Mapping[FieldName, object]] = {
    # Values that belong together by CEL rules.
    ("AddressRequest", "source"): "static",
    ("AddressAssignment", "source"): "static",
    ("AllowedNamespaces", "from_"): "Selector",
    ("ImageSource", "kind"): "Template",
    ("ImageSource", "import_from"): "https://example.com/disk.qcow2",
    ("LabelRequirement", "operator"): "In",
    ("Subnet", "gateway"): "10.0.0.1",
    ("Subnet", "allow_static"): ["10.0.0.128/25"],
    ("Provider", "metadata"): {},
    ("Condition", "type"): "Ready",
}

_EXCLUSIVE: Final[tuple[tuple[FieldName, ...], ...]] = (
    (("Connection", "endpoint"), ("Connection", "endpoints")),
    (("CaBundle", "inline"), ("CaBundle", "config_map_ref"), ("CaBundle", "secret_ref")),
)
"""Fields of which one at most can be set."""


def variants(kind: type[ResourceObject]) -> Iterator[ResourceObject]:
    """Give objects of a kind that together set every field of its spec and status."""
    rounds = max(len(group) for group in _EXCLUSIVE)
    seen: set[str] = set()
    for number in range(rounds):
        left_out = frozenset(
            field
            for group in _EXCLUSIVE
            for field in group
            if field != group[min(number, len(group) - 1)]
        )
        built = _Filler(left_out).object(kind)
        text = repr(built)
        if text not in seen:
            seen.add(text)
            yield built


def fields_of(kind: type[ResourceObject]) -> set[FieldName]:
    """Name every field of every model that a kind's spec and status are made of."""
    found: set[FieldName] = set()
    waiting: list[type[Model]] = [
        model for name in ("spec", "status") for model in _models_in(kind.model_fields.get(name))
    ]
    while waiting:
        model = waiting.pop()
        fields = {(model.__name__, name) for name in model.model_fields}
        if not fields <= found:
            found |= fields
            waiting += [inner for info in model.model_fields.values() for inner in _models_in(info)]
    return found


def fields_set(value: object) -> set[FieldName]:
    """Name the fields that are set somewhere in a value."""
    found: set[FieldName] = set()
    if isinstance(value, Model):
        for name in type(value).model_fields:
            inner = getattr(value, name)
            if inner not in (None, [], {}):
                found.add((type(value).__name__, name))
                found |= fields_set(inner)
    elif isinstance(value, Mapping):
        for inner in value.values():
            found |= fields_set(inner)
    elif isinstance(value, list):
        for inner in value:
            found |= fields_set(inner)
    return found


def _models_in(info: FieldInfo | None) -> list[type[Model]]:
    found: list[type[Model]] = []
    waiting = [info.annotation] if info else []
    while waiting:
        annotation: Any = waiting.pop()
        if isinstance(annotation, type) and issubclass(annotation, Model):
            found.append(annotation)
        else:
            waiting += get_args(annotation)
    return found


class _Filler:
    def __init__(self, left_out: frozenset[FieldName]) -> None:
        self._left_out = left_out

    def object(self, kind: type[ResourceObject]) -> ResourceObject:
        values: dict[str, Any] = {"metadata": {"name": "filled"}}
        for name in ("spec", "status"):
            if name in kind.model_fields:
                values[name] = self._value(kind.model_fields[name])
        return kind.model_validate(values)

    def _model(self, model: type[Model]) -> dict[str, Any]:
        filled: dict[str, Any] = {}
        for name, info in model.model_fields.items():
            key = (model.__name__, name)
            if key not in self._left_out:
                filled[name] = _VALUES[key] if key in _VALUES else self._value(info)
        return filled

    def _value(self, info: FieldInfo) -> Any:  # noqa: ANN401 - JSON data of any shape
        return self._of(_constrained(info.annotation, info.metadata))

    def _of(self, annotation: Any) -> Any:  # noqa: ANN401, PLR0911 - one answer per sort of type
        bare, constraints = _split(annotation)
        if get_origin(bare) in (Union, types.UnionType):
            options = [option for option in get_args(bare) if option is not types.NoneType]
            # Of string and integer the string comes last and is the harder one to keep.
            return self._of(_constrained(options[-1], constraints))
        if get_origin(bare) is list:
            return [self._of(get_args(bare)[0])]
        if get_origin(bare) is dict:
            return {"example.key": self._of(get_args(bare)[1])}
        if issubclass(bare, Model):
            return self._model(bare)
        if issubclass(bare, StrEnum):
            return next(iter(bare))
        if issubclass(bare, bool):
            return True
        if issubclass(bare, datetime):
            return _MOMENT
        return _scalar(annotation)


def _split(annotation: Any) -> tuple[Any, list[Any]]:  # noqa: ANN401 - a type
    constraints: list[Any] = []
    while get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        constraints = [*inner, *constraints]
    return annotation, constraints


def _constrained(annotation: Any, constraints: Iterable[Any]) -> Any:  # noqa: ANN401 - a type
    for constraint in constraints:
        annotation = Annotated[annotation, constraint]
    return annotation


def _scalar(annotation: Any) -> str | int:  # noqa: ANN401 - a type
    for candidate in (*_STRINGS, 1, 4, 64, 576, 6443):
        if _fits(annotation, candidate):
            return candidate
    raise AssertionError(f"add a value for {annotation} to test/kit/filled.py")


def _fits(annotation: Any, candidate: str | int) -> bool:  # noqa: ANN401 - a type
    try:
        _adapter(annotation).validate_python(candidate, strict=True)
    except ValidationError:
        return False
    return True


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - a type
    return TypeAdapter(annotation)
