"""Where a machine goes, its past included: what was placed before never goes anywhere else."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from banlieue.api.reasons import Reason
from banlieue.controller.scheduling.placement import (
    Claim,
    Decision,
    Demand,
    Place,
    Placed,
    Resident,
    Site,
    Unplaced,
)
from banlieue.controller.scheduling.scheduler import decide, schedule, survey
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
    traces: Mapping[Key, Sequence[Claim]] | None = None,
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
        traces: Providers that machine objects of the owner were on which vanished a while ago,
            and what may be there; asked when nobody else tells of a past.
    """
    known = tuple(sites)
    past = remembered(demand, known, residents, before=before, recovery=recovery, traces=traces)
    return past or decide(demand, survey(demand, known, residents, refused=refused))


def remembered(
    demand: Demand,
    sites: Iterable[Site],
    residents: Iterable[Resident],
    *,
    before: Place | None,
    recovery: bool,
    traces: Mapping[Key, Sequence[Claim]] | None = None,
) -> Decision | None:
    """What follows from a machine's past alone, as in `place`; None for one that has none."""
    known = tuple(sites)
    told = {site.key: found for site in known if (found := _claims(demand, site.claims))}
    strangers = _strangers(known, before, traces or {}) & told.keys()
    claims = {key: found for key, found in told.items() if key not in strangers}
    if not claims and before is None and traces:
        there = {site.key for site in known}
        found_there = {key: _claims(demand, it) for key, it in traces.items() if key in there}
        claims = {key: found for key, found in found_there.items() if found}
    past = _latest(claims, before, known)
    # A later move may have gone there before the status was saved, and it was offered then.
    if strangers and (not past or _top(told, strangers) > _top(claims, claims)):
        return _not_allowed(strangers)
    if len(past) > 1:
        return _two_pasts(past)
    if before is not None and before.provider not in past:
        before = None
    if past:
        site = next((site for site in known if site.key in past), None)
        if site is None:
            return _provider_gone(next(iter(past)))
        return _return_to(demand, site, residents, before, claims.get(site.key, ()))
    pending = sorted(site.key for site in known if _may_hold_it(site, recovery=recovery))
    if pending:
        return _recovering(pending) if recovery else _beginning(pending)
    return None


def _strangers(
    sites: Iterable[Site], before: Place | None, traces: Mapping[Key, Sequence[Claim]]
) -> set[Key]:
    """Providers whose word no machine of this namespace is placed by.

    They are not offered to it, and nothing of our own says that the machine was ever there. Who
    runs a namespace may have a Provider in it, and any marks he likes on its backend.
    """
    known = {*traces, *([before.provider] if before else ())}
    return {site.key for site in sites if not site.allowed and site.key not in known}


def _top(told: Mapping[Key, Sequence[Claim]], providers: Iterable[Key]) -> int:
    """The latest move that these Providers tell of."""
    return max((claim.epoch for key in providers for claim in told[key]), default=0)


def _latest(
    claims: Mapping[Key, Sequence[Claim]], before: Place | None, sites: Iterable[Site]
) -> set[Key]:
    """The Providers a machine may be on: the one it was moved to last, where that is certain.

    A status may be older than a move, so where it was placed counts only as long as that Provider
    has not told that nothing of a later move is there.
    """
    past = {*claims, *([before.provider] if before else ())}
    epochs = {key: max(claim.epoch for claim in found) for key, found in claims.items()}
    top = max(epochs.values(), default=0)
    latest = {key for key, epoch in epochs.items() if epoch == top}
    unheard = [site for site in sites if site.key in past - set(claims) and not site.complete]
    return latest if top and len(latest) == 1 and not unheard else past


def _may_hold_it(site: Site, *, recovery: bool) -> bool:
    """Whether a Provider may hold the machine without having told of it.

    In recovery that is every one that did not read its whole backend since. Else it is one whose
    process has just begun and reads it now; one that cannot be read keeps nobody waiting.
    """
    if not site.allowed:
        return False
    if recovery:
        return not (site.complete and site.recovering)
    return site.told and site.ready and not site.complete


def _claims(demand: Demand, claims: Iterable[Claim]) -> list[Claim]:
    if not demand.digest:
        return []
    return [
        claim
        for claim in claims
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
    latest = max(claims, key=lambda claim: claim.epoch, default=None)
    epoch, vm = (latest.epoch, latest.vm) if latest else (0, "")
    if before is not None:
        return Placed(before, epoch, vm)
    decision = schedule(demand, [site], residents)
    if isinstance(decision, Placed):
        return Placed(decision.place, epoch, vm)
    if not site.domains:
        return Unplaced(
            Reason.PROVIDER_NOT_READY,
            f"this machine exists on Provider {site.key}, which publishes no failure domain now; "
            "it is taken up again when the Provider is ready",
        )
    return Placed(Place(site.key, min(domain.name for domain in site.domains)), epoch, vm)


def _two_pasts(past: Iterable[Key]) -> Unplaced:
    names = ", ".join(str(key) for key in sorted(past))
    return Unplaced(
        Reason.OWNERSHIP_CONFLICT,
        f"machines of this owner exist on several Providers ({names}); "
        "remove all but one of them there, nothing is made or changed until then",
    )


def _not_allowed(strangers: Collection[Key]) -> Unplaced:
    return Unplaced(
        Reason.PROVIDER_NOT_ALLOWED,
        f"Provider {_listed(sorted(strangers))} tells of a machine of this owner, and is not "
        "offered to this namespace; nothing is made until its admin offers it (allowedNamespaces), "
        "or takes that machine away",
    )


def _provider_gone(key: Key) -> Unplaced:
    return Unplaced(
        Reason.PROVIDER_NOT_FOUND,
        f"the machine was placed on Provider {key}, which does not exist any more; "
        "create that Provider again, or delete this object",
    )


def _recovering(pending: Sequence[Key]) -> Unplaced:
    return Unplaced(
        Reason.RECOVERY_PENDING,
        f"the installation recovers and Providers {_listed(pending)} have not told yet which "
        "machines they hold; wait for them, or end the recovery with `banlieue recover --done`",
    )


def _beginning(pending: Sequence[Key]) -> Unplaced:
    return Unplaced(
        Reason.RECOVERY_PENDING,
        f"Providers {_listed(pending)} are being read by processes that have just begun, and one "
        "may hold this machine; it is placed as soon as they have told",
    )


def _listed(keys: Sequence[Key]) -> str:
    names = ", ".join(str(key) for key in keys[:_SHOWN])
    return f"{names} and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else names
