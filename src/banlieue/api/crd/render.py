"""Renders CustomResourceDefinitions, for files, for ``banlieue bootstrap`` and for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from banlieue.api import yaml_text
from banlieue.api.crd.schema import structural_schema
from banlieue.api.markers import Column
from banlieue.api.meta import Resource, ResourceObject

HEADER = "# Made from the models by `make generate`; edits are lost.\n"


def crd(kind: type[ResourceObject]) -> dict[str, Any]:
    """Give the CustomResourceDefinition of a kind.

    Raises:
        UnsupportedSchemaError: a field has a type the API server cannot check.
    """
    resource, definition = kind.resource, kind.definition
    metadata: dict[str, Any] = {"name": resource.crd_name}
    if definition.labels:
        metadata["labels"] = dict(definition.labels)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": resource.group,
            "names": _names(kind),
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [_version(kind)],
        },
    }


def crds(kinds: Iterable[type[ResourceObject]]) -> list[dict[str, Any]]:
    """Give the CustomResourceDefinitions of several kinds, in their order."""
    return [crd(kind) for kind in kinds]


def file_name(resource: Resource) -> str:
    """Name the file a CRD stands in."""
    return f"{resource.group}_{resource.plural}.yaml"


def to_yaml(value: dict[str, Any]) -> str:
    """Write an object as a YAML document, the same at every run."""
    text: str = yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=False,
        width=100,
        allow_unicode=True,
        default_flow_style=False,
    )
    return text


class _Dumper(yaml_text.Dumper):
    """Writes equal values out in full, never as anchors, and paragraphs as they read."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def _text(dumper: yaml_text.Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _names(kind: type[ResourceObject]) -> dict[str, Any]:
    resource, definition = kind.resource, kind.definition
    names: dict[str, Any] = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.singular,
    }
    if definition.short_names:
        names["shortNames"] = list(definition.short_names)
    if definition.categories:
        names["categories"] = list(definition.categories)
    return names


def _version(kind: type[ResourceObject]) -> dict[str, Any]:
    version: dict[str, Any] = {
        "name": kind.resource.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(column) for column in kind.definition.columns],
    }
    if kind.definition.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.definition.selectable]
    if "status" in kind.model_fields:
        version["subresources"] = {"status": {}}
    version["schema"] = {"openAPIV3Schema": structural_schema(kind)}
    return version


def _column(column: Column) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.wide:
        shown["priority"] = 1
    if column.description:
        shown["description"] = column.description
    return shown
