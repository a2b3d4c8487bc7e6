"""Failure domains that are there and may not be seen any more: an outage of theirs, no removal."""

from collections.abc import Collection, Sequence
from typing import Any

from banlieue.api.v1alpha1.provider import FailureDomainStatus
from banlieue.sdk.driver import Driver, FailureDomain
from banlieue.sdk.powers import DomainSight
from banlieue.sdk.provider.scope import ProviderScope

_TIMEOUT = 60.0


async def lost_sight(
    scope: ProviderScope, found: Sequence[FailureDomain]
) -> tuple[FailureDomain, ...]:
    """The domains published before that the backend hides now, as they were last seen.

    They take no new machines. A driver that cannot tell hidden from gone has none.
    """
    there = {domain.id for domain in found}
    before = [entry for entry in scope.provider.status.failure_domains if entry.id not in there]
    if not before:
        return ()

    def ask(driver: Driver[Any]) -> Collection[str]:
        if not isinstance(driver, DomainSight):
            return ()
        return driver.hidden_domains([entry.id for entry in before])

    hidden = set(await scope.session.call(ask, timeout=_TIMEOUT))
    return tuple(_as_last_seen(entry) for entry in before if entry.id in hidden)


def _as_last_seen(entry: FailureDomainStatus) -> FailureDomain:
    said = entry.attributes
    problem = (
        f"failure domain {entry.name} may not be read any more and takes no new machines; give the "
        "account back the right to see it"
    )
    return FailureDomain(
        id=entry.id,
        path=(entry.name,),
        storage_classes=tuple(said.available_storage_classes),
        network_classes=tuple(said.available_network_classes),
        features=tuple(feature.value for feature in said.features),
        schedulable=False,
        labels=dict(entry.labels),
        raw=dict(said.raw),
        problems=(problem,),
    )
