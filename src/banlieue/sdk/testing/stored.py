"""An object as the in-memory server stores it, and the rules of what a write may change."""

from collections.abc import Iterator, Mapping
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
    cleaned: Obj = _scrubbed(obj)
    return cleaned


def _tidy(value: Any, known: Any) -> Any:  # noqa: ANN401 - JSON data
    """The value without nulls; what it shares with `known`, which has none, is shared still."""
    if value is known:
        return value
    if type(value) is dict:
        there = known if type(known) is dict else {}
        return {
            k: v if type(v) in _SCALARS else _tidy(v, there.get(k))
            for k, v in value.items()
            if v is not None
        }
    return _scrubbed(value)


_SCALARS = frozenset({str, int, float, bool})


def _scrubbed(value: Any) -> Any:  # noqa: ANN401 - JSON data
    kind = type(value)
    if kind is list:
        return [v if type(v) in _SCALARS else _scrubbed(v) for v in value]
    if kind is dict or (kind not in _SCALARS and isinstance(value, Mapping)):
        return {
            k: v if type(v) in _SCALARS else _scrubbed(v) for k, v in value.items() if v is not None
        }
    if kind not in _SCALARS and isinstance(value, list | tuple):
        return [_scrubbed(v) for v in value]
    return value


def finalizers(obj: Obj) -> list[str]:
    """Finalizers of the object."""
    return list(obj["metadata"].get("finalizers") or ())


def owned_leaves(obj: Obj) -> Iterator[tuple[field_sets.Path, Any]]:
    """Leaves a field manager can own: all but identity and what the server writes."""
    return field_sets.leaves(_ownable(obj))


_NOBODYS = frozenset({*SERVER_FIELDS, "name", "namespace", "managedFields"})


def _ownable(obj: Obj) -> Obj:
    found = {name: obj[name] for name in obj if name not in {"apiVersion", "kind"}}
    if meta := found.pop("metadata", None):
        found["metadata"] = {name: meta[name] for name in meta if name not in _NOBODYS}
        if not found["metadata"]:
            del found["metadata"]
    return found


def restrict(before: Obj, after: Obj, subresource: str) -> Obj:
    """Only what this endpoint may change: status through its subresource, all else otherwise.

    What stays is shared with `before`: stored objects never change.
    """
    if subresource:
        merged = {**before, STATUS: _tidy(after.get(STATUS), before.get(STATUS))}
    else:
        merged = {**_tidy(after, before), STATUS: before.get(STATUS)}
    if merged[STATUS] is None:
        del merged[STATUS]
    merged["metadata"] = {**merged["metadata"]}
    for name in SERVER_FIELDS:
        if name in before["metadata"]:
            merged["metadata"][name] = before["metadata"][name]
    return merged


def hand_over(before: Stored, after: Stored, owner: FieldOwner) -> None:
    """Give every leaf that changed to `owner`, and forget the ownership of vanished ones."""
    mine = after.owned.setdefault(owner, set())
    changed, gone = field_sets.difference(_ownable(before.obj), _ownable(after.obj))
    lost = {*changed, *gone}
    if lost:
        for paths in after.owned.values():
            paths.difference_update(lost)
        mine.update(changed)


def generation_moves(before: Obj, after: Obj) -> bool:
    """Whether the server counts the change as a new generation: outside metadata and status."""
    ignored = {"metadata", STATUS}
    deleted = after["metadata"].get("deletionTimestamp") != before["metadata"].get(
        "deletionTimestamp"
    )
    return deleted or {k: v for k, v in before.items() if k not in ignored} != {
        k: v for k, v in after.items() if k not in ignored
    }
