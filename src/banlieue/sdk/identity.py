"""Who a VM belongs to: owners, backend names, marks and provider IDs.

The owner's name on the backend is deterministic, so it is both the lock that stops a second
create and the index a lost machine is found by. A mark on the backend is valid only together
with the UUID it names, since copies and restores copy marks.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

OWNER_VIRTUAL_MACHINE = "VirtualMachine"
OWNER_MACHINE = "Machine"

_SLUG_LENGTH = 40
_HASH_LENGTH = 8
_VM_HASH_LENGTH = 16
_NOT_SLUG = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Owner:
    """The object a VM exists for: a VirtualMachine or a Cluster API Machine."""

    installation_id: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.installation_id}/{self.kind}/{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Owner | None":
        """The owner written as `installation/kind/namespace/name`, None when it is not one."""
        parts = text.split("/")
        return cls(*parts) if len(parts) == len(cls.__slots__) and all(parts) else None

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the owner; what `unclaimed.owners` of a Provider lists."""
        return _digest(str(self))


@lru_cache(maxsize=1024)
def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def backend_name(owner: Owner, epoch: int) -> str:
    """The VM's name on the backend: slug of the owner's name, 8 hex of its hash, the epoch if any.

    At most 52 characters of `[a-z0-9-]`, which every backend takes as a VM name.
    """
    slug = _NOT_SLUG.sub("-", owner.name.lower()).strip("-")[:_SLUG_LENGTH].strip("-") or "vm"
    name = f"{slug}-{owner.digest[:_HASH_LENGTH]}"
    return f"{name}-{epoch}" if epoch else name


def vm_digest(uuid: str) -> str:
    """A VM's UUID as Providers tell it to those who know it anyway: the beginning of its hash."""
    return hashlib.sha256(uuid.lower().encode()).hexdigest()[:_VM_HASH_LENGTH]


def adopted_digest(name: str, owner_digest: str, uuid: str) -> str | None:
    """`vm_digest` of a VM that has not the name we give, as one that was adopted; else None."""
    return None if f"-{owner_digest[:_HASH_LENGTH]}" in name else vm_digest(uuid)


@dataclass(frozen=True, slots=True)
class Mark:
    """What is written on the VM itself, in the very call that creates it."""

    owner: Owner
    uuid: str
    epoch: int = 0
    incoming: bool = False

    def encode(self) -> str:
        """The mark as one line of JSON, short enough for any backend's metadata field."""
        body: dict[str, Any] = {"owner": str(self.owner), "uuid": self.uuid, "epoch": self.epoch}
        if self.incoming:
            body["incoming"] = True
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str | None) -> "Mark | None":
        """The mark in `text`, None when there is none or it is damaged."""
        try:
            body = json.loads(text or "")
            owner, uuid, epoch = Owner.parse(body["owner"]), body["uuid"], int(body["epoch"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        if owner is None or not isinstance(uuid, str) or not uuid:
            return None
        return cls(owner, uuid, epoch, bool(body.get("incoming")))


def may_replace(found: Mark | None, wanted: Mark) -> bool:
    """Whether `wanted` may be written over a mark that was found on a VM. Pure.

    A move changes epoch and `incoming` and nothing else: the epoch never goes down, and only a
    later epoch makes a machine incoming again. Everything else was written by somebody else, or
    for a machine that went further than the object that asks.
    """
    if found is None or found.owner != wanted.owner or found.uuid.lower() != wanted.uuid.lower():
        return False
    if found.epoch == wanted.epoch:
        return found.incoming or not wanted.incoming
    return found.epoch < wanted.epoch


def valid_mark(mark: Mark | None, uuid: str) -> bool:
    """Whether the mark speaks of the VM it was read from, and not of one it was copied from."""
    return mark is not None and mark.uuid.lower() == uuid.lower()
