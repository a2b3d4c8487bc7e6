"""Compiles one pinned Go tool into the store."""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from hack.tools.catalog import Store, Tool, ToolError
from hack.user_cache import VARIABLE as CACHE_VARIABLE

_KEEP_UNUSED_SECONDS: Final = 30 * 24 * 3600
_TAIL_LINES: Final = 15
_INSTALL_GO: Final = "install it from https://go.dev/dl/ or with your package manager"
_OR_SUPPLY: Final = (
    ", or set KUBEBUILDER_ASSETS to a folder that holds etcd, kube-apiserver and kubectl"
)
_NETWORK_TROUBLE: Final = re.compile(
    r"dial tcp|no such host|name resolution|connection (refused|reset)|network is unreachable"
    r"|i/o timeout|TLS handshake timeout|proxyconnect|unexpected EOF|50[234] "
    r"|module lookup disabled",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build is.

    Attributes:
        compiled: Go packages compiled by this build so far.
        stale: Go packages that it has to compile.
        packages: Go packages that the binary consists of; Go's own cache has the others.
        elapsed: Seconds since the compiler was started.
    """

    compiled: int
    stale: int
    packages: int
    elapsed: float

    def seconds_left(self, cold_seconds: float) -> float:
        """What is left to do, from the table at first and from the pace seen later on."""
        expected = cold_seconds * self.stale / max(self.packages, 1)
        done = min(self.compiled / max(self.stale, 1), 1.0)
        from_table = max(expected - self.elapsed, expected * (1 - done) / 2)
        if not done:
            return from_table
        from_pace = self.elapsed * (1 - done) / done
        return done * from_pace + (1 - done) * from_table


def build(tool: Tool, store: Store, report: Callable[[Progress], None]) -> Path:
    """Compile one tool; the binary appears complete or not at all.

    Call it while holding `build_lock`. Modules come from the Go module proxy the user configured.

    Args:
        tool: What to build.
        store: Where its module is and where the binary goes.
        report: Called about once a second while the compiler runs.

    Returns:
        The binary.

    Raises:
        ToolError: Go is missing or too old, its modules cannot be had, or the build failed.
    """
    directory = store.module_directory(tool)
    go = require_go_for(tool, store)
    stale, packages = _fetch_modules(go, tool, directory)
    target = store.build_path(tool)
    target.parent.mkdir(parents=True, exist_ok=True)
    _discard_unfinished(target.parent)
    descriptor, name = tempfile.mkstemp(prefix=".unfinished-", dir=target.parent)
    os.close(descriptor)
    unfinished = Path(name)
    try:
        command = [go, "build", "-v", "-trimpath", "-buildvcs=false"]
        command += ["-ldflags", store.link_flags(tool), "-o", str(unfinished), tool.package]
        _compile(
            command,
            directory,
            tool,
            lambda compiled, elapsed: report(Progress(compiled, stale, packages, elapsed)),
        )
        if store.build_path(tool) != target:
            raise ToolError(f"the sources of {tool.name} changed while it was built; run it again")
        unfinished.chmod(0o755)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    _discard_unused(store.cache, tool.module, keep=target.parent)
    return target


@contextmanager
def build_lock(cache: Path, on_wait: Callable[[], None]) -> Iterator[int]:
    """Keep other builds of this machine's user out; calls `on_wait` once before it has to wait.

    Yields the descriptor of the lock. The compiler inherits it, so that a build whose parent was
    killed still holds the lock until it is through.

    Raises:
        ToolError: The cache folder cannot be written.
    """
    with _opened_lock(cache) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        os.set_inheritable(lock.fileno(), True)
        yield lock.fileno()


def _opened_lock(cache: Path) -> IO[str]:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        return (cache / ".lock").open("w")
    except OSError as error:
        raise ToolError(
            f"the binaries go to {cache}, which cannot be written ({error.strerror}); "
            f"make it writable, or set {CACHE_VARIABLE} to a folder that is"
        ) from error


def require_go_for(tool: Tool, store: Store) -> str:
    """The Go command for the tool's module, as `require_go`, with every other way to get the tool.

    Raises:
        ToolError: Go is missing or too old; the message says how to get it.
    """
    # Only some tools are taken from KUBEBUILDER_ASSETS, so only for these it is of help.
    supplied = tool.asset != "never"
    return require_go(store.module_directory(tool), _OR_SUPPLY if supplied else "")


def require_go(module: Path, or_else: str = "") -> str:
    """The Go command, new enough for the module.

    Args:
        module: Folder of the Go module.
        or_else: Another remedy, appended to "install it".

    Raises:
        ToolError: Go is missing or too old; the message says how to get it.
    """
    go = shutil.which("go")
    wanted = re.search(r"^go (\S+)", (module / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    minimum = wanted[1] if wanted else "1.24"
    needed = f"building {module.name} needs Go {minimum} or newer; {_INSTALL_GO}{or_else}"
    if go is None:
        raise ToolError(needed)
    answer = subprocess.run(
        [go, "env", "GOVERSION", "GOTOOLCHAIN"],
        cwd="/",
        env={**os.environ, "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode:
        raise ToolError(f"{go} does not work: {_tail(answer.stderr.splitlines())}")
    version, toolchain = answer.stdout.splitlines()
    # Unless told otherwise, Go fetches the toolchain a module asks for by itself.
    fetches_newer = toolchain.startswith("auto") or toolchain.endswith("+auto")
    if _as_numbers(version) < _as_numbers(minimum) and not fetches_newer:
        raise ToolError(f"{go} is {version.removeprefix('go') or 'too old'}, but {needed}")
    return go


def _fetch_modules(go: str, tool: Tool, directory: Path) -> tuple[int, int]:
    """Download what the tool needs; returns how many Go packages are stale, and how many in all."""
    command = [go, "list", "-deps", "-trimpath", "-f", "{{.Stale}}", tool.package]
    answer = subprocess.run(
        command, cwd=directory, env=environment(), capture_output=True, text=True, check=False
    )
    if answer.returncode:
        raise failure(tool.name, answer.stderr.splitlines())
    stale = answer.stdout.splitlines()
    return stale.count("true"), len(stale)


def _compile(
    command: list[str],
    directory: Path,
    tool: Tool,
    report: Callable[[int, float], None],
) -> None:
    started = time.monotonic()
    lines: list[str] = []
    with subprocess.Popen(
        command,
        cwd=directory,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        close_fds=False,  # the lock of build_lock lives as long as the compiler
    ) as compiler:
        assert compiler.stdout is not None  # noqa: S101 - stdout=PIPE, tells mypy
        reader = threading.Thread(target=_collect, args=(compiler.stdout, lines), daemon=True)
        reader.start()
        try:
            while compiler.poll() is None:
                reader.join(timeout=1.0)
                report(len(lines), time.monotonic() - started)
        except BaseException:
            compiler.terminate()
            raise
        reader.join()
    if compiler.returncode:
        raise failure(tool.name, lines)


def _collect(stream: IO[str], lines: list[str]) -> None:
    lines.extend(line.rstrip() for line in stream)


def environment() -> dict[str, str]:
    """The environment of every Go command that reads or compiles a module of ours."""
    # A workspace file of somebody's parent folder must not change what is built.
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}


def failure(what: str, lines: list[str], doing: str = "building") -> ToolError:
    """The error for a Go command that failed at `doing` something to `what` and printed `lines`."""
    tail = _tail(lines)
    if _NETWORK_TROUBLE.search(tail):
        return ToolError(
            f"Go cannot download the modules of {what}; check the network and what "
            f"`go env GOPROXY` names, then run it again:\n{tail}"
        )
    if "no space left" in tail:
        return ToolError(f"the disk is full, {what} needs about 4 GB while building:\n{tail}")
    return ToolError(f"{doing} {what} failed:\n{tail}")


def _tail(lines: list[str]) -> str:
    # `go build -v` names every package; only the other lines say what went wrong.
    telling = [line for line in lines if " " in line or line.startswith("#")]
    return "\n".join((telling or lines)[-_TAIL_LINES:])


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _discard_unfinished(folder: Path) -> None:
    # Only the holder of the lock builds, so these are left over from a killed one.
    for path in folder.glob(".unfinished-*"):
        path.unlink(missing_ok=True)


def _discard_unused(cache: Path, module: str, keep: Path) -> None:
    oldest = time.time() - _KEEP_UNUSED_SECONDS
    for folder in cache.glob(f"{module}-*"):
        if folder != keep and folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)
