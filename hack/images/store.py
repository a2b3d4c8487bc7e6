"""Where the archives of images are kept, and when one has to be made again."""

import fcntl
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from hack.user_cache import user_cache

Say = Callable[[str], None]

# Whoever asked for an archive has loaded it by then; checkouts beside this one share the cache.
_KEEP_UNUSED_SECONDS: Final = 3600
_DIGEST_LENGTH: Final = 64


class ImageError(Exception):
    """An image cannot be had; the message says what to do about it."""


class Image(Protocol):
    """Something that can be written as a docker-archive."""

    @property
    def name(self) -> str:
        """Reference of the image, with its tag."""

    def digest(self) -> str:
        """Hex SHA-256 over everything that decides what the image is."""

    def write(self, target: Path, say: Say) -> str:
        """Write the docker-archive to a file that does not exist yet; raises ImageError.

        Returns:
            The digest of what was written: sources may change while an image is made.
        """


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of archives, `<name and tag>-<digest>.tar`, that several checkouts may share.

    Attributes:
        cache: The folder; it is made when it is missing.
    """

    cache: Path

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Store":
        """The store in the user's cache directory (XDG base directories)."""
        return cls(cache=user_cache(environ) / "images")

    def path_of(self, image: Image) -> Path:
        """Where the archive of the image as it is now belongs, whether or not it is there."""
        return self.cache / f"{_stem(image.name)}-{image.digest()}.tar"

    def archive(self, image: Image, say: Say) -> Path:
        """The archive of the image, made now unless it is there.

        It appears complete or not at all; two processes never make the same one twice.

        Args:
            image: What to archive.
            say: Told what takes time.

        Raises:
            ImageError: It cannot be made; older archives are untouched.
        """
        path = self.path_of(image)
        if _touched(path):
            return path
        self.cache.mkdir(parents=True, exist_ok=True)
        with lock(self.cache / f".{_stem(image.name)}.lock", image.name, say):
            # Whoever held the lock may have made it.
            if _touched(path):
                return path
            made = self._make(image, say)
            self._sweep(image.name, keep=made)
        return made

    def _make(self, image: Image, say: Say) -> Path:
        stem = _stem(image.name)
        # Only the holder of the lock writes, so these are left over from a killed one.
        for left in self.cache.glob(f".unfinished-{stem}-*"):
            left.unlink(missing_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".unfinished-{stem}-", dir=self.cache)
        os.close(descriptor)
        unfinished = Path(name)
        unfinished.unlink()
        try:
            made = self.cache / f"{stem}-{image.write(unfinished, say)}.tar"
            unfinished.replace(made)
        finally:
            unfinished.unlink(missing_ok=True)
        return made

    def _sweep(self, name: str, keep: Path) -> None:
        oldest = time.time() - _KEEP_UNUSED_SECONDS
        for path in self.cache.glob(f"{_stem(name)}-{'?' * _DIGEST_LENGTH}.tar"):
            if path != keep and path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)


@contextmanager
def lock(path: Path, what: str, say: Say) -> Iterator[int]:
    """Keep other processes out while something is made; says so when it has to wait.

    Yields the descriptor of the lock; a program that inherits it holds the lock as long as it runs.
    """
    with path.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{what}: somebody else is making it, waiting")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield held.fileno()


def digest_of(*parts: object) -> str:
    """Hex SHA-256 over texts and the contents of files, in that order."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as content:
                total.update(hashlib.file_digest(content, "sha256").digest())
        else:
            total.update(hashlib.sha256(str(part).encode()).digest())
    return total.hexdigest()


def _touched(path: Path) -> bool:
    # The age of an archive says when it was last of use: old ones are thrown away.
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _stem(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name.removeprefix("localhost/"))
