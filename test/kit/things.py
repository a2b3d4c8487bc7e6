"""A small kind for tests of the runtime: what our kinds have, without what they mean."""

from typing import Any, Final

from banlieue.api.meta import Resource

GROUP: Final = "test.banlieue.io"
THINGS: Final = Resource(GROUP, "v1", "Thing", "things")

_TEXT: Final = {"type": "string"}
_CONDITION: Final = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {"type": _TEXT, "status": _TEXT, "reason": _TEXT, "message": _TEXT},
}
_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"owner": _TEXT, "size": {"type": "integer", "maximum": 100}},
        },
        "status": {
            "type": "object",
            "properties": {
                "phase": _TEXT,
                "note": _TEXT,
                "conditions": {
                    "type": "array",
                    "items": _CONDITION,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                },
            },
        },
    },
}


def definition(resource: Resource = THINGS) -> dict[str, Any]:
    """The CustomResourceDefinition, also for another kind of the same shape."""
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _SCHEMA},
        "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": ".spec.owner"}],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {
                "kind": resource.kind,
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "listKind": f"{resource.kind}List",
            },
            "versions": [version],
        },
    }


def thing(
    name: str, owner: str = "", *, size: int | None = None, resource: Resource = THINGS
) -> dict[str, Any]:
    """A Thing to create."""
    spec: dict[str, Any] = {"owner": owner} if owner else {}
    if size is not None:
        spec["size"] = size
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
