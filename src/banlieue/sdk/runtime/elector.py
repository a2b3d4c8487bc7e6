"""Leadership by Lease.

A record is judged by how long it has not changed on our own monotonic clock since we saw it,
never by the times written in it; or its holder's pod is provably gone. A holder that cannot renew
in time knows it has lost before anybody else can take over. Only JSON patches with a version test
write the record.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random

from banlieue.api.names import MANAGER_LEASE
from banlieue.api.resources import LEASES
from banlieue.sdk import kube
from banlieue.sdk.kube import ApiClient, Key, Obj
from banlieue.sdk.patches import Op, patch_unchanged
from banlieue.sdk.reconcile import Clock
from banlieue.sdk.runtime.clock import finish
from banlieue.sdk.runtime.holders import has_ended

log = logging.getLogger(__name__)

_JITTER = 0.2
_HURRY = 0.2
"""Share of the pause after an attempt without answer: the deadline comes closer meanwhile."""

_RELEASE = 5.0

LONGEST = 300.0
"""Seconds that a silent holder is waited for at the most, whatever it wrote: five times our own
duration leaves room for other versions. The admission policies allow providers no more."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds: others may take over after `duration`, we give up after `deadline` without renewal.

    None is above `LONGEST`: whatever a holder wrote, others take over by then.

    `retry` is the pause between renewals and between attempts to acquire; a renewal that failed is
    repeated sooner.
    """

    duration: float = 60.0
    deadline: float = 40.0
    retry: float = 10.0

    def __post_init__(self) -> None:
        if not LONGEST >= self.duration > self.deadline > self.retry > 0:
            raise ValueError(f"lease times need {LONGEST} >= duration > deadline > retry > 0")


@dataclass(slots=True)
class _Seen:
    version: str
    since: float
    renewals: int = 0


Callback = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Called by an elector when it gets the Lease, loses it, and after each attempt."""

    held: Callback | None = None
    lost: Callback | None = None
    state: Callable[[bool], None] | None = None


class Elector:
    """Competes for one Lease for as long as `run` runs."""

    def __init__(
        self,
        api: ApiClient,
        key: Key,
        *,
        identity: str,
        clock: Clock,
        rng: Random,
        times: LeaseTimes | None = None,
        callbacks: Callbacks | None = None,
    ) -> None:
        self.key = key
        self.identity = identity
        self.holder = ""
        self._api = api
        self._clock = clock
        self._rng = rng
        self._times = times or LeaseTimes()
        self._callbacks = callbacks or Callbacks()
        self._seen: _Seen | None = None
        self._renewed: float | None = None
        self._mine: Obj | None = None
        self._told = False
        self._failing = False

    @property
    def held(self) -> bool:
        """Whether the Lease is ours right now; false as soon as the deadline has passed."""
        return (
            self._renewed is not None
            and self._clock.monotonic() - self._renewed < self._times.deadline
        )

    @property
    def stands_by(self) -> bool:
        """Whether somebody else holds the Lease who was seen to renew it, so that work is done."""
        seen = self._seen
        if seen is None or self.held or self.holder in {"", self.identity}:
            return False
        return seen.renewals > 0 and self._clock.monotonic() - seen.since < self._times.duration

    async def run(self) -> None:
        """Acquire, renew, and start over when lost, until cancelled. Does not release."""
        while True:
            await self._attempt()
            await self._tell()
            await self._clock.sleep(self._pause())

    async def release(self) -> None:
        """Give the Lease to whoever wants it next, if it is ours; takes 5 s at most.

        Never raises `ApiError`: what is not released expires.
        """
        if not self.held:
            return
        self._renewed = self._mine = None
        self._tell_state()
        try:
            await finish(self._give_up(), self._clock, within=_RELEASE)
        except (kube.ApiError, TimeoutError) as e:
            log.warning("lease not released", extra={"lease": str(self.key), "error": str(e)})

    async def _give_up(self) -> None:
        lease = await self._api.get(LEASES, self.key)
        if _holder(lease) == self.identity:
            await self._write(lease, {"holderIdentity": "", "leaseDurationSeconds": 1})

    async def _attempt(self) -> None:
        """One round trip or two; never longer than we may go without renewal."""
        self._failing = True
        try:
            await finish(self._acquire_or_renew(), self._clock, within=self._patience())
            self._failing = False
        except TimeoutError:
            log.warning("lease request took too long", extra={"lease": str(self.key)})
        except (kube.Conflict, kube.AlreadyExists):
            log.debug("lease changed meanwhile", extra={"lease": str(self.key)})
        except kube.ApiError as e:
            log.warning("lease request failed", extra={"lease": str(self.key), "error": str(e)})

    async def _acquire_or_renew(self) -> None:
        if self._mine is not None and await self._renew(self._mine):
            return
        started = self._clock.monotonic()
        try:
            lease = await self._api.get(LEASES, self.key)
        except kube.NotFound:
            lease = await self._api.create(LEASES, self._new_lease(), manager=MANAGER_LEASE)
            self._note(lease, started)
            return
        self._observe(lease)
        if _holder(lease) == self.identity:
            spec: Obj = {"renewTime": _micro_time(self._clock.now())}
        elif self._is_free(lease) or await has_ended(self._api, _holder(lease)):
            spec = self._takeover(lease)
        else:
            self._renewed = None
            return
        self._note(await self._write(lease, spec), started)

    async def _renew(self, lease: Obj) -> bool:
        """Renew without reading first; false when somebody else touched the record."""
        started = self._clock.monotonic()
        self._mine = None
        try:
            renewed = await self._write(lease, {"renewTime": _micro_time(self._clock.now())})
        except (kube.Conflict, kube.NotFound):
            return False
        self._note(renewed, started)
        return True

    def _note(self, lease: Obj, started: float) -> None:
        self._observe(lease)
        if _holder(lease) == self.identity:
            self._renewed, self._mine = started, lease

    def _observe(self, lease: Obj) -> None:
        before, self.holder = self.holder, _holder(lease)
        version = lease["metadata"].get("resourceVersion", "")
        if self._seen is None or self._seen.version != version:
            same = self._seen is not None and before == self.holder
            renewals = self._seen.renewals + 1 if same and self._seen else 0
            self._seen = _Seen(version, self._clock.monotonic(), renewals)

    def _is_free(self, lease: Obj) -> bool:
        if not _holder(lease):
            return True
        told = lease.get("spec", {}).get("leaseDurationSeconds") or 0
        patience = max(min(float(told), LONGEST), self._times.duration)
        return self._seen is not None and self._clock.monotonic() - self._seen.since >= patience

    def _takeover(self, lease: Obj) -> Obj:
        now = _micro_time(self._clock.now())
        transitions = lease.get("spec", {}).get("leaseTransitions") or 0
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._duration_seconds(),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions + 1,
        }

    def _new_lease(self) -> Obj:
        now = _micro_time(self._clock.now())
        return {
            "metadata": {"name": self.key.name, "namespace": self.key.namespace},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self._duration_seconds(),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        }

    def _duration_seconds(self) -> int:
        return max(1, round(self._times.duration))

    async def _write(self, lease: Obj, spec: Obj) -> Obj:
        ops: list[Op] = []
        if "spec" not in lease:
            ops.append({"op": "add", "path": "/spec", "value": {}})
        ops += [{"op": "add", "path": f"/spec/{name}", "value": it} for name, it in spec.items()]
        return await patch_unchanged(self._api, LEASES, lease, ops, manager=MANAGER_LEASE)

    async def _tell(self) -> None:
        if not self.held:
            self._renewed = None
        self._tell_state()
        if self.held == self._told:
            return
        self._told = self.held
        extra = {"lease": str(self.key), "holder": self.holder}
        log.info("lease acquired" if self._told else "lease lost", extra=extra)
        callback = self._callbacks.held if self._told else self._callbacks.lost
        if callback is not None:
            await callback()

    def _tell_state(self) -> None:
        if self._callbacks.state is not None:
            self._callbacks.state(self.held)

    def _patience(self) -> float:
        if self._renewed is None:
            return self._times.deadline
        left = self._times.deadline - (self._clock.monotonic() - self._renewed)
        return max(0.05, left)

    def _pause(self) -> float:
        pause = self._times.retry * self._rng.uniform(1 - _JITTER, 1 + _JITTER)
        if self._renewed is None:
            return pause
        if self._failing:
            pause *= _HURRY
        left = self._times.deadline - (self._clock.monotonic() - self._renewed)
        return max(0.0, min(pause, left))


def _holder(lease: Obj) -> str:
    return (lease.get("spec") or {}).get("holderIdentity") or ""


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
