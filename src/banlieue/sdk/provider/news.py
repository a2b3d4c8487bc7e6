"""Events about a Provider: the difference of two statuses. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from banlieue.api.conditions import ConditionType
from banlieue.api.events import EventReason
from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.provider import ProviderStatus
from banlieue.sdk.provider import refused
from banlieue.sdk.provider.scope import Problem
from banlieue.sdk.provider.status import reachable


@dataclass(frozen=True, slots=True)
class News:
    """One event to record."""

    reason: EventReason
    message: str
    warning: bool = False


def news(before: ProviderStatus, after: ProviderStatus, problem: Problem | None) -> Iterator[News]:
    """What happened between two statuses: an outage begins and ends once, however often tried."""
    was, now = reachable(before), reachable(after)
    if problem is not None and now is False:
        if problem.reason == Reason.PROVIDER_TLS_INVALID:
            if _why(before) != problem.reason:
                yield News(EventReason.PROVIDER_TLS_INVALID, problem.message, warning=True)
        elif was is not False:
            yield News(EventReason.PROVIDER_UNREACHABLE, problem.message, warning=True)
    elif now and was is False:
        yield News(EventReason.PROVIDER_RECOVERED, "the endpoint answers again")
    told = refused.fresh(before.refused_namespaces, after.refused_namespaces)
    if told:
        yield News(EventReason.NAMESPACE_REFUSED, told, warning=True)


def _why(status: ProviderStatus) -> str:
    """Why the endpoint cannot be used, as the status has it."""
    for condition in status.conditions:
        if condition.type == ConditionType.PROVIDER_REACHABLE:
            return condition.reason
    return ""
