"""Where a machine goes: a pure function of what it needs, what there is and who is there.

Equal input gives equal output; the order of the inputs does not matter. Names decide only between
candidates that are otherwise equal.
"""

from collections.abc import Iterable, Mapping

from banlieue.api.reasons import Reason
from banlieue.controller.scheduling import rejections
from banlieue.controller.scheduling.crowd import Crowd
from banlieue.controller.scheduling.filters import (
    DOMAIN_FILTERS,
    SITE_FILTERS,
    Terrain,
    domain_selected,
    site_pinned,
    site_selected,
)
from banlieue.controller.scheduling.neighbours import Neighbours
from banlieue.controller.scheduling.placement import (
    Candidate,
    Decision,
    Demand,
    Domain,
    Place,
    Placed,
    Rejection,
    Resident,
    Score,
    Site,
    Survey,
)

HEADROOM_STEPS = 20
"""Steps of the score that tells how much is left; -20 is twice too little."""

_UNASKED, _UNASKED_DOMAIN, _CLOSED, _EMPTY, _FIRST_DOMAIN_FILTER = range(5)
"""Ranks of rejections, before those of the filters of failure domains.

What the user did not ask for is no miss; what he asked for and is closed is closer than that.
"""


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
        residents: all other machines, with promises that no status shows yet; a `Crowd` is used
            as it is, which costs the same however many there are.
        refused: places whose backend refused this machine a while ago, and its words.
    """
    return decide(demand, survey(demand, sites, residents, refused=refused))


def decide(demand: Demand, surveyed: Survey) -> Decision:
    """The answer that follows from all candidates."""
    if surveyed.fits:
        return Placed(surveyed.fits[0].place)
    pin = demand.provider_ref
    if pin and all(it.provider != pin for it in surveyed.rejections):
        return rejections.no_such_provider(demand)
    return rejections.unplaced(demand, surveyed.rejections)


def survey(
    demand: Demand,
    sites: Iterable[Site],
    residents: Iterable[Resident],
    *,
    refused: Mapping[Place, str] | None = None,
) -> Survey:
    """Look at every candidate: the arguments are those of `schedule`."""
    crowd = residents if isinstance(residents, Crowd) else Crowd(residents)
    known = [site for site in sites if site.allowed]
    terrain = Terrain(crowd, Neighbours.of(demand, known, crowd), dict(refused or {}))
    fits: list[Candidate] = []
    rejected: list[Rejection] = []
    for site in known:
        closed = _reject_site(demand, site)
        if closed is not None:
            rejected.append(closed)
            continue
        for domain in site.domains:
            rejection = _reject_domain(demand, site, domain, terrain)
            if rejection is not None:
                rejected.append(rejection)
            else:
                fits.append(_fit(demand, site, domain, terrain))
        if not site.domains:
            rejected.append(_no_domains(site))
    fits.sort(key=lambda it: (*it.score.order, it.place))
    return Survey(tuple(fits), rejections.closest_first(rejected))


def _reject_site(demand: Demand, site: Site) -> Rejection | None:
    for name, accept in SITE_FILTERS:
        reject = accept(demand, site)
        if reject is not None:
            rank = _CLOSED if _asked_for(demand, site) else _UNASKED
            return Rejection(site.key, "", name, reject.reason, reject.detail, rank=rank)
    return None


def _asked_for(demand: Demand, site: Site) -> bool:
    """Whether the user's own constraints leave anything of a Provider."""
    if site_pinned(demand, site) or site_selected(demand, site):
        return False
    selector = demand.domain_selector
    return (
        selector is None
        or not site.domains
        or any(selector.matches(domain.labels) for domain in site.domains)
    )


def _reject_domain(
    demand: Demand, site: Site, domain: Domain, terrain: Terrain
) -> Rejection | None:
    for position, (name, accept) in enumerate(DOMAIN_FILTERS):
        reject = accept(demand, site, domain, terrain)
        if reject is not None:
            return Rejection(
                site.key,
                domain.name,
                name,
                reject.reason,
                reject.detail,
                reject.figures,
                _UNASKED_DOMAIN if accept is domain_selected else _FIRST_DOMAIN_FILTER + position,
            )
    return None


def _no_domains(site: Site) -> Rejection:
    return Rejection(
        site.key,
        "",
        "failureDomains",
        Reason.NO_FAILURE_DOMAIN_MATCHED,
        "publishes no failure domain",
        rank=_EMPTY,
    )


def _fit(demand: Demand, site: Site, domain: Domain, terrain: Terrain) -> Candidate:
    place = Place(site.key, domain.name)
    return Candidate(
        place,
        Score(
            conflicts=terrain.neighbours.unwanted(place),
            headroom=_headroom(demand, site, domain, terrain.crowd),
            population=terrain.crowd.population(place, demand.key),
        ),
    )


def _headroom(demand: Demand, site: Site, domain: Domain, crowd: Crowd) -> int:
    """The scarcer of memory and CPU after placing, in steps coarse enough to hide noise."""
    capacity = domain.capacity
    if capacity is None or capacity.memory_mib <= 0:
        return HEADROOM_STEPS // 2
    left = (crowd.free_memory(site, domain, demand.key) - demand.memory_mib) / (
        capacity.memory_mib * site.overcommit_memory
    )
    if capacity.cpus:
        place = Place(site.key, domain.name)
        promised = crowd.promised_cpus(place, demand.key) + demand.cpus
        left = min(left, 1 - promised / (capacity.cpus * site.overcommit_cpu))
    return int(max(-1.0, min(1.0, left)) * HEADROOM_STEPS)
