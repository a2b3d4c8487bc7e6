"""Metrics of one process, under the names controller-runtime gave them where it has them.

Labels come from closed sets (controllers, kinds, results, status codes), never object names.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from banlieue.api.meta import Resource

_QUEUE_BUCKETS = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1000.0)
_PASS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """All collectors over one registry of their own, so that processes can share an interpreter."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._make_queue_metrics()
        self._make_controller_metrics()
        self._make_source_metrics()

    def _make_queue_metrics(self) -> None:
        reg, by = self.registry, ("name", "controller")
        self.queue_depth = Gauge("workqueue_depth", "Keys due and waiting", by, registry=reg)
        self.queue_adds = Counter("workqueue_adds_total", "Requests", by, registry=reg)
        self.queue_retries = Counter(
            "workqueue_retries_total", "Passes repeated after a failure", by, registry=reg
        )
        self.queue_wait = Histogram(
            "workqueue_queue_duration_seconds",
            "From due to handed out",
            by,
            buckets=_QUEUE_BUCKETS,
            registry=reg,
        )
        self.queue_work = Histogram(
            "workqueue_work_duration_seconds",
            "From handed out to done",
            by,
            buckets=_QUEUE_BUCKETS,
            registry=reg,
        )
        self.longest_pass = Gauge(
            "workqueue_longest_running_processor_seconds",
            "Age of the oldest running pass",
            by,
            registry=reg,
        )

    def _make_controller_metrics(self) -> None:
        reg = self.registry
        self.passes = Counter(
            "controller_runtime_reconcile_total",
            "Passes by result",
            ("controller", "result"),
            registry=reg,
        )
        self.pass_errors = Counter(
            "controller_runtime_reconcile_errors_total",
            "Passes that failed",
            ("controller",),
            registry=reg,
        )
        self.pass_time = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Duration of passes",
            ("controller",),
            buckets=_PASS_BUCKETS,
            registry=reg,
        )
        self.active_workers = Gauge(
            "controller_runtime_active_workers", "Running passes", ("controller",), registry=reg
        )
        self.max_workers = Gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Passes that may run at once",
            ("controller",),
            registry=reg,
        )
        self.leader = Gauge(
            "leader_election_master_status", "1 while the lease is held", ("name",), registry=reg
        )
        self.requests = Counter(
            "rest_client_requests_total",
            "Requests to the API server",
            ("code", "method"),
            registry=reg,
        )

    def _make_source_metrics(self) -> None:
        reg, kind = self.registry, ("kind",)
        self.cached = Gauge("banlieue_cache_objects", "Objects in the cache", kind, registry=reg)
        self.watch_events = Counter(
            "banlieue_watch_events_total", "Watch events", ("kind", "type"), registry=reg
        )
        self.echoes = Counter(
            "banlieue_watch_echoes_total",
            "Passes not asked for because the event was the pass's own write",
            kind,
            registry=reg,
        )
        self.stale_events = Counter(
            "banlieue_watch_stale_events_total", "Events older than the cache", kind, registry=reg
        )
        self.mapper_errors = Counter(
            "banlieue_mapper_errors_total", "Failed mappings", ("controller",), registry=reg
        )
        self.sweeps = Counter(
            "banlieue_sweeps_total", "Sweeps by result", ("kind", "result"), registry=reg
        )
        self.sweep_repairs = Counter(
            "banlieue_sweep_repairs_total",
            "Cache entries a sweep corrected",
            ("kind", "repair"),
            registry=reg,
        )
        self.events_dropped = Counter(
            "banlieue_events_dropped_total", "Kubernetes events not written", ("why",), registry=reg
        )
        self.loop_lag = Gauge(
            "banlieue_event_loop_lag_seconds", "Worst recent delay of the loop", registry=reg
        )

    def render(self) -> bytes:
        """Give everything in the Prometheus text format."""
        return generate_latest(self.registry)


class QueueMetrics:
    """Reports one queue to `Metrics`; implements `banlieue.sdk.runtime.queue.QueueHooks`."""

    def __init__(self, metrics: Metrics, controller: str) -> None:
        labels = (controller, controller)
        self._depth = metrics.queue_depth.labels(*labels)
        self._adds = metrics.queue_adds.labels(*labels)
        self._retries = metrics.queue_retries.labels(*labels)
        self._wait = metrics.queue_wait.labels(*labels)
        self._work = metrics.queue_work.labels(*labels)

    def added(self) -> None:
        """A request was accepted."""
        self._adds.inc()

    def started(self, waited: float) -> None:
        """A key was handed out after so many seconds."""
        self._wait.observe(waited)

    def finished(self, worked: float) -> None:
        """A pass took so many seconds."""
        self._work.observe(worked)

    def retried(self) -> None:
        """A pass is repeated."""
        self._retries.inc()

    def depth(self, ready: int) -> None:
        """So many keys wait."""
        self._depth.set(ready)


def kind_label(resource: Resource) -> str:
    """Name a kind in a metric label: ``virtualmachines.banlieue.io``."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
