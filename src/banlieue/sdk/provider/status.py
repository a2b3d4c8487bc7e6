"""From what a pass found to the Provider's status. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from banlieue.api import names
from banlieue.api.conditions import ConditionType
from banlieue.api.meta import Condition, ConditionStatus
from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.provider import ProviderStatus
from banlieue.sdk import conditions
from banlieue.sdk.conditions import Finding
from banlieue.sdk.errors import DriverError, InvalidSpec, NeedsOperator, Refused
from banlieue.sdk.features import HONOURED, KEPT_UP, MOVE, NESTED
from banlieue.sdk.outcome import Outcome, Stop
from banlieue.sdk.provider import domains, retained
from banlieue.sdk.provider.connection import ConnectionInvalid
from banlieue.sdk.provider.refused import refused
from banlieue.sdk.provider.scope import Problem, ProviderScope

ASPECTS = (
    ConditionType.PROVIDER_REACHABLE,
    ConditionType.CREDENTIALS_VALID,
    ConditionType.PERMISSIONS_VALID,
)

_ABOUT: Mapping[Reason, tuple[ConditionType, ...]] = {
    Reason.PROVIDER_UNREACHABLE: (ConditionType.PROVIDER_REACHABLE,),
    Reason.PROVIDER_TLS_INVALID: (ConditionType.PROVIDER_REACHABLE,),
    Reason.CA_BUNDLE_MISSING: (ConditionType.PROVIDER_REACHABLE,),
    Reason.SECRET_MISSING: (ConditionType.CREDENTIALS_VALID,),
    Reason.SECRET_INVALID: (ConditionType.CREDENTIALS_VALID,),
    Reason.PROVIDER_AUTH_FAILED: (ConditionType.CREDENTIALS_VALID,),
    Reason.PROVIDER_PERMISSION_DENIED: (ConditionType.PERMISSIONS_VALID,),
}

_REFUSED_ACCOUNT = frozenset({Reason.PROVIDER_AUTH_FAILED, Reason.PROVIDER_PERMISSION_DENIED})
"""Reasons that prove the endpoint answers, and is trusted."""

_SLOW = 60.0
_SECRETS = 15.0
_SOON = 2.0
_MAX_SHOWN = 5


def problem_of(error: DriverError | ConnectionInvalid, wait: float) -> Problem:
    """What an error says about the Provider; `wait` is how long the breaker still refuses."""
    about = _ABOUT.get(error.reason, ())
    # What is full now may have room later, and no spec is wrong for that.
    passes = isinstance(error, Refused)
    if passes or not isinstance(error, ConnectionInvalid | NeedsOperator | InvalidSpec):
        return Problem(error.reason, error.message, about, after=max(wait, _SOON))
    after = _SECRETS if about and ConditionType.PERMISSIONS_VALID not in about else _SLOW
    return Problem(error.reason, error.message, about, lasting=True, after=after)


def problem_in(outcome: Outcome) -> Problem | None:
    """What a phase that stopped the pass says about the Provider."""
    if isinstance(outcome, Stop):
        return Problem(outcome.reason, outcome.message, lasting=True, after=_SLOW)
    return None


def _spec_features(scope: ProviderScope, before: ProviderStatus) -> list[str]:
    """What may be asked of the Provider's machines; some of it needs a driver with that power."""
    moves, keeps_up = scope.memory.moves, scope.memory.keeps_up
    if moves is None:
        moves = MOVE in before.spec_features
    if keeps_up is None:
        keeps_up = set(before.spec_features) >= KEPT_UP
    own = (names.FEATURE_BACKEND_ADMISSION,) if scope.backend.admits_itself else ()
    lacking = {*(() if moves else (MOVE,)), *(() if keeps_up else KEPT_UP)}
    return [*own, *(name for name in HONOURED if name not in lacking), *NESTED]


def compose(scope: ProviderScope, now: datetime) -> ProviderStatus:
    """The status to publish. What this pass did not find out stays as it was published."""
    before = scope.provider.status
    status = before.model_copy(deep=True)
    _compose_backend(scope, status)
    if scope.machine_count is not None:
        status.machine_count = scope.machine_count
    if scope.unclaimed is not None or scope.memory.told is not None:
        # What this process told last is true whatever a restore made of the status.
        status.unclaimed = scope.unclaimed or scope.memory.told
    elif status.unclaimed and scope.memory.inventory is None and scope.problem:
        status.unclaimed.complete = False  # what an earlier process read may be a restored status
    status.refused_namespaces = refused(scope)
    status.retained_disks = retained.listed(scope, status.retained_disks)
    status.spec_features = _spec_features(scope, before)
    generation = scope.provider.metadata.generation
    if not is_outage(scope.problem):
        status.observed_generation = generation
    found = {finding.type.value: finding for finding in _findings(scope)}
    kept = [c for c in before.conditions if c.type in ASPECTS and c.type not in found]
    fresh = conditions.merge(before.conditions, found.values(), generation=generation, now=now)
    known = {condition.type for condition in (*kept, *fresh)}
    missing = [conditions.unknown(t, Reason.NOT_OBSERVED) for t in ASPECTS if t not in known]
    fresh += conditions.merge((), missing, generation=generation, now=now)
    status.conditions = sorted((*kept, *fresh), key=lambda condition: condition.type)
    return status


def _compose_backend(scope: ProviderScope, status: ProviderStatus) -> None:
    memory, served = scope.memory, scope.session.served
    if memory.about is None or not served.trusted:
        return
    status.backend_identity, status.version = (
        memory.about.identity,
        memory.about.version[:63] or None,
    )
    if memory.domains is None or memory.domains_time is None:
        return
    published = domains.publish(
        served.domains,
        scope.provider.spec.failure_domains,
        status.failure_domains,
        memory.included or {},
        memory.domains_time,
    )
    if memory.about.missing_privileges:
        # With read rights missing, a domain that is no longer shown may only be hidden.
        shown = {entry.id for entry in published} | {entry.name for entry in published}
        hidden = [e for e in status.failure_domains if e.id not in shown and e.name not in shown]
        published = sorted((*published, *hidden), key=lambda entry: entry.name)
    status.failure_domains = published
    status.failure_domain_count = len(published)


def is_outage(problem: Problem | None) -> bool:
    """Whether the pass could not look, rather than found something."""
    return problem is not None and not problem.lasting


def _findings(scope: ProviderScope) -> list[Finding]:
    problem = scope.problem or _declared_problem(scope)
    found = [conditions.true(kind, Reason.RECONCILED) for kind in scope.proven]
    if problem:
        found += [conditions.false(kind, problem.reason, problem.message) for kind in problem.about]
    if problem and problem.reason in _REFUSED_ACCOUNT:
        found.append(conditions.true(ConditionType.PROVIDER_REACHABLE, Reason.RECONCILED))
    found.append(_ready(scope, problem))
    if problem and problem.lasting:
        found.append(conditions.true(ConditionType.STALLED, problem.reason, problem.message))
    elif problem and not scope.session.reached:
        found.append(conditions.true(ConditionType.RECONCILING, problem.reason, problem.message))
    if scope.paused:
        found.append(
            conditions.true(
                ConditionType.PAUSED,
                Reason.PAUSED,
                "nothing on the backend is changed; unset spec.paused to go on",
            )
        )
    if scope.deleting:
        found.append(
            conditions.true(
                ConditionType.DELETING,
                Reason.PROVIDER_IN_USE if scope.machines else Reason.DELETING,
                f"{len(scope.machines)} machines are still there; delete or move them first"
                if scope.machines
                else "",
            )
        )
    return found


def _ready(scope: ProviderScope, problem: Problem | None) -> Finding:
    if problem is not None:
        return conditions.false(ConditionType.READY, problem.reason, problem.message)
    return conditions.true(ConditionType.READY, Reason.READY, _list(scope.remarks))


def _declared_problem(scope: ProviderScope) -> Problem | None:
    """What is wrong although the pass got through: missing rights first, then the declaration."""
    about = scope.memory.about
    if about and about.missing_privileges:
        lacking = [f"{right.privilege} on {right.where}" for right in about.missing_privileges]
        return Problem(
            Reason.PROVIDER_PERMISSION_DENIED,
            f"the account lacks privileges; grant them: {_list(lacking)}",
            (ConditionType.PERMISSIONS_VALID,),
            lasting=True,
        )
    if scope.class_missing:
        return Problem(
            Reason.PROVIDER_CLASS_NOT_FOUND,
            f"ProviderClass {scope.provider.spec.provider_class_ref.name!r} does not exist; create "
            "it or refer to another; machines that exist are served on",
            lasting=True,
        )
    if scope.flaws:
        return Problem(Reason.CAPABILITY_INVALID, _list(scope.flaws), lasting=True)
    return None


def _list(sentences: Any) -> str:  # noqa: ANN401 - any sequence of strings
    shown = list(sentences)
    more = len(shown) - _MAX_SHOWN
    return "; ".join(shown[:_MAX_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def reachable(status: ProviderStatus) -> bool | None:
    """What the status says about the endpoint answering; None when it says nothing."""
    for condition in status.conditions:
        if condition.type == ConditionType.PROVIDER_REACHABLE:
            return _answer(condition)
    return None


def _answer(condition: Condition) -> bool | None:
    if condition.status == ConditionStatus.UNKNOWN:
        return None
    return condition.status == ConditionStatus.TRUE


def body(status: ProviderStatus) -> dict[str, Any]:
    """The status as it is written: without the part that is the operator's."""
    shown = status.to_api()
    shown.pop("workload", None)
    return shown
