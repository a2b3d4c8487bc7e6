"""Writes the image of one static binary as a docker-archive; needs no builder and no base image.

The same binary always gives the same bytes, on every machine.
"""

import hashlib
import io
import json
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

# "nonroot" of the distroless images, which upstream's manifests are written for.
USER: Final = "65532:65532"


@dataclass(frozen=True, slots=True)
class StaticImage:
    """What the image of a static binary consists of.

    Attributes:
        name: Reference of the image, with its tag.
        binary: The program; it must need no library and no file of a distribution.
        entrypoint: Absolute path of the program in the image.
    """

    name: str
    binary: Path
    entrypoint: str


def write_archive(image: StaticImage, target: Path) -> None:
    """Write a docker-archive that `ctr images import`, `docker load` and `kind load` accept.

    The image has one layer: the binary, and a `/tmp` that everybody may write to. It runs as
    user 65532.

    Args:
        image: What to write.
        target: File that is made or overwritten.

    Raises:
        OSError: The binary cannot be read or the file cannot be written.
    """
    with tempfile.TemporaryFile(dir=target.parent) as layer:
        _write_layer(image, layer)
        layer.seek(0)
        layer_digest = hashlib.file_digest(layer, "sha256").hexdigest()
        config = _as_json(_config(image, layer_digest))
        config_name = f"{hashlib.sha256(config).hexdigest()}.json"
        layer_name = f"{layer_digest}.tar"
        manifest = [{"Config": config_name, "RepoTags": [image.name], "Layers": [layer_name]}]
        with target.open("wb") as out, _tar(out) as archive:
            _add(archive, config_name, io.BytesIO(config))
            _add(archive, layer_name, layer)
            _add(archive, "manifest.json", io.BytesIO(_as_json(manifest)))


def _write_layer(image: StaticImage, out: IO[bytes]) -> None:
    with _tar(out) as layer:
        # The way to the program is spelled out: an unpacker may choose the modes of what is not.
        for parent in reversed(Path(image.entrypoint).parents[:-1]):
            _add_directory(layer, str(parent).lstrip("/"), 0o755)
        _add_directory(layer, "tmp", 0o1777)
        with image.binary.open("rb") as binary:
            _add(layer, image.entrypoint.lstrip("/"), binary, 0o755)


def _config(image: StaticImage, layer_digest: str) -> dict[str, object]:
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {"Entrypoint": [image.entrypoint], "User": USER, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "hack/images"}],
    }


def _tar(out: IO[bytes]) -> tarfile.TarFile:
    return tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT)


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes], mode: int = 0o644) -> None:
    # A fresh TarInfo belongs to root and dates from 1970.
    entry = tarfile.TarInfo(name)
    entry.mode = mode
    entry.size = content.seek(0, io.SEEK_END)
    content.seek(0)
    archive.addfile(entry, content)


def _add_directory(archive: tarfile.TarFile, name: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type = tarfile.DIRTYPE
    entry.mode = mode
    archive.addfile(entry)


def _as_json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
