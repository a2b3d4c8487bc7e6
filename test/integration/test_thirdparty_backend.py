"""A backend of somebody else runs without any change in the tree."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from test.kit.simulated import WorldProcess
from test.kit.thirdparty import CHECK, environment_with, install_acme

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_acme(tmp_path_factory.mktemp("acme"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[WorldProcess]:
    world = WorldProcess(tmp_path)
    world.start()
    with world.process:
        yield world


def run(arguments: list[str], environment: Mapping[str, str], directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_backend_is_found_only_where_it_is_installed(site: Path, tmp_path: Path) -> None:
    names = "from banlieue.sdk.registry import backend_names as n; print(*n())"
    assert "acme" in run(["-c", names], environment_with(site), tmp_path).split()
    assert "acme" not in run(["-c", names], os.environ, tmp_path).split()


def test_nothing_in_the_tree_names_it() -> None:
    tree = Path(__file__).parents[2] / "src"
    assert not [path for path in tree.rglob("*.py") if "acme" in path.read_text().lower()]


def test_its_crd_is_made_like_ours(site: Path, tmp_path: Path) -> None:
    program = (
        "from banlieue.api.crd.render import crds, to_yaml\n"
        "from banlieue.sdk.registry import load_backend\n"
        "print(*map(to_yaml, crds(load_backend('acme').kinds)), sep='---\\n')"
    )
    text = run(["-c", program], environment_with(site), tmp_path)
    assert "name: acmemachines.infrastructure.acme.example" in text
    assert "rack:" in text
    assert "providerRef:" in text


def test_it_passes_the_conformance_kit(site: Path, world: WorldProcess, tmp_path: Path) -> None:
    environment = environment_with(site) | {
        "ACME_ENDPOINT": world.endpoint,
        "ACME_CREDENTIALS": str(world.credentials),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the kit needs nothing but pytest itself
    }
    options = ["-q", "-p", "no:cacheprovider", "-W", "error", "-c", os.devnull]
    told = run(["-m", "pytest", *options, "--rootdir", ".", str(CHECK)], environment, tmp_path)
    last = told.strip().splitlines()[-1]
    assert "passed" in last, told
    assert "failed" not in last
