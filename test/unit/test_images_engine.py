import os
from pathlib import Path

import pytest

from hack.images import engine
from hack.images.own import OwnImage
from hack.images.store import ImageError, Store

pytestmark = pytest.mark.slow

# Behaves like an engine as far as it is asked: notes its arguments, saves what it is told to.
ENGINE = """#!/bin/sh
echo "$(basename "$0") $*" >> "$LOG"
case "$1" in
  info) exit "${INFO:-0}" ;;
  save) echo image > "$3" ;;
  build) for last; do :; done; cp "$last/Dockerfile" "$LOG.context"; exit "${BUILD:-0}" ;;
esac
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.delenv(engine.VARIABLE, raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    return folder


def test_an_engine_that_answers_builds_for_those_who_are_not_root(programs: Path) -> None:
    _install(programs / "docker")

    assert engine.chosen() == "docker"


def test_an_engine_that_does_not_answer_is_passed_over(
    programs: Path,
) -> None:
    _install(programs / "docker", 'exec false "$@"')
    _install(programs / "podman")

    assert engine.chosen() == "podman"


def test_root_builds_with_buildah(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(programs / "docker")
    _install(programs / "buildah")
    monkeypatch.setattr("os.geteuid", lambda: 0)

    assert engine.chosen() == "buildah"


def test_the_user_may_choose(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(programs / "docker")
    monkeypatch.setenv(engine.VARIABLE, "podman")

    assert engine.chosen() == "podman"


def test_a_choice_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(engine.VARIABLE, "kaniko")

    with pytest.raises(ImageError, match="'kaniko', but can be buildah, docker or podman"):
        engine.chosen()


def test_an_engine_builds_a_copy_of_the_tree_and_saves_the_image(
    programs: Path, tmp_path: Path
) -> None:
    _install(programs / "docker")
    said: list[str] = []

    archive = Store(tmp_path / "cache").archive(OwnImage("localhost/thing:dev"), said.append)

    assert archive.read_text() == "image\n"
    build, save = [line for line in _log().splitlines() if "info" not in line]
    assert "--tag localhost/thing:dev" in build
    assert "BASE_IMAGE" not in build
    assert "id=pip,src=" in build
    assert save.startswith("docker save --output")
    assert save.endswith(" localhost/thing:dev")
    copied = Path(os.environ["LOG"] + ".context").read_text()
    assert copied == (OwnImage("").root / "Dockerfile").read_text()


def test_a_build_that_fails_is_told_and_leaves_nothing(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(programs / "docker")
    monkeypatch.setenv("BUILD", "3")

    with pytest.raises(ImageError, match=r"`docker build` failed \(3\)"):
        Store(tmp_path / "cache").archive(OwnImage("localhost/thing:dev"), lambda _: None)
    assert not list((tmp_path / "cache").glob("*.tar"))


def test_the_base_image_asked_for_is_passed_on(programs: Path, tmp_path: Path) -> None:
    _install(programs / "docker")
    image = OwnImage("localhost/thing:dev", base_image="python:3.12-slim-bookworm")

    Store(tmp_path / "cache").archive(image, lambda _: None)

    assert "--build-arg BASE_IMAGE=python:3.12-slim-bookworm" in _log()


def _install(path: Path, script: str = "") -> None:
    path.write_text(f"#!/bin/sh\n{script}\n" if script else ENGINE)
    path.chmod(0o755)


def _log() -> str:
    return Path(os.environ["LOG"]).read_text()
