"""The image of this tree: what it is made of, and how buildah makes it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from configparser import RawConfigParser
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hack.images import base, engine
from hack.images.buildah import Buildah, opened
from hack.images.store import ImageError, Say, Store, digest_of

ROOT: Final = Path(__file__).resolve().parents[2]

# What .dockerignore lets into the build, and what decides how it is built.
_RECIPE: Final = ("Dockerfile", ".dockerignore")
# What the distribution carries of config, as pyproject.toml names it.
MANIFESTS: Final = ("admission", "default", "manager", "providers/base", "rbac")
_CONTENT: Final = (
    *("LICENSE", "README.md", "hack/images/slim.py", "pyproject.toml", "src"),
    *(f"config/{folder}" for folder in MANIFESTS),
)
_LOCKS: Final = ("requirements/build.txt", "requirements/image.txt")

# A build of a changed tree adds about ten images, most of them empty: after some fifty of those
# the storage is emptied of what only makes builds quick.
_MOST_IMAGES: Final = 500

_CERTIFICATES: Final = "/run/ca.pem"
# Settings of pip that name things of this machine which the build cannot see, or that it sets.
_NOT_PASSED_ON: Final = frozenset({"cert", "client-cert", "find-links", "require-virtualenv"})


@dataclass(frozen=True, slots=True)
class OwnImage:
    """The image that the Dockerfile at the top of this tree describes.

    Attributes:
        name: Reference of the image, with its tag.
        root: The tree.
        base_image: Image to build on, one that buildah finds or pulls; by default one made of
            Debian packages.
        version: Version in the labels; by default that of the package.
        revision: Commit in the labels; by default the last one that touched what is in the image.
    """

    name: str
    root: Path = ROOT
    base_image: str | None = None
    version: str | None = None
    revision: str | None = None

    def digest(self) -> str:
        """Hex SHA-256 over everything that is built into the image, and the base it stands on."""
        parts: list[object] = [self.name, self.base_image or _default_base()]
        parts += [self.version, self.revision]
        for path in self.sources():
            parts += [path.relative_to(self.root).as_posix(), path]
        return digest_of(*parts)

    def sources(self) -> Iterator[Path]:
        """The files that decide what the image is."""
        for name in (*_RECIPE, *_CONTENT, *_LOCKS):
            path = self.root / name
            if path.is_dir():
                for inside in sorted(path.rglob("*")):
                    if inside.is_file() and "__pycache__" not in inside.parts:
                        yield inside
            else:
                yield path

    def write(self, target: Path, say: Say) -> str:
        """Build the image and write its docker-archive; raises ImageError."""
        with tempfile.TemporaryDirectory() as directory:
            options = ["--tag", self.name, *self.label_arguments()]
            # People go on working while this builds.
            snapshot = self._copied_to(Path(directory) / "context")
            secrets = _secrets(Path(directory))
            builder = engine.chosen()
            if builder == engine.BUILDAH:
                self._build_with_buildah(snapshot.root, target, [*options, *_mounted(secrets)], say)
            else:
                if self.base_image:
                    options += ["--build-arg", f"BASE_IMAGE={self.base_image}"]
                say(f"{self.name}: building")
                engine.build(builder, [*options, *_mounted(secrets)], snapshot.root, say)
                engine.save(builder, self.name, target)
            return snapshot.digest()

    def _build_with_buildah(
        self, context: Path, target: Path, options: list[str], say: Say
    ) -> None:
        cache = Store.from_environment().cache
        with opened(cache, say) as buildah:
            if self.base_image is None:
                made = base.ensure_base(buildah, cache)
                options = [*options, *_mounted({"apt-sources": made.apt_sources})]
                image, pull = made.image, "--pull-never"
            else:
                image, pull = self.base_image, "--pull"
            say(f"{self.name}: building on {image}")
            options = [*options, pull, "--build-arg", f"BASE_IMAGE={image}"]
            buildah.run("bud", "--layers", "--isolation", "chroot", *options, str(context))
            say(f"{self.name}: writing the archive")
            buildah.run("push", self.name, f"docker-archive:{target}:{self.name}")
            _drop_old_layers(buildah)

    def label_arguments(self) -> list[str]:
        """The options of buildah that say what the labels are."""
        version = self.version or _package_version(self.root)
        revision = self.revision or _revision(self.root)
        return ["--build-arg", f"VERSION={version}", "--build-arg", f"REVISION={revision}"]

    def _copied_to(self, directory: Path) -> "OwnImage":
        for path in self.sources():
            copy = directory / path.relative_to(self.root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
        return replace(self, root=directory)


def pip_configuration(settings: Mapping[str, str], directory: Path) -> dict[str, Path]:
    """Write what pip has to know inside the build to files that are mounted while it runs.

    Args:
        settings: Options of pip's global section, as this machine's pip has them.
        directory: Where the files go.

    Returns:
        The files by name of the build secret.
    """
    files: dict[str, Path] = {}
    parser = RawConfigParser()
    parser["global"] = {
        name: value for name, value in settings.items() if name not in _NOT_PASSED_ON
    }
    certificates = settings.get("cert")
    if certificates and Path(certificates).is_file():
        parser["global"]["cert"] = _CERTIFICATES
        files["ca"] = Path(certificates)
    files["pip"] = directory / "pip.conf"
    with files["pip"].open("w", encoding="utf-8") as out:
        parser.write(out)
    return files


def _default_base() -> str:
    return base.recipe() if engine.chosen() == engine.BUILDAH else "as the Dockerfile says"


def _mounted(secrets: Mapping[str, Path]) -> list[str]:
    return [
        word for name, path in secrets.items() for word in ("--secret", f"id={name},src={path}")
    ]


def _secrets(directory: Path) -> dict[str, Path]:
    answer = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    if answer.returncode:
        # No pip here: the one in the build does what it does by default.
        return {}
    return pip_configuration(parse_settings(answer.stdout), directory)


def parse_settings(listed: str) -> dict[str, str]:
    """The options that `pip config list` prints; later lines do not override the environment's."""
    settings: dict[str, str] = {}
    from_environment: dict[str, str] = {}
    for source, name, value in re.findall(r"^(\S+)\.([\w-]+)='(.*)'$", listed, re.MULTILINE):
        if source == ":env:":
            from_environment[name] = value
        elif source in {"global", "install", "wheel"}:
            settings[name] = value
    return {**settings, **from_environment}


def _package_version(root: Path) -> str:
    text = (root / "src/banlieue/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        raise ImageError("src/banlieue/__init__.py names no __version__")
    return found[1]


def _revision(root: Path) -> str:
    """The last commit that touched what is in the image; `-dirty` when there is more than that."""
    paths = ["--", *_CONTENT, *_RECIPE, *_LOCKS]
    commit = _git(root, "log", "-1", "--format=%H", *paths)
    if not commit:
        return "unknown"
    return f"{commit}-dirty" if _git(root, "status", "--porcelain", *paths) else commit


def _git(root: Path, *arguments: str) -> str:
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _drop_old_layers(buildah: Buildah) -> None:
    everything = buildah.run("images", "--all", "--quiet").split()
    if len(set(everything)) > _MOST_IMAGES:
        buildah.run("rmi", "--prune", "--force")
