"""What users want of their VMs, as far as an end of them goes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from banlieue.api import names
from banlieue.sdk.kube import Obj

GRACE = 150.0
"""Seconds for which a call that was right when it was decided may still arrive."""

_NEVER = -1e9


@dataclass(slots=True)
class Word:
    """Something that a user says or takes back; who heard it may act on it a while longer."""

    said: bool = False
    until: float = _NEVER

    def follow(self, now: float, *, said: bool) -> None:
        """Note what is said at that moment, in seconds."""
        if self.said and not said:
            self.until = now + GRACE
        self.said = said

    def holds(self, now: float) -> bool:
        """Whether somebody may act on it at that moment, in seconds."""
        return self.said or now <= self.until

    def forget(self) -> None:
        """Nobody is left who heard it before it was taken back."""
        self.until = _NEVER


@dataclass(slots=True)
class Wish:
    """What the user wants of the VM of one name."""

    destroy: Word = field(default_factory=Word)
    orphan: Word = field(default_factory=Word)
    release: Word = field(default_factory=Word)

    def follow(self, obj: Obj | None, now: float) -> None:
        """Read it from the VirtualMachine, or from there being none, at that moment in seconds."""
        self.destroy.follow(now, said=_leaves(obj, "Delete"))
        self.orphan.follow(now, said=_leaves(obj, "Orphan"))
        given = ((obj or {}).get("metadata") or {}).get("annotations") or {}
        self.release.follow(now, said=given.get(names.ANNOTATION_RELEASE_PREVIOUS) == "true")

    def forget_calls(self) -> None:
        """No call is on its way that ends a VM."""
        self.destroy.forget()
        self.orphan.forget()


def policy_of(spec: Mapping[str, Any]) -> str:
    """What becomes of the VM of a VirtualMachine of that spec when it is deleted."""
    return str(spec.get("deletionPolicy") or ("Orphan" if spec.get("adopt") else "Delete"))


def _leaves(obj: Obj | None, policy: str) -> bool:
    """Whether the user deletes the VirtualMachine with that policy."""
    if obj is None or not obj["metadata"].get("deletionTimestamp"):
        return False
    spec = obj.get("spec") or {}
    held = spec.get("paused") or (policy == "Delete" and spec.get("deletionProtection"))
    return policy_of(spec) == policy and not held
