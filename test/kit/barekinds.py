"""Kinds of others without their schemas, where only their names and statuses matter."""

from test.kit.kube import Object


def bare_kind(group: str, kind: str, plural: str, version: str = "v1beta2") -> Object:
    """The definition of a namespaced kind that takes any spec and has a status of its own."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "plural": plural,
                "singular": kind.lower(),
                "listKind": f"{kind}List",
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": anything, "status": anything},
                        }
                    },
                    "subresources": {"status": {}},
                }
            ],
        },
    }
