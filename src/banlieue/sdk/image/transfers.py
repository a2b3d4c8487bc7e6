"""Imports that the provider process carries itself: from a URL, through a digest, to a backend.

For backends that cannot fetch by themselves. Each import has a thread of its own, so that no call
of a driver ever waits for one; `Transfers` belongs to a session and ends with it.
"""

import hashlib
import logging
import threading
from collections.abc import Callable
from typing import Protocol

from banlieue.api.reasons import Reason
from banlieue.sdk.errors import DriverError, InvalidSpec, Transient
from banlieue.sdk.image.fetch import Fetch, fetch
from banlieue.sdk.image.ports import ImageImport, ImportTask

AT_ONCE = 2
"""How many imports of one session run at a time."""

_PATIENCE = 0.5

log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where an image goes: a copy that nobody uses before it is published. Raises `DriverError`."""

    def write(self, piece: bytes) -> None:
        """Add to the copy."""

    def publish(self, size: int) -> None:
        """Let the copy be the image, by rename; where there is one already, drop the copy."""

    def drop(self) -> None:
        """Throw the copy away, as far as the backend can be reached."""


Report = Callable[[int, int | None], None]
"""Told how many bytes are done of how many, by a sink that fetches more than the URL itself gives;
raises when the import is not wanted any more.
"""

OpenSink = Callable[[int | None, Report], Sink]
"""Makes room for an image of so many bytes; None when nobody knows how many."""


class StartJob(Protocol):
    """Starts the thread of an import; injected so that tests and simulators can run it instead."""

    def __call__(self, run: Callable[[], None], *, name: str) -> None:
        """Run `run` in a daemon thread of that name."""


def start_job(run: Callable[[], None], *, name: str) -> None:
    """The `StartJob` of a real process."""
    threading.Thread(target=run, name=name, daemon=True).start()


class Transfers:
    """The imports of one session, by what they are for. Thread-safe."""

    def __init__(self, source: Fetch = fetch, start: StartJob = start_job) -> None:
        self.source = source
        self._start = start
        self._turns = threading.Semaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, str], _Job] = {}

    def advance(self, wanted: ImageImport, where: str, open_sink: OpenSink) -> ImportTask | None:
        """Start the import into a place, or tell how far it is; None once when it is published.

        Raises:
            DriverError: what it failed with, once; the next call begins anew.
        """
        key = (wanted.name, where)
        with self._lock:
            job = self._jobs.get(key)
            if job is None or job.wanted != wanted:
                if job is not None:
                    job.stop()
                job = self._jobs[key] = _Job(wanted, open_sink)
                self._start(lambda: job.run(self.source, self._turns), name=f"import {wanted.name}")
                return job.task()
            if not job.ended.is_set():
                return job.task()
            del self._jobs[key]
        if job.error is not None:
            raise job.error
        return None

    def runs(self, name: str, where: str) -> bool:
        """Whether an import into a place is known here, under way or ended."""
        with self._lock:
            return (name, where) in self._jobs

    def cancel(self, name: str, where: str) -> bool:
        """End an import that is not wanted any more; False while its thread has not noticed."""
        with self._lock:
            job = self._jobs.get((name, where))
            if job is None:
                return True
            job.stop()
            if job.ended.is_set():
                del self._jobs[name, where]
            return job.ended.is_set()

    def close(self, patience: float = 0.0) -> None:
        """End all imports; for the end of the session.

        Args:
            patience: seconds that they have to take their parts away; what takes longer is left.
        """
        with self._lock:
            jobs = tuple(self._jobs.values())
            self._jobs.clear()
        for job in jobs:
            job.stop()
        for job in jobs:
            job.ended.wait(patience / len(jobs))


class _StoppedError(Exception):
    """The import is not wanted any more."""


class _Job:
    def __init__(self, wanted: ImageImport, open_sink: OpenSink) -> None:
        self.wanted = wanted
        self.ended = threading.Event()
        self.error: DriverError | None = None
        self._open_sink = open_sink
        self._stopped = threading.Event()
        self._done = 0
        self._total: int | None = None

    def task(self) -> ImportTask:
        return ImportTask(self.wanted.name, self._done, self._total)

    def stop(self) -> None:
        self._stopped.set()

    def run(self, source: Fetch, turns: threading.Semaphore) -> None:
        try:
            while not turns.acquire(timeout=_PATIENCE):
                self._check_wanted()
            try:
                self._copy(source)
            finally:
                turns.release()
        except DriverError as error:
            self.error = error
        except _StoppedError:
            self.error = _failed("the import was given up")
        # Top of the thread: whatever it is must end in the image's row, not in silence.
        except Exception:
            log.exception("an image import failed", extra={"image": self.wanted.name})
            self.error = _failed("the import failed for a reason that only the log tells")
        finally:
            self.ended.set()

    def _copy(self, source: Fetch) -> None:
        algorithm, _, expected = self.wanted.checksum.partition(":")
        digest = hashlib.new(algorithm)
        self._check_wanted()
        with source(self.wanted.url) as download:
            self._total = download.total
            sink = self._open_sink(download.total, self._report)
            try:
                for piece in download.pieces():
                    self._check_wanted()
                    digest.update(piece)
                    sink.write(piece)
                    self._done += len(piece)
                _check_digest(algorithm, digest.hexdigest(), expected)
                self._check_wanted()
                sink.publish(self._done)
            # Whatever it was, also the end of the interpreter: no part may stay. Raised again.
            except BaseException:
                sink.drop()
                raise

    def _report(self, done: int, total: int | None) -> None:
        self._check_wanted()
        self._done, self._total = done, total

    def _check_wanted(self) -> None:
        if self._stopped.is_set():
            raise _StoppedError


def _failed(what: str) -> Transient:
    return Transient(Reason.IMAGE_IMPORT_FAILED, f"{what}; it is tried again")


def _check_digest(algorithm: str, found: str, expected: str) -> None:
    if found != expected:
        raise InvalidSpec(
            Reason.IMAGE_CHECKSUM_MISMATCH,
            f"what the URL gives has the digest {algorithm}:{found}, which is not the source's "
            "checksum; nothing of it is used. Correct the checksum, or what the URL gives",
        )
