"""Runs buildah and debootstrap over a storage of our own, so that no other tool's images change."""

import os
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hack.images.store import ImageError, Say, lock

_TAIL_LINES: Final = 25
_STEP: Final = re.compile(r"^(?:\[\d/\d\] )?STEP \d+/\d+: (.*)")
_STEP_WIDTH: Final = 90


@dataclass(frozen=True, slots=True)
class Buildah:
    """An opened storage; use it inside `opened` only.

    Attributes:
        storage: Folder with the layers of all images, kept between builds.
        run_root: Folder for what lives no longer than one use.
        driver: How layers are put on each other: `overlay` or `vfs`.
        lock: Descriptor that programs inherit: whoever killed us must not build beside them.
        say: Told what takes time.
    """

    storage: Path
    run_root: Path
    driver: str
    lock: int
    say: Say

    def run(self, *arguments: str) -> str:
        """Run a buildah command; returns what it printed.

        Raises:
            ImageError: It failed; the message ends with its last lines.
        """
        flags = ("--storage-driver", self.driver, "--root", str(self.storage))
        return self.program("buildah", *flags, "--runroot", str(self.run_root), *arguments)

    def program(self, *command: str) -> str:
        """Run any program whose mounts vanish with it, even when it is killed; as `run`."""
        own_mounts = ("unshare", "--mount", "--propagation", "private", "--")
        return _Running(self.say).output([*own_mounts, *command], self.lock)

    def has(self, image: str) -> bool:
        """Whether the storage holds an image of that name."""
        return image in self.names()

    def names(self) -> set[str]:
        """Names of all images in the storage, with their tags."""
        return set(self.run("images", "--noheading", "--format", "{{.Name}}:{{.Tag}}").split())


@contextmanager
def opened(cache: Path, say: Say) -> Iterator[Buildah]:
    """Open the storage in the folder `cache` for one process at a time.

    Raises:
        ImageError: This user or this machine cannot build; the message names the remedy.
    """
    require("buildah")
    cache.mkdir(parents=True, exist_ok=True)
    storage = cache / "storage"
    with lock(cache / ".storage.lock", "the storage of buildah", say) as descriptor:
        # Nothing is mounted or running now, whatever a killed build noted down here.
        run_root = cache / "storage-run"
        shutil.rmtree(run_root, ignore_errors=True)
        buildah = Buildah(storage, run_root, _driver(cache), descriptor, say)
        try:
            buildah.run("rm", "--all")
            yield buildah
        finally:
            shutil.rmtree(run_root, ignore_errors=True)


def require(*programs: str) -> None:
    """Raise ImageError unless this is root on Linux and all the programs are installed."""
    missing = [name for name in programs if shutil.which(name, path=search_path()) is None]
    if missing:
        raise ImageError(
            f"building the image needs {' and '.join(missing)}; on Debian or Ubuntu: "
            f"apt-get install --no-install-recommends {' '.join(missing)}"
        )
    if os.geteuid() != 0:
        raise ImageError("building the image with buildah needs root; run it again with sudo")


def search_path() -> str:
    """Where programs are looked for: debootstrap lies outside an ordinary user's PATH."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


def _driver(cache: Path) -> str:
    answer = subprocess.run(
        ["stat", "--file-system", "--format", "%T", str(cache)],
        capture_output=True,
        text=True,
        check=False,
    )
    # The kernel stacks no overlay on an overlay, as in a container.
    return "vfs" if answer.stdout.strip() == "overlayfs" else "overlay"


@dataclass(slots=True)
class _Running:
    """Collects what a program prints and tells its steps."""

    say: Say
    started: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))

    def output(self, command: Sequence[str], lock_descriptor: int) -> str:
        environment = {**os.environ, "PATH": search_path(), "LC_ALL": "C.UTF-8"}
        with subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(lock_descriptor,),
        ) as program:
            assert program.stdout is not None  # noqa: S101 - stdout=PIPE, tells mypy
            try:
                for line in program.stdout:
                    self._take(line.rstrip())
            except BaseException:
                program.terminate()
                raise
        if program.returncode:
            name = next(word for word in command if word in {"buildah", "debootstrap", "tar"})
            raise ImageError(f"{name} failed ({program.returncode}):\n" + "\n".join(self.tail))
        return "\n".join(self.lines)

    def _take(self, line: str) -> None:
        self.lines.append(line)
        self.tail.append(line)
        step = _STEP.match(line)
        if step:
            elapsed = time.monotonic() - self.started
            self.say(f"  {elapsed:4.0f}s  {' '.join(step[1].split())[:_STEP_WIDTH]}")
