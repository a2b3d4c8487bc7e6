"""Where a machine goes: a pure function of what it needs, what there is and who is there.

Equal input gives equal output; the order of the inputs does not matter. Names decide only between
candidates that are otherwise equal.
"""

from collections.abc import Iterable, Mapping, Sequence

from banlieue.api.reasons import Reason
from banlieue.controller.crowd import Crowd
from banlieue.controller.filters import DOMAIN_FILTERS, SITE_FILTERS, Terrain
from banlieue.controller.placement import (
    Decision,
    Demand,
    Domain,
    Place,
    Placed,
    Rejection,
    Resident,
    Site,
    Unplaced,
)

_MAX_MESSAGE = 1000
_HEADROOM_STEPS = 20

_REMEDIES = {
    Reason.INSUFFICIENT_CAPACITY: "choose a smaller class or ask the platform team for capacity",
    Reason.IMAGE_NOT_READY: "wait for the image or ask the platform team to offer it there",
    Reason.ANTI_AFFINITY_UNSATISFIED: "relax placement.antiAffinity or add failure domains",
    Reason.STORAGE_CLASS_NOT_AVAILABLE: "use a storage class that is offered there",
    Reason.NETWORK_NOT_AVAILABLE: "use a network class and addresses that are offered there",
    Reason.NO_FAILURE_DOMAIN_MATCHED: "relax placement.failureDomainSelector or ask the platform "
    "team to open a failure domain",
    Reason.NO_PROVIDER_MATCHED: "relax providerRef or placement.providerSelector, or ask the "
    "platform team for a Provider",
    Reason.FIRMWARE_UNSUPPORTED: "use a class and an image whose firmware agree",
    Reason.IMAGE_TOO_LARGE: "give disk root more sizeGiB in spec.disks or in the class",
    Reason.FEATURE_UNSUPPORTED: "use a class without it or a Provider that has it",
    Reason.ARCHITECTURE_UNSUPPORTED: "use an image of an architecture that is there",
}
_DEFAULT_REMEDY = "it is placed as soon as a Provider can take it"


def schedule(
    demand: Demand,
    sites: Iterable[Site],
    residents: Iterable[Resident],
    *,
    refused: Mapping[Place, str] | None = None,
) -> Decision:
    """Choose a failure domain for a machine that is nowhere yet.

    Args:
        demand: what the machine needs.
        sites: all Providers; those not allowed for the namespace are never mentioned.
        residents: all other machines, with promises that no status shows yet.
        refused: places whose backend refused this machine a while ago, and its words.
    """
    known = sorted((site for site in sites if site.allowed), key=lambda site: site.key)
    if demand.provider_ref and demand.provider_ref not in {site.key for site in known}:
        return _no_such_provider(demand)
    terrain = Terrain(Crowd(demand, known, residents), dict(refused or {}))
    fits: list[tuple[Site, Domain]] = []
    rejections: list[Rejection] = []
    for site in known:
        closed = _reject_site(demand, site)
        if closed:
            rejections.append(closed)
            continue
        for domain in sorted(site.domains, key=lambda domain: domain.name):
            rejected = _reject_domain(demand, site, domain, terrain)
            if rejected:
                rejections.append(rejected)
            else:
                fits.append((site, domain))
        if not site.domains:
            rejections.append(_no_domains(site))
    if not fits:
        return _unplaced(demand, rejections)
    site, domain = min(fits, key=lambda fit: _rank(demand, fit[0], fit[1], terrain.crowd))
    return Placed(Place(site.key, domain.name))


def _reject_site(demand: Demand, site: Site) -> Rejection | None:
    for rank, accept in enumerate(SITE_FILTERS):
        reject = accept(demand, site)
        if reject:
            return Rejection(f"Provider {site.key}", reject.reason, reject.detail, rank)
    return None


def _reject_domain(
    demand: Demand, site: Site, domain: Domain, terrain: Terrain
) -> Rejection | None:
    for rank, accept in enumerate(DOMAIN_FILTERS, start=len(SITE_FILTERS) + 1):
        reject = accept(demand, site, domain, terrain)
        if reject:
            return Rejection(domain.name, reject.reason, reject.detail, rank)
    return None


def _no_domains(site: Site) -> Rejection:
    return Rejection(
        f"Provider {site.key}",
        Reason.NO_FAILURE_DOMAIN_MATCHED,
        "publishes no failure domain",
        len(SITE_FILTERS),
    )


def _rank(demand: Demand, site: Site, domain: Domain, crowd: Crowd) -> tuple[int, int, int, Place]:
    """Smaller is better: wishes to be apart, then room, then few neighbours, then names."""
    place = Place(site.key, domain.name)
    return (
        crowd.preferred_conflicts(place),
        -_headroom(demand, site, domain, crowd),
        crowd.population(place),
        place,
    )


def _headroom(demand: Demand, site: Site, domain: Domain, crowd: Crowd) -> int:
    """The scarcer of memory and CPU after placing, in steps coarse enough to hide noise."""
    capacity = domain.capacity
    if capacity is None or capacity.memory_mib <= 0:
        return _HEADROOM_STEPS // 2
    left = (crowd.free_memory(site, domain) - demand.memory_mib) / (
        capacity.memory_mib * site.overcommit_memory
    )
    if capacity.cpus:
        promised = crowd.promised_cpus(Place(site.key, domain.name)) + demand.cpus
        left = min(left, 1 - promised / (capacity.cpus * site.overcommit_cpu))
    return int(max(-1.0, min(1.0, left)) * _HEADROOM_STEPS)


def _no_such_provider(demand: Demand) -> Unplaced:
    """One answer for a Provider that is not there and one that is not the tenant's business."""
    return Unplaced(
        Reason.PROVIDER_NOT_ALLOWED,
        f"Provider {demand.provider_ref} does not exist or does not allow namespace "
        f"{demand.key.namespace}; correct spec.providerRef or ask the platform team",
    )


def _unplaced(demand: Demand, rejections: Sequence[Rejection]) -> Unplaced:
    if not rejections:
        return Unplaced(
            Reason.NO_PROVIDER_MATCHED,
            f"no Provider allows namespace {demand.key.namespace}; ask the platform team for one",
        )
    ordered = sorted(rejections, key=lambda item: (-item.rank, item.where, item.detail))
    reason = ordered[0].reason
    return Unplaced(reason, _message(demand, ordered, reason), tuple(ordered), _is_lasting(ordered))


def _is_lasting(rejections: Sequence[Rejection]) -> bool:
    """Whether class and image contradict each other everywhere, so that waiting cannot help."""
    return all(
        rejection.reason in {Reason.FIRMWARE_UNSUPPORTED, Reason.IMAGE_TOO_LARGE}
        for rejection in rejections
    )


def _message(demand: Demand, ordered: Sequence[Rejection], reason: Reason) -> str:
    """Head, as many candidates as fit with the closest first, and what to do."""
    domains = sum(rejection.rank > len(SITE_FILTERS) for rejection in ordered)
    what = f"{demand.cpus} vCPU/{_memory(demand.memory_mib)}"
    head = (
        f"none of {domains} failure domains can take {what}"
        if domains
        else f"none of {len(ordered)} Providers can take {what}"
    )
    tail = f"; {_REMEDIES.get(reason, _DEFAULT_REMEDY)}"
    room = _MAX_MESSAGE - len((head + tail).encode()) - len(" (; and 9999 more)")
    shown: list[str] = []
    for rejection in ordered:
        text = f"{rejection.where}: {rejection.detail}"
        room -= len(text.encode()) + 2
        if room < 0 and shown:
            break
        shown.append(text if room >= 0 else text[: max(0, room)])
    rest = len(ordered) - len(shown)
    more = f"; and {rest} more" if rest else ""
    return f"{head} ({'; '.join(shown)}{more}){tail}"


def _memory(mib: int) -> str:
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"
