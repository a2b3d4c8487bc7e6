"""What an install would change, for people: before and after as YAML. Pure."""

import copy
import difflib

from banlieue.api.crd.render import to_yaml
from banlieue.bootstrap.objects import title
from banlieue.sdk.kube import Obj

_SERVERS_OWN = (
    "managedFields",
    "resourceVersion",
    "uid",
    "generation",
    "creationTimestamp",
    "selfLink",
)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def difference(live: Obj | None, after: Obj) -> str:
    """A unified diff of an object, empty when nothing would change.

    Args:
        live: what is in the cluster, None when it is not there.
        after: what would be.
    """
    name = title(after)
    lines = difflib.unified_diff(
        _shown(live),
        _shown(after),
        fromfile=f"{name} (in the cluster)" if live else "/dev/null",
        tofile=f"{name} (this version)",
    )
    return "".join(lines)


def same(before: Obj, after: Obj) -> bool:
    """Whether an object says the same, whatever controllers of the cluster wrote meanwhile."""
    return _own(before) == _own(after)


def must_be_new(live: Obj, wanted: Obj) -> bool:
    """Whether an object of an earlier version has to go first: the server changes no such field.

    What is not of an install of ours is never told to go.
    """
    labels = live["metadata"].get("labels") or {}
    if labels.get("app.kubernetes.io/part-of") != "banlieue":
        return False
    if "roleRef" in wanted:
        return bool(live.get("roleRef") != wanted["roleRef"])
    if wanted["kind"] == "Deployment":
        selector = (live.get("spec") or {}).get("selector")
        return bool(selector != wanted["spec"]["selector"])
    return False


def _shown(obj: Obj | None) -> list[str]:
    if obj is None:
        return []
    return to_yaml(_sorted(_own(obj))).splitlines(keepends=True)


def _own(obj: Obj) -> Obj:
    shown = copy.deepcopy(obj)
    shown.pop("status", None)
    if "aggregationRule" in shown:
        shown.pop("rules", None)  # collected by the cluster
    metadata = shown["metadata"]
    for name in _SERVERS_OWN:
        metadata.pop(name, None)
    annotations = metadata.get("annotations") or {}
    annotations.pop(_LAST_APPLIED, None)
    if not annotations:
        metadata.pop("annotations", None)
    return shown


def _sorted(value: Obj) -> Obj:
    return {key: _sorted(it) if isinstance(it, dict) else it for key, it in sorted(value.items())}
