import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from test.kit.process import Process, ProcessEndedError
from test.kit.waiting import WaitTimeoutError, wait_until

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
SLEEP = ["sleep", "3600"]
# It waits without a child of its own, which nobody would end after a SIGKILL of its grandparent.
_DEAF = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
signal.pause()
"""
DEAF = [sys.executable, "-c", _DEAF]
ROLE = [sys.executable, "-m", "banlieue"]
SERVING = [sys.executable, "-m", "banlieue.sdk.simulated.server", "--listen", "127.0.0.1:0"]


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    return tmp_path / "process.log"


def _alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


@pytest.fixture
def process(log_file: Path) -> Iterator[Process]:
    with Process("sleeper", SLEEP, log_file=log_file) as process:
        yield process


def test_a_stopped_process_is_gone_and_can_be_started_again(process: Process) -> None:
    first = process.pid

    assert process.stop() == -signal.SIGTERM
    assert not process.running
    assert not _alive(first)

    process.start()
    assert process.running
    assert process.pid != first


def test_output_of_all_runs_is_kept(log_file: Path) -> None:
    with Process("talker", ["sh", "-c", "echo one; echo two >&2"], log_file=log_file) as talker:
        assert talker.wait(10) == 0
        talker.start()
        assert talker.wait(10) == 0

    assert talker.logs() == "one\ntwo\n" * 2
    assert talker.log_tail(1) == "two"


def test_killing_takes_the_whole_group(log_file: Path) -> None:
    script = "sleep 3600 & echo $!; wait"
    with Process("parent", ["sh", "-c", script], log_file=log_file) as parent:
        child = int(wait_until(parent.logs, 10, "the pid of the child"))
        parent.kill9()

    assert parent.returncode == -signal.SIGKILL
    wait_until(lambda: not _alive(child), 10, "the child to be gone")


def test_a_group_that_outlives_its_leader_is_ended(log_file: Path) -> None:
    with Process("leader", ["sh", "-c", "sleep 3600 & echo $!"], log_file=log_file) as leader:
        assert leader.wait(10) == 0

    child = int(leader.logs())
    wait_until(lambda: not _alive(child), 10, "the child to be gone")


def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(log_file: Path) -> None:
    with Process("deaf", DEAF, log_file=log_file, grace=0.2) as deaf:
        wait_until(lambda: "deaf" in deaf.logs(), 10, "the trap to be set")
        assert deaf.stop() == -signal.SIGKILL


def test_a_paused_process_still_runs_and_can_be_stopped(process: Process) -> None:
    process.pause()
    wait_until(lambda: _state(process.pid) == "T", 10, "the process to be frozen")
    assert process.running

    process.resume()
    wait_until(lambda: _state(process.pid) == "S", 10, "the process to go on")

    process.pause()
    assert process.stop() == -signal.SIGTERM


def test_a_process_that_ends_before_it_is_ready_shows_its_log(log_file: Path) -> None:
    failing = Process("failing", ["sh", "-c", "echo no such disk; exit 3"], log_file=log_file)

    with pytest.raises(ProcessEndedError, match=r"failing ended with code 3 .*\nno such disk"):
        failing.start(ready=lambda: False)


def test_a_process_that_does_not_get_ready_is_killed(log_file: Path) -> None:
    slow = Process("slow", SLEEP, log_file=log_file)

    with pytest.raises(WaitTimeoutError, match="waiting for slow to be ready"):
        slow.start(ready=lambda: False, timeout=0.1)

    assert slow.returncode == -signal.SIGKILL


def test_wrong_use_is_an_error(process: Process, log_file: Path) -> None:
    with pytest.raises(RuntimeError, match="sleeper is running already"):
        process.start()
    with pytest.raises(FileNotFoundError, match="nothing: no program '/nowhere/program'"):
        Process("nothing", ["/nowhere/program"], log_file=log_file).start()
    with pytest.raises(ProcessEndedError, match="was never started"):
        _ = Process("new", SLEEP, log_file=log_file).pid
    assert Process("new", SLEEP, log_file=log_file).stop() is None


def test_a_child_outlives_the_thread_that_started_it(log_file: Path) -> None:
    process = Process("deaf", DEAF, log_file=log_file, grace=0)
    thread = threading.Thread(target=process.start, args=(lambda: "deaf" in process.logs(),))
    thread.start()
    thread.join()

    with process, pytest.raises(WaitTimeoutError):
        process.wait(0.3)


def test_a_child_that_is_just_starting_ends_with_its_parent_too(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from test.kit.process import Process
child = Process("deaf", {DEAF!r}, log_file=Path({str(tmp_path / "log")!r})).start()
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", program]
    parent = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)

    wait_until(lambda: not _alive(int(parent.stdout)), 10, "the child to be gone")


@contextmanager
def _program(text: str) -> Iterator[tuple[int, int]]:
    """Run a program that prints the pid of its child; the pids of both."""
    with subprocess.Popen(
        [sys.executable, "-c", text],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as parent:
        assert parent.stdout is not None
        yield parent.pid, int(parent.stdout.readline())


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_end_with_the_program_that_started_them(tmp_path: Path, end: int) -> None:
    # A shell that runs the tests in the background makes its children ignore SIGINT.
    program = f"""
import signal
from pathlib import Path
from test.kit.process import Process
signal.signal(signal.SIGINT, signal.default_int_handler)
child = Process("deaf", {DEAF!r}, log_file=Path({str(tmp_path / "log")!r}))
child.start(lambda: "deaf" in child.logs())
print(child.pid, flush=True)
child.wait(3600)
"""
    with _program(program) as (parent, child):
        assert _alive(child)
        os.kill(parent, end)

    wait_until(lambda: not _alive(child), 10, "the child to be gone")


def test_a_warm_process_is_what_a_cold_one_is(tmp_path: Path) -> None:
    told = {}
    for warm in (False, True):
        for arguments in (["--version"], ["controller", "--nonsense"]):
            environment = {"PATH": os.environ["PATH"], "COLUMNS": "60"}
            log = tmp_path / f"{warm}-{arguments[0]}.log"
            process = Process(
                "role",
                [*ROLE, *arguments],
                log_file=log,
                env=environment,
                cwd=tmp_path,
                warm=warm,
            )
            code = process.start().wait(30)
            told[warm, arguments[0]] = (code, process.logs())

    assert told[True, "--version"] == told[False, "--version"]
    assert told[True, "controller"] == told[False, "controller"]
    assert told[True, "--version"][0] == 0
    assert told[True, "controller"][0] == 2


def _served(directory: Path) -> list[str]:
    (directory / "login.json").write_text('{"username": "admin", "password": "planted"}')
    login, state = str(directory / "login.json"), str(directory / "state.json")
    return [*SERVING, "--credentials", login, "--state", state]


def test_a_warm_process_can_be_killed_paused_and_started_again(tmp_path: Path) -> None:
    with Process("world", _served(tmp_path), log_file=tmp_path / "log", warm=True) as process:
        first = process.pid
        assert os.getsid(first) == first
        process.pause()
        wait_until(lambda: _state(first) == "T", 10, "it to stand still")
        process.kill9()
        assert process.returncode == -signal.SIGKILL
        assert not _alive(first)

        process.start()
        assert process.pid != first
        assert process.running
    assert not process.running


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_warm_processes_end_with_the_program_that_started_them(tmp_path: Path, end: int) -> None:
    program = f"""
import signal
from pathlib import Path
from test.kit.process import Process
signal.signal(signal.SIGINT, signal.default_int_handler)
child = Process("world", {_served(tmp_path)!r}, log_file=Path({str(tmp_path / "log")!r}), warm=True)
child.start()
print(child.pid, flush=True)
child.wait(3600)
"""
    with _program(program) as (parent, child):
        server = _parent(child)
        assert _alive(child)
        os.kill(parent, end)

    wait_until(lambda: not _alive(child), 10, "the child to be gone")
    wait_until(lambda: not _alive(server), 10, "the process it was forked from to be gone")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
