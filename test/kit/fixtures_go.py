"""Fixtures for tests of the tool builds: a stand-in for Go, in a cache of the test's own."""

from pathlib import Path

import pytest

from hack.tools.catalog import Store
from test.kit.fakego import FakeGo, InstallGo, pinned_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store of the test's own, with modules that pin something."""
    return pinned_store(tmp_path)


@pytest.fixture
def in_new_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> pytest.CaptureFixture[str]:
    """What a command prints that runs with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return capsys


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstallGo:
    """Puts a stand-in for Go on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return FakeGo(folder).install
