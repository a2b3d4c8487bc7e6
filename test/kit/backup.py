"""Saves objects and brings them back, as a backup tool does.

A restored object has a new uid. The server's own metadata is gone; labels, annotations,
finalizers and owner references came along, as they do with Velero. The status comes back only
when it is asked for, in a second write.
"""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from test.kit.kube import Kube, KubeError, Object
from test.kit.waiting import wait_until

_SERVERS_OWN: Final = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_GONE: Final = 404


def saved(obj: Mapping[str, Any], *, status: bool = True, owners: bool = True) -> Object:
    """What a backup keeps of an object.

    Args:
        obj: The object as read.
        status: Keep its status.
        owners: Keep its owner references; their uids mean nothing where it is restored.
    """
    left_out = set(_SERVERS_OWN) | (set() if owners else {"ownerReferences"})
    kept = {key: value for key, value in obj.items() if status or key != "status"}
    meta = {key: value for key, value in obj["metadata"].items() if key not in left_out}
    return {**kept, "metadata": meta}


def restore(kube: Kube, obj: Mapping[str, Any]) -> Object:
    """Create a saved object, then write the status that was saved with it."""
    status = obj.get("status")
    made = kube.create({key: value for key, value in obj.items() if key != "status"})
    if not status:
        return made
    meta = made["metadata"]
    # A controller that is faster has written already; a restore does not mind.
    return kube.patch(
        obj["kind"],
        meta["name"],
        {"status": status},
        meta.get("namespace"),
        subresource="status",
    )


def restore_all(kube: Kube, objects: Iterable[Mapping[str, Any]]) -> None:
    """Restore objects in the order given; one that is there already is left as it is."""
    for obj in objects:
        meta = obj["metadata"]
        if kube.find(obj["kind"], meta["name"], meta.get("namespace")) is None:
            restore(kube, obj)


def wipe_status(kube: Kube, kind: str, name: str, namespace: str) -> None:
    """Take an object's whole status away."""
    kube.patch(kind, name, {"status": None}, namespace, subresource="status")


def tear_out(kube: Kube, kind: str, name: str, namespace: str) -> None:
    """Remove an object past its finalizers, as the loss of the store does.

    Only the object of today's uid: its owner may have made another one of the name at once.
    """
    found = kube.find(kind, name, namespace)
    if found is None:
        return
    uid = found["metadata"]["uid"]

    def strip() -> None:
        with contextlib.suppress(KubeError):
            kube.patch(kind, name, {"metadata": {"uid": uid, "finalizers": None}}, namespace)

    def is_gone() -> bool:
        strip()
        left = kube.find(kind, name, namespace)
        return left is None or left["metadata"]["uid"] != uid

    strip()
    kube.delete(kind, name, namespace, missing_ok=True, propagation="Background")
    wait_until(is_gone, 30.0, f"{kind} {namespace}/{name} to be torn out")
