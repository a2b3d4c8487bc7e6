import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from hack.images.__main__ import describe
from hack.images.archive import StaticImage, write_archive

CONTENT = b"\x7fELF" + bytes(range(256)) * 100


@pytest.fixture
def image(tmp_path: Path) -> StaticImage:
    binary = tmp_path / "binary"
    binary.write_bytes(CONTENT)
    return StaticImage("localhost/thing:v1", binary, "/usr/bin/thing")


@pytest.fixture
def archive(image: StaticImage, tmp_path: Path) -> Path:
    target = tmp_path / "image.tar"
    write_archive(image, target)
    return target


def test_the_manifest_names_the_image_its_config_and_its_layer(archive: Path) -> None:
    manifest = json.loads(_read(archive, "manifest.json"))

    assert [entry["RepoTags"] for entry in manifest] == [["localhost/thing:v1"]]
    config = json.loads(_read(archive, manifest[0]["Config"]))
    assert config["os"] == "linux"
    assert config["config"]["Entrypoint"] == ["/usr/bin/thing"]
    assert config["config"]["User"] == "65532:65532"


def test_what_is_named_by_digest_has_that_digest(archive: Path) -> None:
    (entry,) = json.loads(_read(archive, "manifest.json"))
    (layer,) = entry["Layers"]
    config = _read(archive, entry["Config"])

    layer_digest = hashlib.sha256(_read(archive, layer)).hexdigest()
    assert layer == f"{layer_digest}.tar"
    assert entry["Config"] == f"{hashlib.sha256(config).hexdigest()}.json"
    assert json.loads(config)["rootfs"]["diff_ids"] == [f"sha256:{layer_digest}"]


def test_the_layer_holds_the_program_and_a_place_for_temporary_files(archive: Path) -> None:
    members = {member.name: member for member in _layer(archive).getmembers()}

    assert list(members) == ["usr", "usr/bin", "tmp", "usr/bin/thing"]
    program = _layer(archive).extractfile("usr/bin/thing")
    assert program is not None
    assert program.read() == CONTENT
    assert members["usr/bin/thing"].mode == 0o755
    assert members["tmp"].mode == 0o1777
    assert members["tmp"].isdir()
    assert {(member.uid, member.gid) for member in members.values()} == {(0, 0)}


def test_the_same_binary_gives_the_same_bytes_whenever_and_wherever_it_was_built(
    image: StaticImage, archive: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    copy = elsewhere / "copy"
    copy.write_bytes(CONTENT)
    copy.chmod(0o700)
    os.utime(copy, (1, 1))

    write_archive(StaticImage(image.name, copy, image.entrypoint), elsewhere / "again.tar")

    assert (elsewhere / "again.tar").read_bytes() == archive.read_bytes()


def test_nothing_is_left_beside_the_archive(archive: Path) -> None:
    assert sorted(path.name for path in archive.parent.iterdir()) == ["binary", "image.tar"]


def test_sizes_are_told_in_the_units_of_image_tools(archive: Path) -> None:
    (line,) = describe(archive)

    assert line == "0.0 MB in 1 layers: 0.0"


def _read(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        content = tar.extractfile(name)
        assert content is not None
        return content.read()


def _layer(archive: Path) -> tarfile.TarFile:
    (entry,) = json.loads(_read(archive, "manifest.json"))
    return tarfile.open(fileobj=io.BytesIO(_read(archive, entry["Layers"][0])))
