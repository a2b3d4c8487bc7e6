"""Which Secrets a Provider's process may read in a tenant's namespace, and until when. Pure.

A machine's first boot needs the Secrets its VirtualMachine, or its Cluster API Machine, names. They
are granted from the moment it is placed until its VM was seen, and a day at most: a process that
never gets done keeps nothing. What is asked for stands in objects that no provider may write; what
a provider says of a machine can only end its grant.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from banlieue.api import names
from banlieue.sdk.kube import Key, Obj

LIFE = timedelta(seconds=names.GRANT_SECONDS)
"""How long a machine's grant lasts at most, from its creation or the word of its user."""

_SKEW = timedelta(minutes=5)
"""How far a user's clock may be ahead. A time to come would be a grant for years, so it is none."""

MOST = 200
"""Names in one Role; more are spread over several."""

Reference = tuple[str, str, str]
"""API group, kind and name of a machine object in the same namespace."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Secrets that the process of a Provider needs, up to a moment."""

    provider: Key
    secrets: frozenset[str]
    until: datetime


@dataclass(frozen=True, slots=True)
class Expected:
    """A machine object an owner names, and what is known of it while it is not there."""

    reference: Reference
    provider: Key | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """What a VirtualMachine or a Cluster API Machine asks for."""

    secrets: frozenset[str]
    machines: tuple[Expected, ...]
    renewed: datetime | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """What is to be known of a machine object: whose it is, and whether it still has to boot."""

    provider: Key | None
    since: datetime | None
    pending: bool


def virtual_machine(obj: Obj) -> Owner | None:
    """What a VirtualMachine asks for; None when it needs no Secret (any more)."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    secrets = frozenset(_names(spec.get("userData"), spec.get("networkData")))
    if not secrets or _deleting(obj):
        return None
    scheduled, move = status.get("scheduled") or {}, status.get("move") or {}
    expected = (
        _expected(status.get("infrastructureRef"), scheduled, scheduled.get("scheduledAt")),
        _expected(status.get("incomingRef"), move, move.get("startedAt")),
    )
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    renewed = _time(annotations.get(names.ANNOTATION_RENEW_GRANT))
    return Owner(secrets, tuple(it for it in expected if it is not None), renewed)


def cluster_api_machine(obj: Obj) -> Owner | None:
    """What a Machine of Cluster API asks for; None while it has no bootstrap data."""
    spec = obj.get("spec") or {}
    secret = (spec.get("bootstrap") or {}).get("dataSecretName")
    reference = _reference(spec.get("infrastructureRef"))
    if not secret or reference is None or _deleting(obj):
        return None
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    renewed = _time(annotations.get(names.ANNOTATION_RENEW_GRANT))
    return Owner(frozenset({str(secret)}), (Expected(reference),), renewed)


def machine(obj: Obj) -> Made:
    """What is to be known of a machine object."""
    meta, spec, status = (obj.get(part) or {} for part in ("metadata", "spec", "status"))
    reference = spec.get("providerRef") or {}
    provider = _key(reference.get("namespace"), reference.get("name"))
    done = (status.get("initialization") or {}).get("provisioned")
    pending = not done and not spec.get("adopt") and not _deleting(obj)
    return Made(provider, _time(meta.get("creationTimestamp")), pending)


def wishes(owner: Owner, find: Callable[[Reference], Made | None], now: datetime) -> Iterable[Wish]:
    """What an owner's machines need now.

    Args:
        owner: what was asked for.
        find: the machine object, None when it is not there (yet).
        now: the current time.
    """
    for expected in owner.machines:
        found = find(expected.reference)
        if found is None:
            found = Made(expected.provider, expected.since, pending=True)
        if found.provider is None or found.since is None or not found.pending:
            continue
        starts = [found.since]
        if owner.renewed is not None and owner.renewed <= now + _SKEW:
            starts.append(owner.renewed)
        until = max(starts) + LIFE
        if now < until:
            yield Wish(found.provider, owner.secrets, until)


def allot(
    wanted: frozenset[str], held: Mapping[int, frozenset[str]], *, most: int = MOST
) -> dict[int, frozenset[str]]:
    """Spread names over numbered Roles; a name stays in the Role that holds it.

    Args:
        wanted: all names that are to be granted.
        held: what the Roles that are there hold.
        most: names in one Role.

    Returns:
        What each Role is to hold, every Role that is there among them.
    """
    left, alloted = set(wanted), dict[int, frozenset[str]]()
    for number in sorted(held):
        kept = sorted(held[number] & left)[:most]
        alloted[number] = frozenset(kept)
        left.difference_update(kept)
    number = 0
    for name in sorted(left):
        while len(alloted.get(number, ())) >= most:
            number += 1
        alloted[number] = alloted.get(number, frozenset()) | {name}
    return alloted


def rules(secrets: Iterable[str]) -> list[dict[str, Any]]:
    """The rules of a Role that grants these Secrets; no Secret, no rule."""
    named = sorted(secrets)
    if not named:
        return []
    return [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": named}]


def held_by(role: Obj) -> frozenset[str]:
    """The Secrets a Role of ours grants."""
    return frozenset(
        name for rule in role.get("rules") or () for name in rule.get("resourceNames") or ()
    )


def _names(*sources: Mapping[str, Any] | None) -> Iterable[str]:
    for source in sources:
        name = ((source or {}).get("secretRef") or {}).get("name")
        if name:
            yield str(name)


def _expected(
    reference: Mapping[str, Any] | None, placed: Mapping[str, Any], since: str | None
) -> Expected | None:
    named = _reference(reference)
    if named is None:
        return None
    provider = _key(placed.get("providerNamespace"), placed.get("providerName"))
    return Expected(named, provider, _time(since))


def _reference(reference: Mapping[str, Any] | None) -> Reference | None:
    if not reference or not reference.get("name"):
        return None
    return reference.get("apiGroup") or "", reference.get("kind") or "", reference["name"]


def _key(namespace: str | None, name: str | None) -> Key | None:
    return Key(namespace, name) if namespace and name else None


def _deleting(obj: Obj) -> bool:
    return bool((obj.get("metadata") or {}).get("deletionTimestamp"))


def _time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
