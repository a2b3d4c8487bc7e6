"""Where a machine of Cluster API goes: a pure function of Machine, InfraCluster and Providers.

A failure domain that the Machine names is the place, or there is none; else the scheduler chooses
among those the InfraCluster has. A Machine that has a VM already goes back to it, or waits.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from banlieue.api.infrastructure.cluster import InfraCluster
from banlieue.api.reasons import Reason
from banlieue.controller.clusters import domains
from banlieue.controller.scheduling import rejections
from banlieue.controller.scheduling.crowd import Crowd
from banlieue.controller.scheduling.placement import (
    Decision,
    Demand,
    Place,
    Placed,
    Site,
    Unplaced,
)
from banlieue.controller.scheduling.placing import remembered
from banlieue.controller.scheduling.scheduler import schedule
from banlieue.sdk.kube import Key

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Choice:
    """Among what a machine's place is chosen.

    Attributes:
        sites: all Providers as the machine's namespace sees them.
        kin: Providers that make machines of its kind.
        offers: what its InfraCluster has of them, each with the failure domains listed as its own.
        domain: the failure domain its Machine names, empty when it names none.
        recovery: the installation recovers, so a machine that seems new may exist.
        refused: places whose backend refused this machine a while ago.
    """

    sites: Sequence[Site]
    kin: frozenset[Key]
    offers: Sequence[Site]
    domain: str = ""
    recovery: bool = False
    refused: Mapping[Place, str] | None = None


def offers(
    cluster: InfraCluster, kind: str, sites: Sequence[Site], kinds: Mapping[str, str]
) -> list[Site]:
    """The Providers of an InfraCluster, with the failure domains it lists as theirs.

    Computed from what Providers tell now, as its status may be lost or somebody else's.

    Args:
        cluster: the InfraCluster; an empty one restricts nothing.
        kind: name of its CRD.
        sites: all Providers as its namespace sees them.
        kinds: for each ProviderClass the name of its cluster kind's CRD, empty without one.
    """
    found = domains.members(cluster.spec, sites, kind, kinds).members
    listed = domains.listing(cluster.spec, cluster.status.failure_domains, found).domains
    holders = {entry.name: domains.provider_of(entry) for entry in listed}
    return [
        replace(
            member.site,
            domains=tuple(
                it for it in member.site.domains if holders.get(it.name) == member.site.key
            ),
        )
        for member in found
    ]


def choose(wanted: Demand, choice: Choice, crowd: Crowd) -> Decision:
    """Decide the place of a machine that has none.

    Args:
        wanted: what the machine needs; `digest` is its owner's.
        choice: among what to choose.
        crowd: everybody else.
    """
    usable = {site.key for site in choice.offers}
    known = [it for it in choice.sites if it.key in usable or _claims(it, wanted.digest)]
    past = remembered(wanted, known, crowd, before=None, recovery=choice.recovery)
    if isinstance(past, Placed):
        return _return(past, choice)
    if past is not None:
        return past
    if not choice.offers:
        return Unplaced(
            Reason.NO_PROVIDER_MATCHED,
            "the InfraCluster has no Provider for machines of this kind; correct its providerRefs "
            "or providerSelector, or ask the platform team for a Provider",
        )
    if not choice.domain:
        return _plainly(schedule(wanted, choice.offers, crowd, refused=choice.refused))
    found = _only(choice.offers, choice.domain)
    if found is None:
        return _no_such_domain(choice.domain, choice.offers)
    # The Machine's own word beats what the InfraCluster marks its domains as good for.
    bare = replace(wanted, domain_selector=None)
    return _plainly(schedule(bare, [found], crowd, refused=choice.refused))


def _claims(site: Site, digest: str) -> bool:
    return any(it.digest and digest.startswith(it.digest) for it in site.claims)


def _return(past: Placed, choice: Choice) -> Decision:
    """The Provider that has the machine's VM, if that is where its Machine may be."""
    provider = past.place.provider
    asked = _only(choice.offers, choice.domain) if choice.domain else None
    if provider not in choice.kin or (choice.domain and (not asked or asked.key != provider)):
        where = f"failure domain {choice.domain}" if choice.domain else "this kind of machine"
        return Unplaced(
            Reason.OWNERSHIP_CONFLICT,
            f"Provider {provider} has a VM of this Machine, which {where} does not lead to; remove "
            "that VM there, or replace this Machine by one of another name",
        )
    if choice.domain:
        return Placed(Place(provider, choice.domain), past.epoch)
    return past


def _only(offers: Iterable[Site], name: str) -> Site | None:
    """The Provider of a failure domain, with that one alone."""
    for site in offers:
        domain = site.domain(name)
        if domain is not None:
            return replace(site, domains=(domain,))
    return None


def _no_such_domain(name: str, offers: Iterable[Site]) -> Unplaced:
    there = sorted({domain.name for site in offers for domain in site.domains})
    listed = ", ".join(there[:_SHOWN]) or "none"
    more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
    return Unplaced(
        Reason.FAILURE_DOMAIN_NOT_FOUND,
        f"the InfraCluster has no failure domain {name} (it has {listed}{more}); the Machine is "
        "made nowhere else: bring it back, or replace the Machine",
    )


def _plainly(decision: Decision) -> Decision:
    """The scheduler's answer without its advice, which names fields of VirtualMachines."""
    if isinstance(decision, Placed):
        return decision
    advice = f"; {rejections.remedy(decision.reason)}"
    return replace(decision, message=decision.message.removesuffix(advice))
