"""A cluster of one node on this host, without Docker: up, down, and what lies between."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final

from hack.cluster.interface import ClusterError, Leave
from hack.cluster.local import (
    cgroups,
    checks,
    images,
    logs,
    network,
    node_control,
    pki,
    processes,
    ranges,
    record,
    render,
    teardown,
)
from hack.cluster.local.api import Api
from hack.cluster.local.lock import locked
from hack.cluster.local.paths import Place
from hack.cluster.local.ranges import Range
from hack.cluster.local.record import Phase, Record
from hack.cluster.oserrors import told

Say = Callable[[str], None]

_RANGES_LOCK: Final = ".ranges.lock"
_READY_SECONDS: Final = 240.0
_ANSWER_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.1
_TELL_SECONDS: Final = 15.0


class LocalCluster:
    """One cluster; see `hack.cluster.interface.Cluster`."""

    def __init__(self, place: Place, say: Say, environ: Mapping[str, str]) -> None:
        self._place = place
        self._say = say
        self._environ = environ

    @classmethod
    def named(
        cls, name: str, say: Say = lambda _: None, environ: Mapping[str, str] = os.environ
    ) -> "LocalCluster":
        """The cluster of that name, up or not; raises ClusterError when the name is unfit."""
        return cls(Place.of(name, environ), say, environ)

    @property
    def name(self) -> str:
        """Its name."""
        return self._place.name

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of an administrator; there once it is up."""
        return self._place.kubeconfig

    @property
    def host_address(self) -> str:
        """Address at which pods reach what listens on this host; ClusterError unless it is up."""
        return str(self._require_up().range.host)

    def is_up(self) -> bool:
        """Whether its node runs and has been brought up; ClusterError if its state is foreign."""
        return self._only_up(record.read(self._place.state)) is not None

    def up(self) -> None:
        """Start it and wait until it runs pods; a success when it is up already.

        Raises:
            ClusterError: It cannot be started; what was begun is cleaned up, and the message has
                the last lines of the daemons' logs.
        """
        checks.require_root()
        checks.require_fit_file_system(self._place.clusters)
        with self._locked():
            known = self._known()
            if up := self._only_up(known):
                self._await_api(up)
                self._say(f"cluster {self.name} is up already")
                return
            programs = checks.find_programs()
            checks.require_room(self._place.clusters)
            if known is None or known.phase is Phase.DOWN:
                teardown.clear_host(self._place)
            else:
                self._say(f"the last node of {self.name} ended without `down`; cleaning up first")
                teardown.tear_down(
                    self._place, known, Leave.EVERYTHING if known.resumable else Leave.IMAGES
                )
            self._bring_up(known, programs, images.pause_archive())

    def down(self, leave: Leave = Leave.IMAGES) -> None:
        """End it, up or half up or killed; a success when it is not there.

        Raises:
            ClusterError: Something of it could not be removed; the rest is.
        """
        checks.require_root()
        with self._locked():
            known = self._known()
            if known is None:
                found = teardown.sweep(self._place)
                rest = "; removed what was left of one" if found else ""
                self._say(f"there is no cluster {self.name}{rest}")
                return
            if leave is Leave.EVERYTHING and known.phase is Phase.STARTING and not known.resumable:
                # It never got as far as to have anything worth keeping.
                leave = Leave.IMAGES
            self._say(f"ending cluster {self.name}")
            teardown.tear_down(self._place, known, leave)
            self._say(f"cluster {self.name} is down; kept: {leave.value}")

    def load(self, *archives: Path) -> None:
        """Give the node images from docker-archive files.

        Raises:
            ClusterError: It is not up, or an archive is not readable.
        """
        known = self._require_up()
        assert known.node is not None  # noqa: S101 - _require_up has seen it
        for archive in archives:
            self._say(f"loading {archive.name}")
            images.load(known.node, archive)

    def save_logs(self, directory: Path) -> None:
        """Copy what daemons and pods said into a directory, as far as it is there.

        Raises:
            ClusterError: Nothing is there, or it cannot be written.
        """
        known = record.read(self._place.state)
        logs.save(self._place, directory)
        if known is not None and self._is_running(known):
            logs.save_objects(self._place, directory)

    def status(self) -> str:
        """What is to say of it, in one line."""
        known = record.read(self._place.state)
        if known is None:
            return f"{self.name}: not there"
        if self._is_running(known):
            serves = known.phase is Phase.UP and Api(self._place, known.range).ready()
            state = "up" if serves else "running, but its API server does not answer"
            pid = known.node.pid if known.node else 0
            return f"{self.name}: {state}, {known.range}, node {pid}, {self.kubeconfig}"
        if known.phase is Phase.DOWN:
            return f"{self.name}: down, kept: {'everything' if known.resumable else 'images'}"
        return f"{self.name}: ended without `down`; the next `up` or `down` cleans up"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        waits = f"another command works on cluster {self.name}; waiting for it"
        with locked(self._place.lock, lambda: self._say(waits)):
            yield

    def _known(self) -> Record | None:
        """The record, or None; an unreadable one is told with what may be behind it."""
        try:
            return record.read(self._place.state)
        except ClusterError as error:
            running = processes.find(node_control.words(self._place))
            if not running:
                raise
            pids = " ".join(str(process.pid) for process in running)
            raise ClusterError(
                f"{error}\nA node of it still runs: once the directory is moved away, "
                f"`.venv/bin/python -m hack.cluster down --name {self.name}` "
                f"ends it (processes {pids})"
            ) from error

    def _require_up(self) -> Record:
        up = self._only_up(record.read(self._place.state))
        if up is None:
            raise ClusterError(
                f"cluster {self.name} is not up; "
                f"run: .venv/bin/python -m hack.cluster up --name {self.name}"
            )
        return up

    def _only_up(self, known: Record | None) -> Record | None:
        if known is None or known.phase is not Phase.UP or not self._is_running(known):
            return None
        return known

    def _is_running(self, known: Record) -> bool:
        words = node_control.words(self._place)
        return known.node is not None and processes.is_ours(known.node, words)

    def _await_api(self, known: Record) -> None:
        for _ in self._attempts(_ANSWER_SECONDS, "its API server answers"):
            if Api(self._place, known.range).ready():
                return
        raise ClusterError(
            f"{node_control.tails(self._place.logs)}\n"
            f"the node of {self.name} runs, but its API server does not answer; end it by "
            f"`.venv/bin/python -m hack.cluster down --name {self.name}` and start it again"
        )

    def _bring_up(self, known: Record | None, programs: checks.Programs, pause: Path) -> None:
        started, begun = time.monotonic(), time.time()
        resumes = known is not None and known.resumable
        try:
            current = self._reserve(known)
            how = "going on with" if resumes else "starting"
            self._say(f"{how} cluster {self.name} at {current.range}")
            self._start_node(current, programs, pause)
        # Also when a signal or a plain mistake ends it: nothing half-made may stay.
        except BaseException as error:
            self._say(f"cluster {self.name} does not come up; cleaning up")
            # What a kept cluster said in its last run explains nothing.
            tails = node_control.tails(self._place.logs, since=begun)
            self._clean_up(
                Leave.EVERYTHING if resumes else Leave.IMAGES if known else Leave.NOTHING, error
            )
            if isinstance(error, ClusterError | OSError):
                what = told(error, self._place.state) if isinstance(error, OSError) else error
                last = f"cluster {self.name} does not come up; its logs end with\n{tails}\n"
                raise ClusterError(f"{last if tails else ''}{what}") from error
            raise
        self._say(f"cluster {self.name} is up after {time.monotonic() - started:.1f} s")

    def _clean_up(self, leave: Leave, error: BaseException) -> None:
        try:
            current = record.read(self._place.state)
            if current is None:
                teardown.sweep(self._place)
            else:
                teardown.tear_down(self._place, current, leave)
        except (ClusterError, OSError) as another:
            error.add_note(f"cleaning up failed too: {another}")
            self._say(f"cleaning up failed: {another}")

    def _reserve(self, known: Record | None) -> Record:
        """Choose the range and write it down before anybody else chooses."""
        state = self._place.state
        with locked(self._place.clusters / _RANGES_LOCK):
            routes = network.host_networks()
            taken = [one.range for one in self._others()]
            wanted = self._environ.get(ranges.VARIABLE)
            if known and known.resumable:
                chosen = known.range
                self._check_kept(chosen, routes, taken)
            elif wanted:
                chosen = ranges.named(wanted)
                ranges.check(chosen, routes, taken)
            else:
                chosen = ranges.choose(routes, taken, known.range if known else None)
            state.mkdir(mode=0o700, exist_ok=True)
            current = Record(
                self.name, chosen, Phase.STARTING, resumable=bool(known and known.resumable)
            )
            current.write(state)
        return current

    def _check_kept(
        self, kept: Range, routes: Iterable[IPv4Network], taken: Iterable[Range]
    ) -> None:
        try:
            ranges.check(kept, routes, taken)
        except ClusterError as error:
            raise ClusterError(
                f"{error}\nThe kept objects of {self.name} hold addresses of {kept}: free that, or "
                f"give them up by `.venv/bin/python -m hack.cluster down --name {self.name}`"
            ) from error

    def _others(self) -> Iterator[Record]:
        for folder in self._place.clusters.iterdir():
            if not folder.is_dir() or folder == self._place.state:
                continue
            try:
                other = record.read(folder)
            except ClusterError:
                continue
            if other and (other.phase is not Phase.DOWN or other.resumable):
                yield other

    def _start_node(self, current: Record, programs: checks.Programs, pause: Path) -> None:
        place, addresses = self._place, current.range
        place.logs.mkdir(exist_ok=True)
        place.configuration.mkdir(exist_ok=True)
        pki.write_all(place, addresses)
        render.write_all(place, addresses, programs.runc, programs.cni)
        cgroups.create(place.cgroup, cgroups.hierarchies())
        # Of a fresh cluster nobody has said anything before, whatever the clock does.
        since = datetime.now(UTC) if current.resumable else datetime.min.replace(tzinfo=UTC)
        with node_control.NodeStart(place) as node:
            # Written before the node does anything: from here on everybody can end it.
            current = current.changed(node=node.process)
            current.write(place.state)
            network.connect(place.link, place.name, node.process.pid, addresses)
            node.prepare(programs.tools, addresses)
            self._start_daemons(node, pause, since, addresses)
            # Its kept objects count as kept until it stays.
            node.stay()
            current.changed(phase=Phase.UP, resumable=False).write(place.state)

    def _start_daemons(
        self, node: node_control.NodeStart, pause: Path, since: datetime, addresses: Range
    ) -> None:
        api = Api(self._place, addresses)
        self._say("starting etcd, the API server and containerd")
        node.start(render.ETCD, render.API_SERVER, render.CONTAINERD)
        self._await(node, lambda: images.answers(node.process), "containerd answers")
        images.load(node.process, pause)
        reachable = f"the API server answers (does a firewall hold back {addresses.api_url}?)"
        self._await(node, api.ready, reachable)
        self._say("starting the controllers, the scheduler, the kubelet and kube-proxy")
        node.start(pki.CONTROLLER_MANAGER, pki.SCHEDULER, pki.KUBELET, pki.PROXY)
        self._await(node, lambda: api.node_ready(since), "the node is ready")
        self._await(node, api.takes_pods, "pods can be made")
        self._await(node, lambda: api.pods_known(since), "kept pods run again")

    def _await(
        self, node: node_control.NodeStart, condition: Callable[[], bool], what: str
    ) -> None:
        for _ in self._attempts(_READY_SECONDS, what):
            if condition():
                return
            node.check()
        raise ClusterError(f"gave up after {_READY_SECONDS:.0f} s waiting until {what}")

    def _attempts(self, seconds: float, what: str) -> Iterator[None]:
        """Turns of a loop for that long; whoever watches is told now and then."""
        begun = told_at = time.monotonic()
        while (now := time.monotonic()) < begun + seconds:
            if now >= told_at + _TELL_SECONDS:
                self._say(f"waiting until {what}, for {now - begun:.0f} s now")
                told_at = now
            yield
            time.sleep(_PAUSE_SECONDS)
