"""What a cluster's status says: whether it can be used, and if not, what is missing. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from banlieue.api.conditions import ConditionType
from banlieue.api.infrastructure.cluster import (
    ClusterInitialization,
    ClusterStatus,
    ControlPlaneEndpoint,
    InfraCluster,
)
from banlieue.api.reasons import Reason
from banlieue.controller.clusters.domains import MAX_DOMAINS, Listing, Membership
from banlieue.sdk.conditions import Finding, false, merge, true
from banlieue.sdk.kube import Key, Obj

_SHOWN = 5


class Problem(NamedTuple):
    """Something that keeps a cluster from being used."""

    reason: Reason
    message: str


def living_status(
    cluster: InfraCluster,
    owner: Obj | None,
    found: Membership,
    listed: Listing,
    now: datetime,
    *,
    waits: str = "",
    note: str = "",
) -> ClusterStatus:
    """The status of a cluster that is looked after.

    Args:
        cluster: the cluster as read.
        owner: the Cluster that owns it, None when it is not there.
        found: its Providers.
        listed: their failure domains.
        now: the time of changes.
        waits: why an address pool gives no endpoint yet, empty when none is asked.
        note: what is to be done about an endpoint that is there, empty when nothing is.
    """
    problems = [*_provider_problems(cluster, found), *_domain_problems(cluster, found, listed)]
    if endpoint(cluster, owner) is None:
        problems.append(
            Problem(
                Reason.WAITING_FOR_CONTROL_PLANE_ENDPOINT,
                waits
                or "nobody has set the control plane endpoint: give spec.controlPlaneEndpoint here "
                "or in the Cluster, or spec.controlPlaneEndpointPool here",
            )
        )
    status = cluster.status.model_copy(deep=True)
    status.failure_domains = list(listed.domains)
    status.observed_generation = cluster.metadata.generation
    # Once it is seen it stays: later trouble is told in conditions.
    if not problems:
        status.initialization = ClusterInitialization(provisioned=True)
    complete = _complete(listed)
    findings = [
        _ready(problems, complete, _ignored(cluster, owner), note),
        complete,
        false(ConditionType.PAUSED, Reason.NOT_PAUSED),
    ]
    status.conditions = merge(
        status.conditions, findings, generation=cluster.metadata.generation, now=now
    )
    return status


def paused_status(cluster: InfraCluster, why: str, now: datetime) -> ClusterStatus:
    """The status of a paused cluster: as it was, but for the Paused condition."""
    return _with(cluster, true(ConditionType.PAUSED, Reason.PAUSED, why), now)


def deleting_status(cluster: InfraCluster, now: datetime) -> ClusterStatus:
    """The status of a cluster that is being deleted, with whose finalizers hold it."""
    held = ", ".join(sorted(cluster.metadata.finalizers))
    told = false(ConditionType.READY, Reason.DELETING, f"it is being deleted; held by {held}")
    return _with(cluster, told, now)


def _with(cluster: InfraCluster, told: Finding, now: datetime) -> ClusterStatus:
    status = cluster.status.model_copy(deep=True)
    others = [item for item in status.conditions if item.type != told.type.value]
    fresh = merge(status.conditions, [told], generation=cluster.metadata.generation, now=now)
    status.conditions = sorted([*others, *fresh], key=lambda item: item.type)
    return status


def endpoint(cluster: InfraCluster, owner: Obj | None) -> ControlPlaneEndpoint | None:
    """Where the workload cluster's API server answers: the Cluster's word, else our spec's."""
    return _owners_endpoint(owner) or cluster.spec.control_plane_endpoint


def _owners_endpoint(owner: Obj | None) -> ControlPlaneEndpoint | None:
    given: Mapping[str, Any] = ((owner or {}).get("spec") or {}).get("controlPlaneEndpoint") or {}
    if not given.get("host") or not given.get("port"):
        return None
    return ControlPlaneEndpoint(host=given["host"], port=given["port"])


def _ignored(cluster: InfraCluster, owner: Obj | None) -> str:
    """That our spec names another endpoint than the Cluster has, which is the one that counts."""
    counts, ours = _owners_endpoint(owner), cluster.spec.control_plane_endpoint
    if counts is None or ours is None or counts == ours:
        return ""
    return (
        f"the Cluster's endpoint {counts.host}:{counts.port} counts, not that of "
        "spec.controlPlaneEndpoint"
    )


def _provider_problems(cluster: InfraCluster, found: Membership) -> Iterable[Problem]:
    namespace = cluster.metadata.namespace
    for key in found.missing:
        yield Problem(
            Reason.PROVIDER_NOT_ALLOWED,
            f"Provider {key} does not exist or is not offered to namespace {namespace}: correct "
            "providerRefs, or ask for it",
        )
    for key in found.foreign:
        yield Problem(
            Reason.PROVIDER_CLASS_MISMATCH,
            f"Provider {key} is of a class whose clusters are not of kind {cluster.kind}: take it "
            "out of providerRefs",
        )


def _domain_problems(
    cluster: InfraCluster, found: Membership, listed: Listing
) -> Iterable[Problem]:
    spec = cluster.spec
    if not found.members and not spec.provider_refs:
        offered = f"no Provider for a {cluster.kind} is offered to namespace "
        offered += f"{cluster.metadata.namespace}: register one, or ask for it"
        wanted = "providerSelector matches no Provider that is offered: correct it"
        said = wanted if spec.provider_selector else offered
        yield Problem(Reason.NO_FAILURE_DOMAINS, said)
    elif spec.provider_refs and listed.silent:
        # Named ones are wanted all: a control plane begun without one would stay without it.
        yield Problem(Reason.NO_FAILURE_DOMAINS, _silent(listed.silent))
    elif not listed.domains and found.members:
        yield Problem(Reason.NO_FAILURE_DOMAINS, _silent(listed.silent))
    if not listed.eligible:
        yield Problem(
            Reason.NO_FAILURE_DOMAIN_MATCHED,
            "controlPlaneFailureDomainSelector matches no failure domain: correct it, or have one "
            "labelled",
        )


def _silent(providers: Iterable[Key]) -> str:
    return f"no failure domain was told by Provider {_some(map(str, providers))} yet"


def _complete(listed: Listing) -> Finding:
    kind = ConditionType.FAILURE_DOMAINS_AVAILABLE
    if listed.left_out:
        return false(
            kind,
            Reason.TOO_MANY_FAILURE_DOMAINS,
            f"a cluster lists at most {MAX_DOMAINS} failure domains; left out: "
            f"{_some(listed.left_out)}; narrow providerRefs or providerSelector",
        )
    if listed.taken:
        said = (
            f"{it.name} of Provider {it.refused}, as Provider {it.holder} has one of that name"
            for it in listed.taken
        )
        return false(
            kind,
            Reason.FAILURE_DOMAIN_NAME_TAKEN,
            f"left out: {_some(said)}; give it another name in spec.failureDomains of the Provider",
        )
    if not listed.domains:
        return false(kind, Reason.NO_FAILURE_DOMAINS, "no Provider has told one")
    return true(kind, Reason.FAILURE_DOMAINS_AVAILABLE)


def _ready(problems: list[Problem], complete: Finding, *endpoint_notes: str) -> Finding:
    kind = ConditionType.READY
    if not problems:
        notes = "" if complete.reason == Reason.FAILURE_DOMAINS_AVAILABLE else complete.message
        return true(kind, Reason.READY, "; ".join(filter(None, (notes, *endpoint_notes))))
    said = (*(message for _, message in problems), *endpoint_notes)
    return false(kind, problems[0][0], "; ".join(filter(None, said)))


def _some(words: Iterable[str]) -> str:
    said = list(words)
    more = f" and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    return ", ".join(said[:_SHOWN]) + more
