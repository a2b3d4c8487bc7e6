"""Kubernetes events (events.k8s.io/v1), each said once.

An event's name is made from what it says, so a restarted process that says it again meets the
event that is there and only counts it. Writing happens in the background; when the API server is
away events are dropped, never the work that caused them.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from dataclasses import dataclass

from banlieue.api.events import EventReason
from banlieue.api.names import MANAGER_EVENTS
from banlieue.api.resources import EVENTS
from banlieue.sdk import kube
from banlieue.sdk.kube import ApiClient, Key, Obj
from banlieue.sdk.patches import patch_unchanged
from banlieue.sdk.reconcile import Clock
from banlieue.sdk.runtime.metrics import Metrics

log = logging.getLogger(__name__)

NOTE_LIMIT = 1024
_NAME_LIMIT = 253
_WAITING = 1000
_REMEMBERED = 5000
_SERIES_EVERY = 300.0
_DEFAULT_NAMESPACE = "default"
_ACTION = "Reconcile"


@dataclass(frozen=True, slots=True)
class _Subject:
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Said:
    note: str
    at: float


@dataclass(frozen=True, slots=True)
class _Job:
    subject: _Subject
    body: Obj
    repeated: bool


class EventRecorder:
    """Implements `banlieue.sdk.reconcile.Recorder`."""

    def __init__(
        self,
        api: ApiClient,
        *,
        controller: str,
        instance: str,
        clock: Clock,
        metrics: Metrics,
        series_every: float = _SERIES_EVERY,
    ) -> None:
        self._api = api
        self._controller = controller
        self._instance = instance
        self._clock = clock
        self._metrics = metrics
        self._series_every = series_every
        self._said: OrderedDict[_Subject, _Said] = OrderedDict()
        self._waiting: asyncio.Queue[_Job] = asyncio.Queue(_WAITING)

    def event(self, obj: Obj, reason: EventReason, message: str, *, warning: bool = False) -> None:
        """Queue an event in the past tense; never raises, never blocks."""
        if obj.get("kind") == "Secret":
            self._metrics.events_dropped.labels("secret").inc()
            return
        note, now = message[:NOTE_LIMIT], self._clock.monotonic()
        subject = _Subject((obj.get("metadata") or {}).get("uid") or "", str(reason.value))
        said = self._said.get(subject)
        repeated = said is not None and said.note == note
        if said is not None and repeated and now - said.at < self._series_every:
            return
        job = _Job(subject, self._body(obj, subject.reason, note, warning=warning), repeated)
        try:
            self._waiting.put_nowait(job)
        except asyncio.QueueFull:
            self._metrics.events_dropped.labels("queue full").inc()
            return
        self._said[subject] = _Said(note, now)
        self._said.move_to_end(subject)
        if len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)

    async def run(self) -> None:
        """Write queued events until cancelled."""
        while True:
            job = await self._waiting.get()
            try:
                await self._write(job)
            except kube.ApiError as e:
                if isinstance(e, kube.Unavailable):
                    # Worth saying when the API server is back and it still holds.
                    self._said.pop(job.subject, None)
                self._metrics.events_dropped.labels("error").inc()
                log.debug("event not written", extra={"error": str(e)})
            finally:
                self._waiting.task_done()

    async def flush(self, timeout: float) -> None:
        """Wait for queued events to be written, for so many seconds at most."""
        try:
            await asyncio.wait_for(self._waiting.join(), timeout)
        except TimeoutError:
            self._metrics.events_dropped.labels("shutdown").inc(self._waiting.qsize())

    async def _write(self, job: _Job) -> None:
        if not job.repeated:
            try:
                await self._api.create(EVENTS, job.body, manager=MANAGER_EVENTS)
                return
            except kube.AlreadyExists:
                pass
        await self._count(job.body)

    async def _count(self, body: Obj) -> None:
        key = Key.of(body)
        try:
            there = await self._api.get(EVENTS, key)
        except kube.NotFound:
            # Events expire after an hour or so; what is said again then is news.
            await self._api.create(EVENTS, body, manager=MANAGER_EVENTS)
            return
        count = ((there.get("series") or {}).get("count") or 1) + 1
        series = {"count": count, "lastObservedTime": body["eventTime"]}
        op = {"op": "add", "path": "/series", "value": series}
        await patch_unchanged(self._api, EVENTS, there, [op], manager=MANAGER_EVENTS)

    def _body(self, obj: Obj, reason: str, note: str, *, warning: bool) -> Obj:
        meta = obj.get("metadata") or {}
        name, uid = meta.get("name") or "", meta.get("uid") or ""
        said = f"{self._controller}\0{uid}\0{reason}\0{note}"
        digest = hashlib.sha256(said.encode()).hexdigest()[:16]
        regarding = {
            "apiVersion": obj.get("apiVersion"),
            "kind": obj.get("kind"),
            "name": name,
            "namespace": meta.get("namespace"),
            "uid": uid,
            "resourceVersion": meta.get("resourceVersion"),
        }
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "metadata": {
                "name": f"{name[: _NAME_LIMIT - len(digest) - 1].rstrip('.-')}.{digest}",
                "namespace": meta.get("namespace") or _DEFAULT_NAMESPACE,
            },
            "eventTime": now,
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
            "action": _ACTION,
            "reason": reason,
            "regarding": {field: value for field, value in regarding.items() if value},
            "note": note,
            "type": "Warning" if warning else "Normal",
        }
