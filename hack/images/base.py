"""Makes a base image with Python out of Debian's packages, for machines without a registry."""

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.images.buildah import Buildah, require
from hack.images.store import digest_of

SUITE: Final = "trixie"  # the first Debian with Python 3.13
PACKAGES: Final = ("ca-certificates", "python3")
NAME: Final = "localhost/banlieue-base"

# What the packages brought along, or how this machine came by them.
_LEFT_OUT: Final = (
    "./dev/*",
    "./etc/apt/sources.list",
    "./etc/hostname",
    "./etc/hosts",
    "./etc/resolv.conf",
    "./proc/*",
    "./sys/*",
    "./usr/share/doc/*/*.gz",
    "./usr/share/info/*",
    "./usr/share/locale/*",
    "./usr/share/man/*",
    "./var/cache/apt/*",
    "./var/lib/apt/lists/*",
    "./var/log/*",
)


@dataclass(frozen=True, slots=True)
class Base:
    """A base image in the storage of buildah.

    Attributes:
        image: Its name.
        apt_sources: The sources.list it was made from, which the image itself does not hold.
    """

    image: str
    apt_sources: Path


def recipe() -> str:
    """Hex SHA-256 over everything that decides what the base image is, but the mirror's state."""
    return digest_of(SUITE, PACKAGES, _LEFT_OUT)


def ensure_base(buildah: Buildah, cache: Path) -> Base:
    """The base image, made now unless the storage has it.

    Args:
        buildah: The opened storage.
        cache: Folder to keep its sources.list in, and to work in.

    Raises:
        ImageError: It cannot be made; the message says why.
    """
    base = Base(f"{NAME}:{recipe()[:16]}", cache / f"base-{recipe()[:16]}.sources")
    if base.apt_sources.is_file() and buildah.has(base.image):
        return base
    require("debootstrap")
    buildah.say(f"base image: installing Debian {SUITE} with Python, about a minute and a half")
    with tempfile.TemporaryDirectory(prefix=".unfinished-base-", dir=cache) as directory:
        sources = _make(buildah, Path(directory), base.image)
        sources.replace(base.apt_sources)
    for old in buildah.names() - {base.image}:
        if old.startswith(f"{NAME}:"):
            buildah.run("rmi", "--force", old)
    return base


def _make(buildah: Buildah, directory: Path, image: str) -> Path:
    tree, sources = directory / "tree", directory / "sources.list"
    bootstrap = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    buildah.program(*bootstrap, SUITE, str(tree), *_mirror())
    shutil.copyfile(tree / "etc/apt/sources.list", sources)
    context = directory / "context"
    context.mkdir()
    left_out = [f"--exclude={pattern}" for pattern in _LEFT_OUT]
    archive = str(context / "tree.tar")
    buildah.program("tar", "--directory", str(tree), *left_out, "-cf", archive, ".")
    (context / "Dockerfile").write_text('FROM scratch\nADD tree.tar /\nCMD ["python3"]\n')
    buildah.run("bud", "--isolation", "chroot", "--tag", image, str(context))
    return sources


def _mirror() -> list[str]:
    """The Debian mirror that this machine uses itself, if it is a Debian."""
    fields = "$(REPO_URI) $(LABEL)"
    try:
        answer = subprocess.run(
            ["apt-get", "indextargets", "--format", fields, "Identifier: Packages"],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return []
    for line in answer.stdout.splitlines():
        address, _, label = line.partition(" ")
        if label == "Debian":
            return [address]
    # debootstrap knows a public one.
    return []
