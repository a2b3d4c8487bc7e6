"""Which disks of ours outlived their machines, for the Provider's status."""

from collections.abc import Iterable
from typing import Any

from banlieue.api.v1alpha1.provider_status import RetainedDisk
from banlieue.sdk import installation
from banlieue.sdk.driver import Driver
from banlieue.sdk.errors import DriverError
from banlieue.sdk.outcome import CONTINUE, Outcome
from banlieue.sdk.powers import DiskKeeper, KeptDisk
from banlieue.sdk.provider.scope import Memory, ProviderScope

AGAIN = 1.0
"""Seconds after which a driver that is still finding out is asked again."""

PAUSE = 10.0
"""Least seconds between two lists; drivers know by themselves when theirs is out of date."""

_TIMEOUT = 60.0
_MOST = 1024
_MOST_DOMAINS = 256


async def read_retained(scope: ProviderScope) -> Outcome:
    """Which disks are kept? A list that cannot be read stays as it was published."""
    memory = scope.memory
    if not scope.due(memory.retained_read, PAUSE):
        return CONTINUE
    memory.retained_wanted = False  # what comes to the list while it is read asks again
    known = await installation.read_live(scope.ctx.api, scope.installation_namespace)
    if known is None:
        return CONTINUE

    def read(driver: Driver[Any]) -> tuple[KeptDisk, ...] | None:
        if not isinstance(driver, DiskKeeper):
            return ()
        found = driver.kept_disks(known.id)
        return None if found is None else tuple(found)

    try:
        found = await scope.session.call(read, timeout=_TIMEOUT)
    except DriverError:
        memory.retained_asked = False
        return CONTINUE
    memory.retained_asked = found is None
    if found is None:
        return CONTINUE
    memory.retained = found
    memory.retained_read = scope.ctx.clock.monotonic()
    return CONTINUE


def due_in(memory: Memory, now: float) -> float:
    """Seconds until the list may be read again, as a disk came to it; for what comes together."""
    last = memory.retained_read
    return AGAIN if last is None else max(AGAIN, last + PAUSE - now)


def listed(scope: ProviderScope, before: Iterable[RetainedDisk]) -> list[RetainedDisk]:
    """The disks as the status shows them; those of before while nothing was read."""
    if scope.memory.retained is None:
        return list(before)
    by_id = {disk.id: disk for disk in scope.memory.retained}
    return [_shown(scope, by_id[key]) for key in sorted(by_id)][:_MOST]


def _shown(scope: ProviderScope, disk: KeptDisk) -> RetainedDisk:
    names = (scope.session.domain_name(domain) for domain in disk.failure_domains)
    return RetainedDisk(
        id=disk.id,
        namespace=disk.namespace,
        size_gib=disk.size_gib,
        failure_domains=sorted(name for name in names if name)[:_MOST_DOMAINS],
    )
