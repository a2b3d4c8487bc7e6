"""Failure domains as they are published: names given once, and figures that stay quiet.

A name is bound to the backend's stable id the first time the domain is seen and never again: the
binding is kept in the Provider's annotation `banlieue.io/failure-domains`, a JSON object from name
to id, or given in `spec.failureDomains`. Renames on the backend change attributes only. A name that
an admin replaces stays bound, so that machines placed under it are still found.

Everything here is pure.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pydantic import TypeAdapter, ValidationError

from banlieue.api import names
from banlieue.api.types import Feature, LabelKey, LabelValue
from banlieue.api.v1alpha1 import provider as api
from banlieue.sdk.driver import Capacity, FailureDomain

MAX_NAME = 63
MAX_DOMAINS = 256
MAX_INCLUDED = 128
MAX_LABELS = 16
NOTABLE_CHANGE = 0.05
QUIET_FOR = timedelta(seconds=60)

_LABELS = TypeAdapter(dict[LabelKey, LabelValue])
_HASH = 8
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_RAW_ENTRIES = 8
_RAW_LENGTH = 64


@dataclass(frozen=True, slots=True)
class Domains:
    """Failure domains by id, and every name that stands for one.

    `ids` maps all names ever given to ids; `names` maps each id to the one name that is published.
    """

    by_id: Mapping[str, FailureDomain] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def named(self, name: str) -> FailureDomain | None:
        """The failure domain a name stands for, None when the backend does not show it."""
        return self.by_id.get(self.ids.get(name, ""))


def slug(provider_name: str, domain: FailureDomain) -> str:
    """The name a domain gets by itself: `<provider>-<path…>`, at most 63 characters.

    Ends in a hash of the id when it had to be cut.
    """
    words = (_NOT_SLUG.sub("-", word.lower()).strip("-") for word in (provider_name, *domain.path))
    name = "-".join(word for word in words if word) or "domain"
    return name if len(name) <= MAX_NAME else _with_hash(name, domain.id)


def _with_hash(name: str, identity: str) -> str:
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_HASH]
    return f"{name[: MAX_NAME - _HASH - 1].rstrip('-')}-{digest}"


def read_bindings(annotations: Mapping[str, str]) -> dict[str, str]:
    """Names and the ids they are bound to, as the Provider's annotation keeps them.

    A damaged annotation counts as none: names are then made again from the same words.
    """
    try:
        stored = json.loads(annotations.get(names.ANNOTATION_FAILURE_DOMAINS) or "{}")
    except ValueError:
        return {}
    if not isinstance(stored, dict):
        return {}
    return {k: v for k, v in stored.items() if isinstance(v, str)}


def write_bindings(bindings: Mapping[str, str]) -> str:
    """The annotation's value; equal bindings give equal text, older names of an id come first."""
    return json.dumps(dict(bindings), separators=(",", ":"))


def bind(
    provider_name: str,
    found: Iterable[FailureDomain],
    bindings: Mapping[str, str],
    declared: Sequence[api.DeclaredFailureDomain],
) -> Domains:
    """Give every found domain its name: the declared one, else the bound one, else a new one.

    The result's `ids` are the bindings to keep; they only ever grow. A declared name that already
    stands for another domain is not taken, and `problems` says so.
    """
    by_id = {domain.id: domain for domain in sorted(found, key=lambda domain: domain.id)}
    ids = dict(bindings)
    published: dict[str, str] = {}
    problems: list[str] = []
    for entry in declared:
        if entry.name is None:
            continue
        if ids.setdefault(entry.name, entry.id) == entry.id:
            published[entry.id] = entry.name
        else:
            problems.append(
                f"failureDomains: name {entry.name!r} for id {entry.id!r} is taken by "
                f"{ids[entry.name]!r}; choose another"
            )
    for name, identity in ids.items():
        published.setdefault(identity, name)
    for identity, domain in by_id.items():
        if identity not in published:
            name = slug(provider_name, domain)
            if name in ids:
                name = _with_hash(name, identity)
            ids[name], published[identity] = identity, name
    return Domains(by_id, ids, published, tuple(problems))


def publish(
    domains: Domains,
    declared: Sequence[api.DeclaredFailureDomain],
    previous: Sequence[api.FailureDomainStatus],
    included: Mapping[str, Sequence[str]],
    now: datetime,
) -> list[api.FailureDomainStatus]:
    """The list for the Provider's status, sorted by name.

    `included` gives, per id, the owner hashes of the machines the figures already count, those
    placed last first. A capacity that moved little and lately stays as it was published.
    """
    said = {entry.id: entry for entry in declared}
    before = {entry.id: entry.attributes.capacity for entry in previous}
    shown = [
        _publish_one(
            domains.names[identity],
            domain,
            said.get(identity),
            quiet_capacity(
                before.get(identity),
                capacity_status(domain.capacity, included.get(identity, ()), now),
            ),
        )
        for identity, domain in domains.by_id.items()
    ]
    return sorted(shown, key=lambda entry: entry.name)[:MAX_DOMAINS]


def _publish_one(
    name: str,
    domain: FailureDomain,
    said: api.DeclaredFailureDomain | None,
    capacity: api.Capacity | None,
) -> api.FailureDomainStatus:
    labels = {**_usable(domain.labels), **(said.labels if said else {})}
    known = {feature.value: feature for feature in Feature}
    return api.FailureDomainStatus(
        name=name,
        id=domain.id,
        labels=dict(sorted(labels.items())[:MAX_LABELS]),
        schedulable=domain.schedulable and (said is None or said.schedulable),
        attributes=api.FailureDomainAttributes(
            available_storage_classes=sorted(set(domain.storage_classes)),
            available_network_classes=sorted(set(domain.network_classes)),
            features=[known[word] for word in sorted(set(domain.features)) if word in known],
            capacity=capacity,
            raw={
                key: text[:_RAW_LENGTH] for key, text in sorted(domain.raw.items())[:_RAW_ENTRIES]
            },
        ),
    )


def _usable(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels a driver gave, without those that Kubernetes would refuse."""
    usable: dict[str, str] = {}
    for key, value in labels.items():
        try:
            usable |= _LABELS.validate_python({key: value})
        except ValidationError:
            continue
    return usable


def capacity_status(
    capacity: Capacity | None, included: Sequence[str], now: datetime
) -> api.Capacity | None:
    """A driver's figures in the words of the API."""
    if capacity is None:
        return None
    return api.Capacity(
        observed_at=now,
        cpus=api.CapacityFigure(total=capacity.cpus),
        memory_mib=api.CapacityFigure(total=capacity.memory_mib, free=capacity.free_memory_mib),
        included_machines=list(included)[:MAX_INCLUDED],
    )


def quiet_capacity(before: api.Capacity | None, after: api.Capacity | None) -> api.Capacity | None:
    """The figures to publish: the old ones while they are near enough or fresh enough."""
    if before is None or after is None:
        return after
    if before.observed_at is None or after.observed_at is None:
        return after
    if _content(before) == _content(after):
        return before
    if _moved(before, after) or after.observed_at - before.observed_at >= QUIET_FOR:
        return after
    return before


def _content(capacity: api.Capacity) -> tuple[object, ...]:
    return capacity.cpus, capacity.memory_mib, capacity.storage, capacity.included_machines


def _moved(before: api.Capacity, after: api.Capacity) -> bool:
    return any(
        _moved_figure(old, new)
        for old, new in ((before.cpus, after.cpus), (before.memory_mib, after.memory_mib))
    )


def _moved_figure(old: api.CapacityFigure | None, new: api.CapacityFigure | None) -> bool:
    if old is None or new is None:
        return old is not new
    if old.total != new.total:
        return True
    if old.free is None or new.free is None:
        return old.free != new.free
    return abs(new.free - old.free) >= NOTABLE_CHANGE * max(new.total or 0, 1)
