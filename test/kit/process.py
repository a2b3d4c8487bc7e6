"""Child processes that never outlive the program that started them."""

import atexit
import contextlib
import functools
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from test.kit.waiting import WaitTimeoutError, wait_until
from test.kit.warm import WarmServer

_TAIL_LINES: Final = 40
_KILL_TIMEOUT: Final = 10.0

# Runs before the program in the child: PR_SET_PDEATHSIG makes the kernel kill the child when its
# parent dies of anything. A parent that died before that call is found by its changed pid.
_LAUNCHER: Final = """\
import os, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[3:])
"""


class ProcessEndedError(Exception):
    """A process ended that should have run; the message has its exit code and last log lines."""


class Child(Protocol):
    """A started program; its pid is its own until it is reaped."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def returncode(self) -> int | None:
        """Its exit code once it is reaped, minus the signal number if killed."""

    def ended(self) -> bool:
        """Whether it has ended."""

    def reap(self) -> None:
        """Wait for its end and take its exit code."""


class _Spawned:
    """A child of this program."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reap(self) -> None:
        self._process.wait()


class Process:
    """One program in its own process group, its output in a log file.

    It is gone when the `with` block ends, when this program ends, even by Ctrl-C, and on Linux when
    this program is killed. Children of its own are covered too, but for the last case, unless they
    leave its process group. All methods may be called from any thread.

    Attributes:
        name: What messages call it.
        log_file: Where its output goes; a restart appends.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str | Path],
        *,
        log_file: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        grace: float = 10.0,
        warm: bool = False,
    ) -> None:
        """Describe the process; `start` starts it.

        Args:
            name: What messages call it.
            arguments: Program and arguments. They are visible to all users of the machine.
            log_file: File that gets standard output and standard error.
            env: Whole environment of the process; None inherits this program's.
            cwd: Its working directory; None inherits this program's.
            grace: Seconds between SIGTERM and SIGKILL in `stop`.
            warm: It is a module of ours, `python -m module`, and may be forked from a process that
                has imported it: quicker, but shown to others under that process's command line.
        """
        self.name = name
        self.log_file = log_file
        self._arguments = [str(argument) for argument in arguments]
        self._env = dict(env) if env is not None else None
        self._cwd = cwd
        self._grace = grace
        self._warm = warm
        self._child: Child | None = None
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self.running else "not running"
        return f"Process({self.name!r}, {state})"

    def __enter__(self) -> Self:
        if not self.running:
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Its process id, also of a process that has ended; raises ProcessEndedError before."""
        if self._child is None:
            raise ProcessEndedError(f"{self.name} was never started")
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended. A paused process is running."""
        with self._lock:
            return self._child is not None and not self._collect()

    @property
    def returncode(self) -> int | None:
        """Exit code of the last run, minus the signal number if killed; None while it runs."""
        return self._child.returncode if self._child is not None and not self.running else None

    def start(self, ready: Callable[[], object] | None = None, timeout: float = 30.0) -> Self:
        """Start it, also again after it has ended, and wait until it is ready.

        Args:
            ready: Asked until it answers something true; OSError means "not yet".
            timeout: Seconds until it has to be ready.

        Raises:
            RuntimeError: It is running already.
            FileNotFoundError: There is no such program.
            ProcessEndedError: It ended before it was ready.
            WaitTimeoutError: It was not ready in time; it is killed then.
        """
        program = shutil.which(self._arguments[0])
        if program is None:
            raise FileNotFoundError(f"{self.name}: no program {self._arguments[0]!r}")
        with self._lock:
            if self.running:
                raise RuntimeError(f"{self.name} is running already")
            self._child = _spawner.run(lambda: self._spawn(program))
            _started.add(self)
        if ready is not None:
            self._await_ready(ready, timeout)
        return self

    def stop(self, grace: float | None = None) -> int | None:
        """End it: SIGTERM, and SIGKILL after `grace` seconds (default: as constructed).

        Returns:
            Its exit code; None if it was never started. Stopping twice is fine.
        """
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        try:
            self.wait(self._grace if grace is None else grace)
        except WaitTimeoutError:
            pass
        finally:
            # Also when a Ctrl-C cuts the wait short.
            self.kill9()
        return self.returncode

    def kill9(self) -> None:
        """End it by SIGKILL, with its process group, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        self.wait(_KILL_TIMEOUT)

    def pause(self) -> None:
        """Freeze it (SIGSTOP): it answers nothing, but its connections stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause` (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def wait(self, timeout: float) -> int | None:
        """Wait until it has ended by itself; returns its exit code, None if never started.

        Raises:
            WaitTimeoutError: It still runs after `timeout` seconds.
        """
        wait_until(lambda: not self.running, timeout, f"{self.name} to end")
        return self.returncode

    def logs(self) -> str:
        """All its output so far, of all its runs."""
        if not self.log_file.exists():
            return ""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def log_tail(self, lines: int = _TAIL_LINES) -> str:
        """The last lines of its output, for error messages."""
        return "\n".join(self.logs().splitlines()[-lines:])

    def _spawn(self, program: str) -> Child:
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid())]
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        if self._warm:
            _, _, module, *arguments = self._arguments
            server = _warm_server(tuple(launcher))
            return server.start(module, arguments, log=self.log_file, env=self._env, cwd=self._cwd)
        with self.log_file.open("ab") as log:
            return _Spawned(
                subprocess.Popen(
                    [*launcher, program, *self._arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._env,
                    cwd=self._cwd,
                    start_new_session=True,
                )
            )

    def _await_ready(self, ready: Callable[[], object], timeout: float) -> None:
        def ready_or_ended() -> object:
            if not self.running:
                raise ProcessEndedError(
                    f"{self.name} ended with code {self.returncode} before it was ready; "
                    f"last lines of {self.log_file}:\n{self.log_tail()}"
                )
            return ready()

        try:
            wait_until(ready_or_ended, timeout, f"{self.name} to be ready", retry_on=(OSError,))
        except WaitTimeoutError as error:
            error.add_note(f"last lines of {self.log_file}:\n{self.log_tail()}")
            self.kill9()
            raise
        except BaseException:
            self.kill9()
            raise

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            # Not reaped yet, so neither the pid nor the group can be somebody else's.
            if self._child is not None and not self._collect():
                _signal_group(self._child.pid, number)

    def _collect(self) -> bool:
        """Reap the child if it has ended, after what is left of its group; True when reaped."""
        child = self._child
        if child is None or child.returncode is not None:
            return True
        if not child.ended():
            return False
        _signal_group(child.pid, signal.SIGKILL)
        child.reap()
        _started.discard(self)
        return True


def _signal_group(group: int, number: signal.Signals) -> None:
    # A group of which only the zombie of its leader is left may refuse signals.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class _Spawner:
    """A thread that starts all children and lives as long as this program.

    The kernel sends the parent's death signal when the *thread* that started a child ends, so a
    child started by a short-lived thread would die with it.
    """

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[tuple[Callable[[], Child], Future[Child]]] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def run(self, spawn: Callable[[], Child]) -> Child:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="spawner", daemon=True)
                self._thread.start()
        answer: Future[Child] = Future()
        self._requests.put((spawn, answer))
        return answer.result()

    def _serve(self) -> None:
        while True:
            spawn, answer = self._requests.get()
            try:
                answer.set_result(spawn())
            # Whatever went wrong belongs to the caller, and the thread has to live on.
            except BaseException as error:  # noqa: BLE001 - handed on, not swallowed
                answer.set_exception(error)


@functools.cache
def _warm_server(launcher: tuple[str, ...]) -> WarmServer:
    """The one of this program; the launcher names its pid, so a fork gets one of its own."""
    server = WarmServer([*launcher, sys.executable])
    _warm_servers.append(server)
    return server


_spawner: Final = _Spawner()
_started: Final[set[Process]] = set()
_warm_servers: Final[list[WarmServer]] = []


@atexit.register
def _kill_all() -> None:
    for process in list(_started):
        process.kill9()
    for server in _warm_servers:
        server.close()
