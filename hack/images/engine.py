"""Builds the image with Docker or Podman, where people have those and not buildah."""

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hack.images.store import ImageError, Say

VARIABLE: Final = "IMAGE_BUILDER"
BUILDAH: Final = "buildah"
_ENGINES: Final = ("docker", "podman")


def chosen() -> str:
    """What builds the image: the user's choice, buildah for root, or an engine that answers.

    Raises:
        ImageError: The environment variable IMAGE_BUILDER names something else.
    """
    return _chosen(os.environ.get(VARIABLE, ""), os.environ.get("PATH", os.defpath), os.geteuid())


@functools.cache
def _chosen(wanted: str, search_path: str, user: int) -> str:
    if wanted:
        if wanted not in {BUILDAH, *_ENGINES}:
            raise ImageError(f"{VARIABLE} is {wanted!r}, but can be buildah, docker or podman")
        return wanted
    if user == 0 and shutil.which(BUILDAH, path=search_path):
        return BUILDAH
    for name in _ENGINES:
        program = shutil.which(name, path=search_path)
        if program and _answers(program):
            return name
    # It says best what is missing.
    return BUILDAH


def build(engine: str, options: Sequence[str], context: Path, say: Say) -> None:
    """Build the Dockerfile in `context`; its progress goes to standard error.

    Args:
        engine: `docker` or `podman`.
        options: Options of its build command, the same that buildah takes.
        context: Folder with the Dockerfile and what it copies.
        say: Told what takes time.

    Raises:
        ImageError: It failed; its own words are on standard error.
    """
    say(f"  {engine} builds, on the Dockerfile's base image unless another one is asked for")
    _run(engine, "build", *options, str(context))


def save(engine: str, image: str, target: Path) -> None:
    """Write the docker-archive of an image the engine has built; raises ImageError."""
    _run(engine, "save", "--output", str(target), image)


def _answers(program: str) -> bool:
    return subprocess.run([program, "info"], capture_output=True, check=False).returncode == 0


def _run(engine: str, command: str, *arguments: str) -> None:
    environment = {**os.environ, "DOCKER_BUILDKIT": "1"}  # its older builder knows no secrets
    try:
        answer = subprocess.run([engine, command, *arguments], env=environment, check=False)
    except FileNotFoundError as error:
        raise ImageError(f"{engine} is not installed") from error
    if answer.returncode:
        raise ImageError(f"`{engine} {command}` failed ({answer.returncode}); its words are above")
