"""Makes images and keeps their archives: `python -m hack.images [NAME ...]`."""

import argparse
import json
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hack.images.catalog import IMAGES, OWN, image_named
from hack.images.own import OwnImage
from hack.images.store import Image, ImageError, Store


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        images: list[Image] = [image_named(name) for name in chosen.names or [OWN]]
        for image in images:
            _make(_as_asked(image, chosen))
    except ImageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: cannot make the image: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; what is complete so far is kept", file=sys.stderr)
        return 130
    return 0


def _as_asked(image: Image, chosen: argparse.Namespace) -> Image:
    if not isinstance(image, OwnImage):
        return image
    return replace(
        image, base_image=chosen.base_image, version=chosen.version, revision=chosen.revision
    )


def _make(image: Image) -> None:
    started = time.monotonic()
    path = Store.from_environment().archive(image, lambda line: print(line, flush=True))
    print(f"{image.name}: {path} ({time.monotonic() - started:.1f} s)")
    for line in describe(path):
        print(f"  {line}")


def describe(archive: Path) -> list[str]:
    """Lines that tell the sizes of an image and of its layers, from its docker-archive."""
    with tarfile.open(archive) as tar:
        content = tar.extractfile("manifest.json")
        assert content is not None  # noqa: S101 - a regular file, tells mypy
        layers = json.load(content)[0]["Layers"]
        sizes = [tar.getmember(layer).size for layer in layers]
    parts = " + ".join(f"{size / 1e6:.1f}" for size in sizes)
    return [f"{sum(sizes) / 1e6:.1f} MB in {len(sizes)} layers: {parts}"]


def _parser() -> argparse.ArgumentParser:
    names = ", ".join(image.name for image in IMAGES)
    parser = argparse.ArgumentParser(
        prog="python -m hack.images",
        description="Make images and keep their docker-archives in the user's cache.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {OWN}; of {names}")
    parser.add_argument("--base-image", help="build ours on this image, not on one of our own")
    parser.add_argument("--version", help="version in the labels, default: the package's")
    parser.add_argument("--revision", help="commit in the labels, default: this tree's")
    return parser


if __name__ == "__main__":
    sys.exit(main())
