"""What has to hold for every version of an object that banlieue writes, and between two of them.

Pure functions over objects as a watch shows them. Only what our own processes wrote is judged: a
test may wipe or forge a status, and what follows is compared with what it left.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from test.kit import kstatus

Object = Mapping[str, Any]

OURS: Final = "banlieue.io/"
"""How the field managers of our processes begin."""

_STATUSES: Final = frozenset({"True", "False", "Unknown"})
_TYPE: Final = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])"
)
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_RESTLESS: Final = re.compile(
    r"\d{4}-\d\d-\d\dT|(?<![:\w])([01]\d|2[0-3]):[0-5]\d:[0-5]\d(?![:\w])|\d\s?%"
)
_LONGEST_REASON: Final = 1024
_LONGEST_MESSAGE: Final = 32768
_MACHINE: Final = "Machine"


def faults_of(obj: Object, before: Object | None = None) -> Iterator[str]:
    """What is wrong with one version's status, but for what the version before it had already.

    A restored status counts generations that the new object has not reached.
    """
    status = obj.get("status") or {}
    generation = obj["metadata"].get("generation", 0)
    known = _conditions(before) if before else {}
    seen: set[str] = set()
    for item in status.get("conditions") or ():
        kind = str(item.get("type"))
        if kind in seen:
            yield f"condition {kind} is there twice"
        seen.add(kind)
        if known.get(kind) == item:
            continue
        for fault in _condition_faults(item, generation):
            yield f"condition {kind}: {fault}"
    observed = _observed(obj)
    if observed > generation and (before is None or observed != _observed(before)):
        yield f"observedGeneration {observed} is ahead of generation {generation}"
    if status and _has_null(status):
        yield "the status has a null"
    if _is_unnamed(obj) and not (before and _is_unnamed(before)):
        yield "initialization.provisioned is true and spec.providerID is not set"
    if status != ((before or {}).get("status") or {}):
        yield from kstatus.faults_of(obj)


def _condition_faults(item: Mapping[str, Any], generation: int) -> Iterator[str]:
    kind, reason, message = (item.get(name, "") for name in ("type", "reason", "message"))
    if not _TYPE.fullmatch(kind):
        yield f"type {kind!r} is not allowed"
    if item.get("status") not in _STATUSES:
        yield f"status {item.get('status')!r} is not allowed"
    if not _REASON.fullmatch(reason) or len(reason) > _LONGEST_REASON:
        yield f"reason {reason!r} is not allowed"
    if len(message) > _LONGEST_MESSAGE:
        yield f"a message of {len(message)} characters is not allowed"
    if restless := _RESTLESS.search(message):
        yield f"the message would change all the time: {restless[0]!r} in {message!r}"
    if not _is_time(item.get("lastTransitionTime", "")):
        yield f"lastTransitionTime {item.get('lastTransitionTime')!r} is not whole seconds in UTC"
    observed = item.get("observedGeneration")
    if observed is None:
        yield "observedGeneration is missing"
    elif not 0 < observed <= generation:
        yield f"observedGeneration is {observed}, generation is {generation}"


def _is_time(text: str) -> bool:
    if not _TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _has_null(value: object) -> bool:
    left = [value]
    for item in left:  # which grows meanwhile
        if isinstance(item, dict):
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)
    return None in left


def faults_between(old: Object, new: Object) -> Iterator[str]:
    """What is wrong with one write of ours; both are versions of one object, by uid."""
    if _content(old) == _content(new) and not _is_taken_up(old, new):
        yield "written although nothing changed"
    before, after = (_conditions(it) for it in (old, new))
    reached = old["metadata"].get("generation", 0)
    for kind in before.keys() & after.keys():
        for fault in _transition_faults(before[kind], after[kind]):
            yield f"condition {kind}: {fault}"
        seen, sees = (it[kind].get("observedGeneration", 0) for it in (before, after))
        if sees < min(seen, reached):
            yield f"condition {kind}: observedGeneration went back from {seen} to {sees}"
    if _provisioned(old) and not _provisioned(new):
        yield "initialization.provisioned was true and is not any more"
    agreed = _may_change_identity(new.get("spec") or {}, new.get("status") or {})
    for path, value in () if agreed else _lasting(old).items():
        if _lasting(new).get(path) != value:
            yield f"{path} was {value!r} and is {_lasting(new).get(path)!r}"
    if _observed(new) < min(_observed(old), reached):
        yield f"observedGeneration went back from {_observed(old)} to {_observed(new)}"


def _transition_faults(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    since, now = old.get("lastTransitionTime", ""), new.get("lastTransitionTime", "")
    if now < since:
        yield f"lastTransitionTime went back from {since} to {now}"
    if old.get("status") == new.get("status") and now != since:
        yield f"lastTransitionTime moved from {since} to {now} without a change of status"


def is_ours(old: Object, new: Object) -> bool:
    """Whether one of our processes made the new version, as its field managers tell.

    A write that changes values of fields its writer owned before leaves no trace there: then it
    counts as ours once we wrote anything at all, because others own nothing that is judged here.
    """
    before, after = _writers(old), _writers(new)
    wrote = [name for name, entry in after.items() if _moved(before.get(name), entry)]
    if wrote:
        return any(name[0].startswith(OURS) for name in wrote)
    # Somebody who only takes fields away owns none: our sets shrink, their times stay.
    return bool(_owned(before)) and _owned(before) == _owned(after)


def _is_taken_up(old: Object, new: Object) -> bool:
    """Whether we recorded as ours what others brought along: a restore, or a move of Cluster API.

    Once: from then on the record is there.
    """
    added = _writers(new).keys() - _writers(old).keys()
    return any(name[0].startswith(OURS) for name in added)


def _writers(obj: Object) -> dict[tuple[str, str, str], Mapping[str, Any]]:
    return {
        (it["manager"], it["operation"], it.get("subresource", "")): it
        for it in obj["metadata"].get("managedFields") or ()
    }


def _owned(writers: Mapping[tuple[str, str, str], Mapping[str, Any]]) -> list[Any]:
    return [
        entry["fieldsV1"] for name, entry in sorted(writers.items()) if name[0].startswith(OURS)
    ]


def _moved(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> bool:
    if before is None or before.get("time") != after.get("time"):
        return True
    # Within one second only what it owns tells.
    return len(json.dumps(after["fieldsV1"])) > len(json.dumps(before["fieldsV1"]))


def _content(obj: Object) -> dict[str, Any]:
    metadata = {
        key: value
        for key, value in obj["metadata"].items()
        if key not in {"managedFields", "resourceVersion"}
    }
    return {**obj, "metadata": metadata}


def _conditions(obj: Object) -> dict[str, Mapping[str, Any]]:
    return {it["type"]: it for it in (obj.get("status") or {}).get("conditions") or ()}


def _observed(obj: Object) -> int:
    return (obj.get("status") or {}).get("observedGeneration") or 0


def _provisioned(obj: Object) -> bool:
    status = obj.get("status") or {}
    return bool((status.get("initialization") or {}).get("provisioned"))


def _is_unnamed(obj: Object) -> bool:
    """Whether a machine is provisioned without its provider id, where Cluster API would stay."""
    kind = str(obj.get("kind", ""))
    is_machine = kind.endswith(_MACHINE) and kind != "VirtualMachine"
    return is_machine and _provisioned(obj) and not (obj.get("spec") or {}).get("providerID")


def _lasting(obj: Object) -> dict[str, Any]:
    """What never changes once it is set, by path."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if obj["kind"].endswith(_MACHINE) and obj["kind"] != "VirtualMachine":
        found = {"spec.providerID": spec.get("providerID"), "spec.instance": spec.get("instance")}
    elif _may_change_identity(spec, status):
        found = {}
    else:
        found = {
            "status.providerID": status.get("providerID"),
            "status.backendIdentity": status.get("backendIdentity"),
        }
    return {path: value for path, value in found.items() if value is not None}


def _may_change_identity(spec: Object, status: Object) -> bool:
    """Whether its user agreed: to another VM, to a move, or to another backend at the endpoint."""
    accepted = (spec.get("connection") or {}).get("acceptedIdentities")
    return bool(spec.get("onMissing") == "Recreate" or status.get("previous") or accepted)


def difference(old: Object | None, new: Object) -> str:
    """Both versions compared line by line, without bookkeeping."""
    compared = difflib.unified_diff(_lines(old), _lines(new), "before", "after", n=2, lineterm="")
    return "\n".join(compared)


def _lines(obj: Object | None) -> list[str]:
    return json.dumps(_content(obj), indent=1, sort_keys=True).splitlines() if obj else []
