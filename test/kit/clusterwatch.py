"""Checkers over a cluster with a node: what `watched` is for roles that are processes.

    with ClusterWatch(cluster) as watch:
        ...
        watch.check()

Whatever tests do on the cluster meanwhile: kinds come and go with an installation, pods are made,
killed and replaced. One watch per kind of ours, one for each of events, pods, Secrets and kinds,
and the log of each pod of ours is followed as it is written.
"""

import base64
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self

import pytest

from banlieue.api.names import GROUP
from test.kit.kube import Kube, KubeError, Object
from test.kit.secretscan import SecretScan
from test.kit.statuswatch import Reached, StatusWatch
from test.kit.waiting import WaitTimeoutError, wait_until
from test.kit.watched import CheckError, defects_in

_PAUSE: Final = 0.5
_WATCH_SECONDS: Final = 600.0
_CATCH_UP_SECONDS: Final = 30.0
_SHORTEST: Final = 8
_EVENTS: Final = "events.events.k8s.io"
_CRDS: Final = "customresourcedefinitions"
_PART_OF: Final = ("app.kubernetes.io/part-of", "banlieue")
_LOG: Final = "log of "
_KIND_WENT: Final = re.compile(r'"logger":"kopf\.[^"]*","message":"[^"]*404 page not found"')
"""An installation is taken away with its kinds while its processes still watch them."""
_TOLD: Final = frozenset({"password", "token-secret"})
"""Keys of Secrets whose values nobody may see."""
_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+\S+\s+(\S{40,})")
"""The second line of a private key: the first is the same in many."""
_JOIN: Final = re.compile(r"token: \"?[a-z0-9]{6}\.([a-z0-9]{16})\b")


class ClusterWatch:
    """Watches what banlieue says on a cluster, and looks for the secrets of all Secrets in it."""

    def __init__(self, cluster: Reached) -> None:
        """Describe it; the `with` block begins and ends it."""
        self._kube = Kube(cluster.kubeconfig, user_agent="banlieue-cluster-watch")
        self.status = StatusWatch(cluster)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._planted: dict[str, None] = {}
        self._said: list[tuple[str, str]] = []
        self._followed: set[str] = set()
        self._crash: Exception | None = None
        self._judged = self._looked = 0

    def __enter__(self) -> Self:
        for kind, take in (
            (_CRDS, self._take_kind),
            ("secrets", self._take_secret),
            ("pods", self._take_pod),
            (_EVENTS, self._take_event),
        ):
            self._begin(self._follow, kind, take)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.status.stop()
        while any(thread.is_alive() for thread in self._threads):
            self._kube.close()
            self._threads[0].join(_PAUSE)
            self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._kube.close()

    def check(self) -> None:
        """Raise what there is to tell since the last time.

        Raises:
            CheckError: There is something.
        """
        late = self._late()
        with self._lock:
            said, self._said = self._said, []
        findings = self.status.findings[self._judged :]
        self._judged += len(findings)
        scan = self._scan(said)
        lines = [it for it in said if it[0].startswith(_LOG) and not _KIND_WENT.search(it[1])]
        told = [
            late,
            *map(str, findings),
            scan.report(),
            *(line for where, text in lines for line in defects_in(where, [text])),
        ]
        if self._crash is not None:
            raise self._crash
        if text := "\n\n".join(filter(None, told)):
            raise CheckError(text)

    def _late(self) -> str:
        try:
            wait_until(self.status.caught_up, _CATCH_UP_SECONDS, "watch", retry_on=(KubeError,))
        except WaitTimeoutError as error:
            return f"the watch did not keep up: {error}"
        return ""

    def _scan(self, said: list[tuple[str, str]]) -> SecretScan:
        """Look at what was said, at every version of every status, and at what is there now."""
        with self._lock:
            scan = SecretScan(self._planted)
        versions = self.status.everything(self._looked)
        self._looked += len(versions)
        for version in versions:
            obj = version.object
            where = f"{obj['kind']} {obj['metadata']['name']}"
            scan.look(where, json.dumps(obj, ensure_ascii=False))
        for where, text in said:
            scan.look(where, text)
        scan.look_at_objects(self._kube)
        return scan

    # What is watched

    def _take_kind(self, obj: Object) -> None:
        spec = obj["spec"]
        reports = any("status" in (it.get("subresources") or {}) for it in spec["versions"])
        conditions = (obj.get("status") or {}).get("conditions") or ()
        served = any((it["type"], it["status"]) == ("Established", "True") for it in conditions)
        if spec["group"].endswith(GROUP) and reports and served:
            self.status.follow(obj["metadata"]["name"], lasting=False)

    def _take_secret(self, obj: Object) -> None:
        with self._lock:
            self._planted.update(dict.fromkeys(planted_in(obj)))

    def _take_event(self, obj: Object) -> None:
        self._hear(f"event in {obj['metadata']['namespace']}", json.dumps(obj, ensure_ascii=False))

    def _take_pod(self, obj: Object) -> None:
        meta, (label, ours) = obj["metadata"], _PART_OF
        if (meta.get("labels") or {}).get(label) != ours:
            return
        where = f"{meta['namespace']}/{meta['name']}"
        self._hear(f"pod {where}", json.dumps(obj["spec"], ensure_ascii=False))
        for status in (obj.get("status") or {}).get("containerStatuses") or ():
            run, state = status.get("containerID") or "", status["state"]
            if run and run not in self._followed and "waiting" not in state:
                self._followed.add(run)
                self._begin(self._listen, meta["namespace"], meta["name"], status["name"], run)

    def _hear(self, where: str, text: str) -> None:
        with self._lock:
            self._said.append((where, text))

    # Threads

    def _begin(self, what: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=what, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _follow(self, kind: str, take: Callable[[Object], None]) -> None:
        version: str | None = None
        while not self._stopped.is_set():
            try:
                changes = self._kube.watch(kind, timeout=_WATCH_SECONDS, resource_version=version)
                for event in changes:
                    if event.type != "DELETED":
                        take(event.object)
                    version = event.object["metadata"]["resourceVersion"]
            except KubeError:
                # What is shown a second time is taken a second time; nothing is missed.
                version = None
                self._stopped.wait(_PAUSE)
            # Not handled here: the next check raises it.
            except Exception as error:  # noqa: BLE001 - carried to the test
                self._crash = error
                return

    def _listen(self, namespace: str, pod: str, container: str, run: str) -> None:
        """Take down what one run of a container says, to its end.

        A connection that breaks off is made again, and what was heard is heard again.
        """
        while not self._stopped.is_set():
            with contextlib.suppress(KubeError):
                for line in self._kube.log_lines(namespace, pod, container):
                    self._hear(f"{_LOG}{namespace}/{pod}", line)
            try:
                if not self._runs(namespace, pod, run):
                    return
            except KubeError:
                pass  # the server is away, which says nothing about the pod
            self._stopped.wait(_PAUSE)

    def _runs(self, namespace: str, pod: str, run: str) -> bool:
        found = self._kube.find("pods", pod, namespace) or {}
        statuses = (found.get("status") or {}).get("containerStatuses") or ()
        return any(it.get("containerID") == run and "running" in it["state"] for it in statuses)


_AT_WORK: Final = pytest.StashKey[list[ClusterWatch]]()


@contextmanager
def cluster_watched(config: pytest.Config, cluster: Reached) -> Iterator[None]:
    """Watch a cluster beside all tests of the block: `check_clusters` tells after each of them.

    Raises:
        CheckError: Something was said since the last test.
    """
    at_work = config.stash.setdefault(_AT_WORK, [])
    with ClusterWatch(cluster) as watch:
        at_work.append(watch)
        try:
            yield
        finally:
            at_work.remove(watch)
        watch.check()


def check_clusters(config: pytest.Config) -> None:
    """Raise what there is to tell of the clusters that are watched.

    Raises:
        CheckError: There is something.
    """
    for watch in config.stash.get(_AT_WORK, []):
        watch.check()


def planted_in(secret: Object) -> Iterator[str]:
    """What of a Secret must be seen nowhere: passwords, tokens, a line of each private key."""
    for key, value in (secret.get("data") or {}).items():
        text = base64.b64decode(value).decode(errors="replace")
        # A plain word, as the samples have it, is found anywhere.
        if key in _TOLD and len(text.strip()) >= _SHORTEST and not text.isalpha():
            yield text
        yield from _KEY.findall(text)
        yield from _JOIN.findall(text)
