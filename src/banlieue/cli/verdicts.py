"""Verdicts of a dry run as data for programs and as text for people. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from banlieue.api.reasons import Reason
from banlieue.controller.scheduling.dryrun import Verdict
from banlieue.controller.scheduling.placement import Candidate, Placed, Rejection
from banlieue.controller.scheduling.rejections import remedy
from banlieue.controller.scheduling.scheduler import HEADROOM_STEPS
from banlieue.sdk.kube import Key

Data = dict[str, Any]

_HEADER = ("PROVIDER", "FAILURE DOMAIN", "RESULT", "REASON", "DETAIL")
_NONE = "-"


def to_data(verdict: Verdict, *, explain: bool) -> Data:
    """One verdict; with `explain` every candidate, the best of those that fit first.

    Keys: `virtualMachine`, `placed`, `reason`, `message`; `provider` and `failureDomain` when it
    is placed; `candidates` when asked for.
    """
    told: Data = {"virtualMachine": _name(verdict.key), **_decision(verdict)}
    if explain:
        chosen = verdict.decision.place if isinstance(verdict.decision, Placed) else None
        told["candidates"] = [
            *(_fit(it, chosen=it.place == chosen) for it in verdict.survey.fits),
            *(_rejected(it) for it in verdict.survey.rejections),
        ]
    return told


def to_text(told: Data) -> str:
    """What `to_data` gave, as lines."""
    machine = told["virtualMachine"]
    outcome = "placed" if told["placed"] else f"not placed, {told['reason']}"
    lines = [f"{machine['namespace']}/{machine['name']}: {outcome}", f"  {told['message']}"]
    candidates = told.get("candidates")
    if candidates:
        lines += ["", *(f"  {line}" for line in _table(_row(it) for it in candidates))]
    return "\n".join(lines)


def _decision(verdict: Verdict) -> Data:
    decision = verdict.decision
    if not isinstance(decision, Placed):
        return {"placed": False, "reason": decision.reason.value, "message": decision.message}
    place = f"failure domain {decision.place.domain} of Provider {decision.place.provider}"
    return {
        "placed": True,
        "reason": Reason.SCHEDULED.value,
        "message": f"stays in {place}, where it was placed"
        if verdict.before
        else f"goes to {place}",
        "provider": _name(decision.place.provider),
        "failureDomain": decision.place.domain,
    }


def _fit(candidate: Candidate, *, chosen: bool) -> Data:
    score = candidate.score
    return {
        "provider": _name(candidate.place.provider),
        "failureDomain": candidate.place.domain,
        "result": "chosen" if chosen else "fits",
        "scores": {
            "unwantedNeighbours": score.conflicts,
            "headroom": score.headroom / HEADROOM_STEPS,
            "machines": score.population,
        },
    }


def _rejected(rejection: Rejection) -> Data:
    told: Data = {"provider": _name(rejection.provider)}
    if rejection.domain:
        told["failureDomain"] = rejection.domain
    told |= {
        "result": "rejected",
        "filter": rejection.filter,
        "reason": rejection.reason.value,
        "message": rejection.detail,
        "remedy": remedy(rejection.reason),
    }
    if rejection.figures:
        told["figures"] = rejection.figures
    return told


def _name(key: Key) -> Data:
    return {"namespace": key.namespace, "name": key.name}


def _row(candidate: Data) -> Sequence[str]:
    provider = candidate["provider"]
    where = (
        f"{provider['namespace']}/{provider['name']}",
        candidate.get("failureDomain", _NONE),
    )
    if candidate["result"] == "rejected":
        figures = f" ({candidate['figures']})" if "figures" in candidate else ""
        detail = candidate["message"] + figures
        return (*where, candidate["filter"], candidate["reason"], detail)
    scores = candidate["scores"]
    detail = (
        f"unwanted neighbours: {scores['unwantedNeighbours']}, "
        f"left: {scores['headroom']:.0%}, machines: {scores['machines']}"
    )
    return (*where, candidate["result"], _NONE, detail)


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    every = [_HEADER, *rows]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in every
    ]
