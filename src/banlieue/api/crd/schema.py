"""Turns a model into the structural OpenAPI schema of a CRD.

Pydantic gives the JSON schema; this turns it into what the API server takes: no references, no
nulls, unions of string and integer in Kubernetes' own way, a list type on every list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from banlieue.api.markers import VALIDATIONS, WITHOUT_TRANSITIONS
from banlieue.api.meta import ResourceObject

Schema = dict[str, Any]

_DROPPED = frozenset({"title", "default", WITHOUT_TRANSITIONS})
_ORDER = ("description", "type", "format", "enum", "default")
_LAST = ("required", "items", "additionalProperties", "properties", VALIDATIONS)
_STRUCTURE = frozenset(
    {"$ref", "allOf", "anyOf", "const", "properties", "items", "additionalProperties"}
)


class UnsupportedSchemaError(TypeError):
    """A model uses a type the API server cannot check; the message names the place."""


@dataclass(frozen=True, slots=True)
class _Context:
    definitions: Mapping[str, Schema]
    path: str = ""
    defaults: bool = True
    """Whether defaults are shown: not in status, which only controllers write."""
    transitions: bool = True
    """Whether rules that compare with the old object are shown: not in templates."""

    def at(self, name: str) -> _Context:
        return replace(self, path=f"{self.path}.{name}")


def structural_schema(kind: type[ResourceObject]) -> Schema:
    """Give the schema of a kind as it stands in its CRD.

    Raises:
        UnsupportedSchemaError: a field has a type the API server cannot check.
    """
    source = kind.model_json_schema(by_alias=True)
    context = _Context(source.get("$defs", {}), kind.__name__)
    properties: Schema = {
        "apiVersion": {"type": "string", "description": "Group and version of the kind."},
        "kind": {"type": "string", "description": "The kind."},
        "metadata": {"type": "object"},
    }
    for name in ("spec", "status"):
        if name in source["properties"]:
            inner = replace(context.at(name), defaults=name == "spec")
            properties[name] = _structural(source["properties"][name], inner)
    schema: Schema = {
        "type": "object",
        "description": one_line(source.get("description", "")),
        "properties": properties,
        "required": [name for name in source.get("required", ()) if name in properties],
    }
    if VALIDATIONS in source:
        schema[VALIDATIONS] = source[VALIDATIONS]
    return _ordered({key: value for key, value in schema.items() if value not in ("", [])})


def _ordered(schema: Schema) -> Schema:
    """Put keywords in one order that reads well: what it is, its bounds, what is in it."""

    def rank(key: str) -> tuple[int, str]:
        if key in _ORDER:
            return _ORDER.index(key), ""
        return (100 + _LAST.index(key), "") if key in _LAST else (50, key)

    return {key: schema[key] for key in sorted(schema, key=rank)}


def one_line(text: str) -> str:
    """Undo the line breaks of a docstring, but not its paragraphs."""
    paragraphs = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _structural(source: Schema, context: _Context) -> Schema:
    return _ordered(_keywords(source, context))


def _keywords(source: Schema, context: _Context) -> Schema:
    merged = _resolve(source, context)
    if merged.get(WITHOUT_TRANSITIONS):
        context = replace(context, transitions=False)
    schema = {key: value for key, value in merged.items() if key not in _DROPPED | _STRUCTURE}
    if "description" in schema:
        schema["description"] = one_line(schema["description"])
    if "const" in merged:
        schema["enum"] = [merged["const"]]
    if context.defaults and merged.get("default") is not None:
        schema["default"] = merged["default"]
    if VALIDATIONS in schema:
        _keep_rules(schema, context)
    if "anyOf" in merged:
        return {**schema, **_union(merged["anyOf"], context)}
    if schema.get("type") == "object":
        return {**schema, **_object(merged, context)}
    if schema.get("type") == "array":
        return {**schema, **_array(merged, context)}
    if schema.get("type") not in ("string", "integer", "boolean"):
        raise UnsupportedSchemaError(f"{context.path}: {schema.get('type', 'no type')}")
    return schema


def _resolve(source: Schema, context: _Context) -> Schema:
    """Follow references and take the null out of an optional; the outer words win."""
    merged = source
    while True:
        if "$ref" in merged:
            name = merged["$ref"].rsplit("/", 1)[1]
            inner, outer = context.definitions[name], _without(merged, "$ref")
        elif len(merged.get("allOf", ())) == 1:
            inner, outer = merged["allOf"][0], _without(merged, "allOf")
        else:
            options = [option for option in merged.get("anyOf", ()) if option != {"type": "null"}]
            if len(options) != 1:
                return {**merged, "anyOf": options} if options else merged
            inner, outer = options[0], _without(merged, "anyOf")
        rules = [*inner.get(VALIDATIONS, ()), *outer.get(VALIDATIONS, ())]
        merged = {**inner, **outer}
        if rules:
            merged[VALIDATIONS] = rules


def _without(schema: Schema, key: str) -> Schema:
    return {name: value for name, value in schema.items() if name != key}


def _keep_rules(schema: Schema, context: _Context) -> None:
    rules = [
        rule
        for rule in schema.pop(VALIDATIONS)
        if context.transitions or "oldSelf" not in rule["rule"]
    ]
    if rules:
        schema[VALIDATIONS] = rules


def _union(options: list[Schema], context: _Context) -> Schema:
    """Render a union of string and integer; the bounds of each apply to its own type only."""
    by_type = {option.get("type"): option for option in options}
    if set(by_type) != {"string", "integer"} or len(options) != len(by_type):
        raise UnsupportedSchemaError(f"{context.path}: only string and integer can be united")
    bounds = {
        key: value
        for option in (by_type["integer"], by_type["string"])
        for key, value in option.items()
        if key not in ("type", "title")
    }
    return {
        **bounds,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    }


def _object(merged: Schema, context: _Context) -> Schema:
    if "properties" in merged:
        return {
            "properties": {
                name: _structural(value, context.at(name))
                for name, value in merged["properties"].items()
            }
        }
    values = merged.get("additionalProperties")
    if not isinstance(values, dict):
        raise UnsupportedSchemaError(f"{context.path}: a map must say what its values are")
    return {"additionalProperties": _structural(values, context.at("*"))}


def _array(merged: Schema, context: _Context) -> Schema:
    rendered: Schema = {"items": _structural(merged["items"], context.at("[]"))}
    if "x-kubernetes-list-type" not in merged:
        rendered["x-kubernetes-list-type"] = "atomic"
    return rendered
