"""Where a machine goes, its past included: what was placed before never goes anywhere else."""

from collections.abc import Iterable, Mapping, Sequence

from banlieue.api.reasons import Reason
from banlieue.controller.placement import (
    Claim,
    Decision,
    Demand,
    Place,
    Placed,
    Resident,
    Site,
    Unplaced,
)
from banlieue.controller.scheduler import decide, schedule, survey
from banlieue.sdk.kube import Key

_SHOWN = 5


def place(
    demand: Demand,
    sites: Iterable[Site],
    residents: Iterable[Resident],
    *,
    before: Place | None = None,
    recovery: bool = False,
    refused: Mapping[Place, str] | None = None,
) -> Decision:
    """Decide the place of a machine that has no object.

    A machine with a past goes to the one Provider that holds or was given it, whatever the filters
    say, because its data may be there. Two such Providers are for a person to sort out.

    Args:
        demand: what the machine needs; `digest` is its owner's.
        sites: all Providers, also those the namespace may not use any more.
        residents: all other machines; a `Crowd` is used as it is.
        before: where the machine was placed, as its status tells.
        recovery: the installation recovers, so a machine that seems new may exist.
        refused: places whose backend refused this machine a while ago.
    """
    known = tuple(sites)
    claims = {site.key: found for site in known if (found := _claims(demand, site))}
    past = {*claims, *([before.provider] if before else ())}
    if len(past) > 1:
        return _two_pasts(past)
    if past:
        site = next((site for site in known if site.key in past), None)
        if site is None:
            return _provider_gone(next(iter(past)))
        return _return_to(demand, site, residents, before, claims.get(site.key, ()))
    if recovery:
        pending = sorted(site.key for site in known if site.allowed and not site.complete)
        if pending:
            return _recovering(pending)
    return decide(demand, survey(demand, known, residents, refused=refused))


def _claims(demand: Demand, site: Site) -> list[Claim]:
    if not demand.digest:
        return []
    return [
        claim
        for claim in site.claims
        if claim.digest and demand.digest.startswith(claim.digest) and not claim.incoming
    ]


def _return_to(
    demand: Demand,
    site: Site,
    residents: Iterable[Resident],
    before: Place | None,
    claims: Sequence[Claim],
) -> Decision:
    """The machine's own Provider; the domain matters only if nothing is there."""
    epoch = max((claim.epoch for claim in claims), default=0)
    if before is not None:
        return Placed(before, epoch)
    decision = schedule(demand, [site], residents)
    if isinstance(decision, Placed):
        return Placed(decision.place, epoch)
    if not site.domains:
        return Unplaced(
            Reason.PROVIDER_NOT_READY,
            f"this machine exists on Provider {site.key}, which publishes no failure domain now; "
            "it is taken up again when the Provider is ready",
        )
    return Placed(Place(site.key, min(domain.name for domain in site.domains)), epoch)


def _two_pasts(past: Iterable[Key]) -> Unplaced:
    names = ", ".join(str(key) for key in sorted(past))
    return Unplaced(
        Reason.OWNERSHIP_CONFLICT,
        f"machines of this owner exist on several Providers ({names}); "
        "remove all but one of them there, nothing is made or changed until then",
    )


def _provider_gone(key: Key) -> Unplaced:
    return Unplaced(
        Reason.PROVIDER_NOT_FOUND,
        f"the machine was placed on Provider {key}, which does not exist any more; "
        "create that Provider again, or delete this object",
    )


def _recovering(pending: Sequence[Key]) -> Unplaced:
    names = ", ".join(str(key) for key in pending[:_SHOWN])
    more = f" and {len(pending) - _SHOWN} more" if len(pending) > _SHOWN else ""
    return Unplaced(
        Reason.RECOVERY_PENDING,
        f"the installation recovers and Providers {names}{more} have not told yet which machines "
        "they hold; wait for them, or end the recovery with `banlieue recover --done`",
    )
