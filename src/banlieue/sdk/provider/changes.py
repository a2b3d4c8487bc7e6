"""What a change of a watched object tells a Provider. Pure."""

from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.provider.scope import KnownMachine


def provider_of(machine: Obj) -> Key | None:
    """The Provider a machine object belongs to, None before it was placed."""
    ref = (machine.get("spec") or {}).get("providerRef")
    return Key(ref.get("namespace") or "", ref.get("name") or "") if ref else None


def counts_alike(old: Obj | None, new: Obj | None) -> bool:
    """Whether the machine is there before and after, with the same identity: nothing to count."""
    if old is None or new is None or provider_of(old) != provider_of(new):
        return False
    return bool(_spec(old).get("instance") == _spec(new).get("instance"))


def is_lost(machine: Obj, finalizer: str) -> bool:
    """Whether an object that is gone may have left its VM behind.

    One that was to go with its VM did, if its provider had let go of it: not one that a restore
    or somebody with force took away in the middle of it.
    """
    known = KnownMachine.of(machine)
    held = finalizer in (machine["metadata"].get("finalizers") or ())
    return known.uuid is not None and (held or not known.doomed)


def let_go_of_disk(old: Obj | None, new: Obj | None) -> bool:
    """Whether the machine had a disk that is to be kept, and has it no more."""
    return bool(_retain_ids(old) - _retain_ids(new))


def _retain_ids(machine: Obj | None) -> set[str]:
    resources = ((machine or {}).get("status") or {}).get("resources") or {}
    found = (disk.get("retainId") for disk in resources.get("disks") or ())
    return {id_ for id_ in found if id_}


def _spec(machine: Obj) -> Obj:
    return machine.get("spec") or {}


def asked(provider: Obj) -> tuple[object, ...]:
    """All of a Provider that a pass is made for; its status is not."""
    meta = provider["metadata"]
    return (
        meta.get("uid"),
        provider.get("spec"),
        meta.get("deletionTimestamp"),
        meta.get("finalizers"),
    )


def labels(raw: Obj | None) -> object:
    """The labels of an object, if it is there and has any."""
    return ((raw or {}).get("metadata") or {}).get("labels")
