"""Whether a kind may take the place of the one that is in a cluster. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from banlieue.sdk.kube import Obj


def lost_fields(live: Obj, wanted: Obj) -> list[str]:
    """Fields that objects may have now and could not keep: the API server drops what it not knows.

    Args:
        live: the CustomResourceDefinition in the cluster.
        wanted: the one that would replace it.

    Returns:
        Paths such as `v1alpha1 spec.disks[].name`; only the topmost of what is lost.
    """
    found = []
    ours = {it["name"]: it for it in wanted["spec"]["versions"]}
    for version in live["spec"]["versions"]:
        name = version["name"]
        if name not in ours:
            found.append(name)
            continue
        found += [f"{name} {path}" for path in _lost(_schema(version), _schema(ours[name]), "")]
    return found


def _schema(version: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return found


def _lost(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[str]:
    if after.get("x-kubernetes-preserve-unknown-fields"):
        return
    there = after.get("properties") or {}
    for name, schema in (before.get("properties") or {}).items():
        below = f"{path}.{name}" if path else name
        if name in there:
            yield from _lost(schema, there[name], below)
        elif not _takes_any(after):
            yield below
    for inner, mark in (("items", "[]"), ("additionalProperties", ".*")):
        one, other = before.get(inner), after.get(inner)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _lost(one, other, f"{path}{mark}")
        elif one and not other:
            yield f"{path}{mark}"


def _takes_any(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("additionalProperties"))
