"""An object as the in-memory server stores it, and the rules of what a write may change."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from banlieue.sdk.kube import STATUS, Obj
from banlieue.sdk.testing import field_sets

SERVER_FIELDS = ("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
"""Members of metadata that only the server writes."""

FieldOwner = tuple[str, str]
"""A field manager and the subresource it writes through."""


@dataclass(slots=True)
class Stored:
    """An object and who owns which of its fields; the object is replaced, never changed."""

    obj: Obj
    owned: dict[FieldOwner, set[field_sets.Path]] = field(default_factory=dict)


def copy_owned(
    owned: Mapping[FieldOwner, set[field_sets.Path]],
) -> dict[FieldOwner, set[field_sets.Path]]:
    """Field sets of all owners, to be changed apart from the original."""
    return {owner: set(paths) for owner, paths in owned.items()}


def without_nulls(obj: Mapping[str, Any]) -> Obj:
    """A deep copy without nulls below metadata, spec and status, which no server keeps."""

    def scrub(value: Any) -> Any:  # noqa: ANN401 - JSON data
        if isinstance(value, Mapping):
            return {k: scrub(v) for k, v in value.items() if v is not None}
        if isinstance(value, list | tuple):
            return [scrub(v) for v in value]
        return value

    cleaned: Obj = scrub(obj)
    return cleaned


def finalizers(obj: Obj) -> list[str]:
    """Finalizers of the object."""
    return list(obj["metadata"].get("finalizers") or ())


def owned_leaves(obj: Obj) -> Iterator[tuple[field_sets.Path, Any]]:
    """Leaves a field manager can own: all but identity and what the server writes."""
    skip = {*SERVER_FIELDS, "name", "namespace", "managedFields"}
    for path, value in field_sets.leaves(obj):
        if path[0] in {"apiVersion", "kind"} or (path[0] == "metadata" and path[1:2][0] in skip):
            continue
        yield path, value


def restrict(before: Obj, after: Obj, subresource: str) -> Obj:
    """Only what this endpoint may change: status through its subresource, all else otherwise.

    What stays is shared with `before`: stored objects never change.
    """
    if subresource:
        merged, source = {**before, "metadata": {**before["metadata"]}}, without_nulls(after)
    else:
        merged, source = without_nulls(after), before
    merged.pop(STATUS, None)
    if source.get(STATUS) is not None:
        merged[STATUS] = source[STATUS]
    for name in SERVER_FIELDS:
        if name in before["metadata"]:
            merged["metadata"][name] = before["metadata"][name]
    return merged


def hand_over(before: Obj, after: Stored, owner: FieldOwner) -> None:
    """Give every leaf that changed to `owner`, and forget the ownership of vanished ones."""
    moved = {
        part for part in before.keys() | after.obj.keys() if before.get(part) != after.obj.get(part)
    }
    old = _leaves_of(before, moved)
    new = _leaves_of(after.obj, moved)
    changed = {path for path, value in new.items() if path not in old or old[path] != value}
    lost = changed | (old.keys() - new.keys())
    for paths in after.owned.values():
        paths.difference_update(lost)
    after.owned.setdefault(owner, set()).update(changed)


def _leaves_of(obj: Obj, parts: Collection[str]) -> dict[field_sets.Path, Any]:
    chosen = {part: value for part, value in obj.items() if part in parts}
    return dict(owned_leaves(chosen)) if chosen else {}


def generation_moves(before: Obj, after: Obj) -> bool:
    """Whether the server counts the change as a new generation: outside metadata and status."""
    ignored = {"metadata", STATUS}
    deleted = after["metadata"].get("deletionTimestamp") != before["metadata"].get(
        "deletionTimestamp"
    )
    return deleted or {k: v for k, v in before.items() if k not in ignored} != {
        k: v for k, v in after.items() if k not in ignored
    }
