"""Which Providers a cluster uses, and the failure domains it has of them. Pure.

A name is given once: while a Provider offers the failure domain that the cluster lists under a
name, another Provider's of that name is left out. What a Provider offered stays listed until that
Provider says otherwise, is not offered any more, or is gone: machines stand there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from banlieue.api.infrastructure.cluster import ClusterFailureDomain, ClusterSpec
from banlieue.controller.scheduling.placement import Domain, Site
from banlieue.sdk.kube import Key

MAX_DOMAINS = 100
"""As many as Cluster API takes."""

ATTRIBUTE_PROVIDER = "provider"
ATTRIBUTE_PROVIDER_NAMESPACE = "providerNamespace"
ATTRIBUTE_SCHEDULABLE = "schedulable"
"""Told, as `false`, where no new machines go for now."""

_OURS = frozenset({ATTRIBUTE_PROVIDER, ATTRIBUTE_PROVIDER_NAMESPACE, ATTRIBUTE_SCHEDULABLE})
_MAX_ATTRIBUTES = 16


@dataclass(frozen=True, slots=True)
class Member:
    """A Provider of a cluster. `speaks` says that what it tells now is all there is to tell."""

    site: Site
    speaks: bool

    @property
    def open(self) -> bool:
        """Whether new machines may go there, by the word of its admin.

        An outage is nobody's word: it passes, and a control plane must not be told to move for it.
        """
        site = self.site
        return not (site.cordoned or site.paused or site.deleting or site.read_only)


@dataclass(frozen=True, slots=True)
class Membership:
    """The Providers of a cluster, and those it names in vain.

    `missing` do not exist or are not offered to the namespace, which is one answer. `foreign` are
    of a class whose clusters are of another kind.
    """

    members: tuple[Member, ...] = ()
    missing: tuple[Key, ...] = ()
    foreign: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """A failure domain that is left out, because another Provider's has the name."""

    name: str
    holder: Key
    refused: Key


@dataclass(frozen=True, slots=True)
class Listing:
    """The failure domains of a cluster.

    `left_out` names those beyond what a cluster can list. `silent` are Providers without any.
    `eligible` says whether the control plane's selector matches one at all, closed ones included.
    """

    domains: tuple[ClusterFailureDomain, ...] = ()
    taken: tuple[Taken, ...] = ()
    left_out: tuple[str, ...] = ()
    silent: tuple[Key, ...] = ()
    eligible: bool = True


@dataclass(frozen=True, slots=True)
class _Claim:
    """One failure domain of one Provider; `turn` is its place among that Provider's."""

    entry: ClusterFailureDomain
    provider: Key
    turn: int
    eligible: bool


def members(
    spec: ClusterSpec, sites: Iterable[Site], kind: str, kinds: Mapping[str, str]
) -> Membership:
    """The Providers of a cluster: those it names, else those it selects, else every one offered.

    Args:
        spec: the cluster's.
        sites: all Providers as its namespace sees them.
        kind: name of its CRD.
        kinds: for each ProviderClass the name of its cluster kind's CRD, empty without one.
    """
    offered = {site.key: site for site in sites if site.allowed}
    if not spec.provider_refs:
        selector = spec.provider_selector
        return Membership(
            tuple(
                _member(site, kinds)
                for _, site in sorted(offered.items())
                if kinds.get(site.class_name, kind) == kind
                and (selector is None or selector.matches(site.labels))
            )
        )
    named = [Key(ref.namespace, ref.name) for ref in spec.provider_refs]
    there = [offered[key] for key in named if key in offered]
    ours = [site for site in there if kinds.get(site.class_name, kind) == kind]
    return Membership(
        tuple(_member(site, kinds) for site in ours),
        tuple(key for key in named if key not in offered),
        tuple(site.key for site in there if site not in ours),
    )


def _member(site: Site, kinds: Mapping[str, str]) -> Member:
    """Without its class nobody knows whether it is of the cluster's kind: it says nothing new.

    Neither does one that lists nothing and is not Ready: its status may be lost, or yet to come.
    """
    return Member(site, site.class_name in kinds and (bool(site.domains) or site.ready))


def listing(
    spec: ClusterSpec, previous: Sequence[ClusterFailureDomain], found: Iterable[Member]
) -> Listing:
    """The failure domains of a cluster, by name.

    Args:
        spec: the cluster's.
        previous: what it lists now.
        found: its Providers, the preferred ones first where two have one name.
    """
    holders = {entry.name: provider_of(entry) for entry in previous}
    claims: dict[str, list[_Claim]] = {}
    silent: list[Key] = []
    for member in found:
        offers = list(_claims(spec, previous, member))
        if not offers:
            silent.append(member.site.key)
        for claim in offers:
            claims.setdefault(claim.entry.name, []).append(claim)
    won: list[_Claim] = []
    taken: list[Taken] = []
    for name, rivals in sorted(claims.items()):
        winner = next((it for it in rivals if it.provider == holders.get(name)), rivals[0])
        won.append(winner)
        taken += [Taken(name, winner.provider, it.provider) for it in rivals if it is not winner]
    kept = _first(won, holders)
    listed = {claim.entry.name for claim in kept}
    return Listing(
        domains=tuple(claim.entry for claim in kept),
        taken=tuple(taken),
        left_out=tuple(it.entry.name for it in won if it.entry.name not in listed),
        silent=tuple(silent),
        eligible=not won or any(claim.eligible for claim in won),
    )


def _first(won: Sequence[_Claim], holders: Mapping[str, Key | None]) -> list[_Claim]:
    """As many as a cluster can list, by name: those it lists already, then each Provider's turn."""

    def rank(claim: _Claim) -> tuple[bool, int, Key, str]:
        name = claim.entry.name
        return holders.get(name) != claim.provider, claim.turn, claim.provider, name

    return sorted(sorted(won, key=rank)[:MAX_DOMAINS], key=lambda it: it.entry.name)


def _claims(
    spec: ClusterSpec, previous: Sequence[ClusterFailureDomain], member: Member
) -> Iterable[_Claim]:
    """What a Provider offers now, or did when it was last able to tell."""
    site, selector = member.site, spec.control_plane_failure_domain_selector
    if not member.speaks:
        known = [entry for entry in previous if provider_of(entry) == site.key]
        for turn, entry in enumerate(known):
            stays = entry.control_plane and member.open
            kept = entry.model_copy(update={"control_plane": stays})
            yield _Claim(kept, site.key, turn, entry.control_plane)
        return
    for turn, domain in enumerate(sorted(site.domains, key=lambda it: it.name)):
        eligible = selector is None or selector.matches(domain.labels)
        usable = domain.schedulable and member.open
        entry = ClusterFailureDomain(
            name=domain.name,
            control_plane=eligible and usable,
            attributes=_attributes(site.key, domain, usable=usable),
        )
        yield _Claim(entry, site.key, turn, eligible)


def _attributes(provider: Key, domain: Domain, *, usable: bool) -> dict[str, str]:
    """Whose it is, and the labels its admin gave it, as far as there is room."""
    shown = {
        ATTRIBUTE_PROVIDER: provider.name,
        ATTRIBUTE_PROVIDER_NAMESPACE: provider.namespace,
    }
    if not usable:
        shown[ATTRIBUTE_SCHEDULABLE] = "false"
    for key, value in sorted(domain.labels.items()):
        if value and key not in _OURS and len(shown) < _MAX_ATTRIBUTES:
            shown[key] = value
    return shown


def provider_of(entry: ClusterFailureDomain) -> Key | None:
    """Whose a listed failure domain is, None when somebody else wrote it."""
    name = entry.attributes.get(ATTRIBUTE_PROVIDER)
    namespace = entry.attributes.get(ATTRIBUTE_PROVIDER_NAMESPACE)
    return Key(namespace, name) if name and namespace else None
