"""Renders the API reference: every field, rule, reason and event, from the same models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from banlieue.api.conditions import ConditionType, Phase
from banlieue.api.crd.render import crd
from banlieue.api.events import EventReason
from banlieue.api.markers import VALIDATIONS
from banlieue.api.meta import ResourceObject
from banlieue.api.reasons import RESERVED, Reason

_INTRODUCTION = """# API reference

Made from the models by `make generate`; edits are lost. `kubectl explain` shows the same texts.

A field without default is absent until somebody sets it. **Required** fields are required only
where the object around them is given.
"""

_CLASSES = """Class says what follows: `F` nothing, it is how things stand; `T` tried again with
growing pauses; `W` waits for a change elsewhere; `S` waits for a change of the spec or of what it
refers to; `C` a person has to decide.
"""

_TEMPLATE_SPEC = "spec.template.spec"
"""Not told again: what the template is of, less the fields that controllers write."""

_HEAD = ("| Field | Type | Default | Meaning |", "| --- | --- | --- | --- |")


def reference(kinds: Iterable[type[ResourceObject]]) -> str:
    """Give the API reference of these kinds as Markdown."""
    lines = [_INTRODUCTION]
    for kind in kinds:
        lines += _kind(kind)
    lines += ["## Conditions", "", "| Type | Meaning |", "| --- | --- |"]
    lines += [f"| `{word}` | {word.meaning} |" for word in ConditionType]
    lines += ["", "## Reasons of conditions", "", _CLASSES]
    lines += ["| Reason | Class | Meaning |", "| --- | --- | --- |"]
    lines += [
        f"| `{word}` | {word.kind} | {word.meaning} |" for word in Reason if word not in RESERVED
    ]
    lines += ["", "## Events", "", "| Reason | Meaning |", "| --- | --- |"]
    lines += [f"| `{word}` | {word.meaning} |" for word in EventReason]
    lines += ["", "## Phases", "", ", ".join(f"`{word}`" for word in Phase) + "."]
    return "\n".join(lines) + "\n"


def _kind(kind: type[ResourceObject]) -> Iterator[str]:
    rendered = crd(kind)["spec"]
    names, schema = rendered["names"], rendered["versions"][0]["schema"]["openAPIV3Schema"]
    yield f"## {kind.resource.kind}"
    yield ""
    yield schema["description"]
    yield ""
    short = ", ".join(f"`{name}`" for name in names.get("shortNames", ()))
    scope = "in namespaces" if kind.resource.namespaced else "cluster-wide"
    yield f"`{kind.resource.api_version}`, {scope}" + (f", short {short}" if short else "") + "."
    yield ""
    yield from _HEAD
    for name in ("spec", "status"):
        if name in schema["properties"]:
            yield from _rows(schema["properties"][name], name, required=name == "spec")
    yield ""
    rules = sorted(set(_messages(schema)))
    if rules:
        yield "The API server refuses what breaks these rules:"
        yield ""
        yield from (f"- {message}" for message in rules)
        yield ""


def _rows(schema: dict[str, Any], path: str, *, required: bool) -> Iterator[str]:
    default = schema.get("default", "")
    cells = (
        f"`{path}`",
        _type(schema) + (", **required**" if required else ""),
        f"`{_plain(default)}`" if default != "" else "",
        schema.get("description", "").replace("\n", " ").replace("|", "\\|"),
    )
    yield "| " + " | ".join(cells) + " |"
    if _known(schema) or path == _TEMPLATE_SPEC:
        return
    inner = schema.get("items", schema.get("additionalProperties", schema))
    mark = "[]" if "items" in schema else ".*" if "additionalProperties" in schema else ""
    for name, value in inner.get("properties", {}).items():
        needed = name in inner.get("required", ())
        yield from _rows(value, f"{path}{mark}.{name}", required=needed)


def _known(schema: dict[str, Any]) -> str:
    """Name a shape every reader of Kubernetes knows; its fields are not told again."""
    properties = schema.get("items", schema).get("properties", {})
    if "matchExpressions" in properties:
        return "label selector"
    return "list of conditions" if "lastTransitionTime" in properties else ""


def _type(schema: dict[str, Any]) -> str:
    if known := _known(schema):
        return known
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    return "time" if schema.get("format") == "date-time" else str(schema["type"])


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_plain(item)}" for key, item in value.items()) + "}"
    return str(value)


def _messages(schema: dict[str, Any]) -> Iterator[str]:
    yield from (rule["message"] for rule in schema.get(VALIDATIONS, ()))
    for inner in schema.get("properties", {}).values():
        yield from _messages(inner)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from _messages(schema[key])
