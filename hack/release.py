"""Makes the files of a release: `.venv/bin/python hack/release.py [--version v1.2.3] [--out out]`.

The same tree gives the same files, byte by byte; only the container image is taken as it was built.
"""

import argparse
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

if not __package__:
    # Run as a script, without installation: the package is found from the top of the checkout.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import banlieue
from hack.components import (
    CONFIG,
    ROOT,
    Image,
    ReleaseError,
    backends,
    build,
    semantic_version,
    write_components,
)

CHECKSUMS: Final = "checksums.txt"

_CHUNK: Final = 1 << 20
_MANIFEST: Final = "manifest.json"
_WHEEL_SECONDS: Final = 300


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        make_release(
            chosen.out,
            version=chosen.version or "",
            image=chosen.image,
            with_image=not chosen.no_image,
            with_wheel=not chosen.no_wheel,
        )
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: cannot write the release: {error}", file=sys.stderr)
        return 1
    for line in (chosen.out / CHECKSUMS).read_text(encoding="utf-8").splitlines():
        name = line.split("  ", 1)[1]
        print(f"{(chosen.out / name).stat().st_size:>12,}  {chosen.out / name}")
    return 0


def make_release(
    out: Path, *, version: str, image: str, with_image: bool, with_wheel: bool
) -> None:
    """Make a whole release, in place of the one in the folder `out`.

    Args:
        out: Where to; an earlier release in it is left alone when this one fails.
        version: As `v1.2.3`; empty means that of this tree.
        image: What the Deployments run, as `name` (tagged with the version) or `name:tag`.
        with_image: Whether the container image is part of it.
        with_wheel: Whether the wheel is part of it.

    Raises:
        ReleaseError: A part cannot be made, or would have another version.
    """
    own = semantic_version(banlieue.__version__)
    version = version or own
    if version != own and (with_image or with_wheel):
        raise ReleaseError(
            f"this tree is {own}, not {version}: set __version__ in src/banlieue/__init__.py, or "
            "give --no-image --no-wheel for the manifests alone"
        )
    with tempfile.TemporaryDirectory(prefix="banlieue-release-") as scratch:
        made = Path(scratch)
        write_manifests(made, version, image)
        if with_wheel:
            write_wheel(made)
        if with_image:
            named = Image.parse(image, default_tag=version)
            write_image(made / f"banlieue-{version}-image.tar", named)
        write_checksums(made)
        replace_release(out, made)


def write_manifests(directory: Path, version: str, image: str) -> None:
    """Write everything that is YAML into a folder.

    Raises:
        ReleaseError: As `write_components` does.
    """
    write_components(directory, version, image)
    parts = {f"provider-{backend}.yaml": folder for backend, folder in backends().items()}
    parts["crds.yaml"] = CONFIG / "crd"
    parts["node-patcher.yaml"] = CONFIG / "node-patcher"
    for name, folder in parts.items():
        (directory / name).write_text(build(folder, version, image), encoding="utf-8")


def write_wheel(directory: Path) -> None:
    """Build the wheel of this tree into a folder.

    Raises:
        ReleaseError: The build failed.
    """
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    # hatchling writes fixed times into the wheel unless this says otherwise.
    environment = {key: it for key, it in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
    answer = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_WHEEL_SECONDS,
    )
    if answer.returncode:
        raise ReleaseError(f"the wheel cannot be built: {answer.stderr.strip()}")


def write_image(target: Path, image: Image) -> None:
    """Write the container image as a docker-archive under the name the manifests give it.

    Raises:
        ReleaseError: It cannot be built.
    """
    # Building images needs tools that the manifests alone do not.
    from hack.images.catalog import OWN, archive_of
    from hack.images.store import ImageError

    try:
        archive = archive_of(OWN)
    except ImageError as error:
        raise ReleaseError(f"{error}; or leave the image out with --no-image") from error
    rename_image(archive, target, image.tagged)


def rename_image(source: Path, target: Path, reference: str) -> None:
    """Copy a docker-archive of one image, giving the image another name.

    Args:
        source: A tar with `manifest.json` at its top.
        target: Where to.
        reference: Name and tag in the copy.

    Raises:
        ReleaseError: It is no such archive, or holds several images.
    """
    renamed = False
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for member in old:
            if member.name == "repositories":
                continue  # the older index of names
            content = old.extractfile(member) if member.isfile() else None
            if member.name == _MANIFEST and content is not None:
                images = json.load(content)
                if len(images) != 1:
                    raise ReleaseError(f"{source} holds {len(images)} images, not one")
                text = json.dumps([{**images[0], "RepoTags": [reference]}]).encode()
                member.size, content, renamed = len(text), io.BytesIO(text), True
            new.addfile(member, content)
    if not renamed:
        raise ReleaseError(f"{source} is no docker-archive: it has no {_MANIFEST}")


def write_checksums(directory: Path) -> None:
    """Write `checksums.txt` over all files of a folder, as `sha256sum -c` reads it."""
    lines = [f"{_sha256(path)}  {path.name}\n" for path in sorted(directory.iterdir())]
    (directory / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def replace_release(out: Path, made: Path) -> None:
    """Put a finished release into a folder, in place of the one that is there.

    Only what an earlier release put there goes; the folder may hold other things.
    """
    out.mkdir(parents=True, exist_ok=True)
    listed = out / CHECKSUMS
    if listed.is_file():
        for line in listed.read_text(encoding="utf-8").splitlines():
            old = line.partition("  ")[2]
            if old and Path(old).name == old:
                (out / old).unlink(missing_ok=True)
        listed.unlink()
    for path in sorted(made.iterdir(), key=lambda path: path.name == CHECKSUMS):
        shutil.move(path, out / path.name)


def _sha256(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            total.update(chunk)
    return total.hexdigest()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", help="such as v1.2.3; default: that of this tree")
    parser.add_argument("--out", type=Path, default=ROOT / "out", help="where to; default: out")
    parser.add_argument(
        "--image",
        default="localhost/banlieue",
        metavar="NAME[:TAG]",
        help="what the Deployments run, and the name of the image in its tar; default: "
        "%(default)s, tagged with the version",
    )
    parser.add_argument("--no-image", action="store_true", help="leave the image tar out")
    parser.add_argument("--no-wheel", action="store_true", help="leave the wheel out")
    return parser


if __name__ == "__main__":
    sys.exit(main())
