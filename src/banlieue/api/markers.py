"""What a model says about its CRD beyond its Python types: list semantics, CEL rules, columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

VALIDATIONS = "x-kubernetes-validations"
WITHOUT_TRANSITIONS = "x-banlieue-without-transitions"


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL invariant the API server enforces (``x-kubernetes-validations``).

    Stands in a model's ``cel`` tuple, where ``self`` is the object, or in a field's ``Annotated``,
    where ``self`` is the field's value.

    Attributes:
        expression: CEL; true means valid. One that names ``oldSelf`` runs on updates only.
        message: names the field and says what to do instead.
        field_path: the offending field below ``self``, such as ``.spec.imageRef``, so that the
            answer of the API server points at it.
    """

    expression: str
    message: str
    field_path: str = ""

    def to_api(self) -> dict[str, str]:
        """Give the rule as it stands in a CRD."""
        shown = {"rule": self.expression, "message": self.message}
        if self.field_path:
            shown["fieldPath"] = self.field_path
        return shown

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core)
        return {**schema, VALIDATIONS: [*schema.get(VALIDATIONS, ()), self.to_api()]}


@dataclass(frozen=True, slots=True)
class Extension:
    """Adds keywords such as ``x-kubernetes-list-type`` to the schema of a field."""

    keywords: Mapping[str, Any]

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(core), **self.keywords}

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.keywords)))


def list_map(*keys: str) -> Extension:
    """Let server-side apply merge a list item by item, told apart by these properties."""
    return Extension(
        {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)},
    )


LIST_SET = Extension({"x-kubernetes-list-type": "set"})
"""A list of unique scalars: writers may each own some of the items."""

ATOMIC = Extension({"x-kubernetes-list-type": "atomic"})
"""A list that is replaced as a whole. Lists without another word are rendered atomic too."""

ATOMIC_MAP = Extension({"x-kubernetes-map-type": "atomic"})
"""A map or object that is replaced as a whole."""

TEMPLATE = Extension({WITHOUT_TRANSITIONS: True})
"""Below here no transition rules: ClusterClass rotates templates under dry-run, which CEL in a CRD
cannot see; an admission policy guards templates instead."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``kubectl get``; a wide one shows with ``-o wide`` only."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False
    description: str = ""


AGE = Column("Age", ".metadata.creationTimestamp", type="date")


@dataclass(frozen=True, slots=True)
class Definition:
    """What the CRD of a kind carries beside its schema.

    Attributes:
        short_names: what may be typed instead of the plural.
        categories: groups for ``kubectl get <category>``.
        columns: of ``kubectl get``, in order.
        selectable: field paths the API server can filter lists and watches by.
        labels: of the CRD object itself.
    """

    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ("banlieue",)
    columns: tuple[Column, ...] = (AGE,)
    selectable: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
