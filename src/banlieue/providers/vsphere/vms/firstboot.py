"""How a VM says where its first boot stands: keys, and the words in them. Pure.

Two keys of its configuration together: what the guest tells, which a vCenter forgets when the VM
is switched off, and what became of the secrets, which is written in the call that clears them.
"""

from banlieue.sdk.driver import Seed
from banlieue.sdk.seed import telling

USER_DATA = "guestinfo.userdata"
VENDOR_DATA = "guestinfo.vendordata"
IGNITION = "guestinfo.ignition.config.data"
SECRET_KEYS = tuple(
    key for name in (USER_DATA, VENDOR_DATA, IGNITION) for key in (name, f"{name}.encoding")
)
"""What is cleared after the first boot; metadata stays, as the guest needs it for life."""

WORD_KEY = "guestinfo.banlieue.bootstrap"
"""Written by the guest: the UUID it was made with, and its word."""
STAGE_KEY = "banlieue.seed"
"""Written by us: what became of the secrets, and the guest's word at that time."""

PLAIN, KEPT, REDACTED = "plain", "kept", "redacted"

EAR = telling.Ear(
    f"""\
told="info-set {WORD_KEY} $id:$1"
PATH="$PATH:/usr/sbin:/oem/bin:/usr/share/oem/bin"
vmware-rpctool "$told" >/dev/null 2>&1 || vmtoolsd --cmd "$told" >/dev/null 2>&1 || true
"""
)
"""A guest tells by the tools that cloud-init and Ignition read the seed with."""

_WORDS = {telling.DONE: True, telling.FAILED: False}
_TEXTS = {done: word for word, done in _WORDS.items()}
_NOTHING = frozenset({"", "---"})


def seed(stage: str | None, word: str | None, uuid: str | None) -> Seed | None:
    """Where a VM's first boot stands; None when we never gave it one.

    Args:
        stage: the value of `STAGE_KEY`.
        word: the value of `WORD_KEY`; one that a copy brought along speaks of another UUID.
        uuid: the VM's own.
    """
    what, _, then = (stage or "").partition(" ")
    if what not in {PLAIN, KEPT, REDACTED}:
        return None
    whose, _, now = (word or "").partition(":")
    told = _WORDS.get(now) if whose.lower() == (uuid or "").lower() else None
    if told is None:
        told = _WORDS.get(then)
    return Seed(secret=what != PLAIN, kept=what == KEPT, done=told)


def redacted(seen: Seed | None) -> str:
    """The value of `STAGE_KEY` once the secrets are cleared."""
    word = _TEXTS.get(seen.done) if seen is not None and seen.done is not None else None
    return f"{REDACTED} {word}" if word else REDACTED


def is_gone(value: str | None) -> bool:
    """Whether a guest finds nothing under a key."""
    return (value or "").strip() in _NOTHING
