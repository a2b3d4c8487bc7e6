import gc
import os
from collections.abc import Iterator

import pytest

from test.kit import rights_used
from test.kit.controlplane import ControlPlane
from test.kit.kube import Kube
from test.kit.matrix_report import pytest_terminal_summary  # noqa: F401 - a hook
from test.kit.namespaces import create_namespace, discard_namespace
from test.kit.rights_used import pytest_sessionfinish, pytest_testnodedown  # noqa: F401 - hooks
from test.kit.transcripts import PLUGIN

LONG = frozenset(
    {
        "test_at_rest.py",
        "test_capi_move_midway.py",
        "test_change.py",
        "test_dev.py",
        "test_life_of_a_vm.py",
        "test_many.py",
        "test_move_surprises.py",
        "test_outages.py",
        "test_same_words.py",
        "test_simulation.py",
        "test_trouble.py",
        "test_vsphere_fault_matrix.py",
        "test_vsphere_fault_services.py",
        "test_vsphere_spec.py",
    }
)
"""Files that take a minute and more, or long for what has no processes: begun last, one worker
would be left alone with them."""

# Hundreds of processes are started: the second should find what the first one compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Python's collector looks at thousands of modules and tests again and again, and none of them goes.
gc.set_threshold(20_000, 20, 50)


def pytest_configure(config: pytest.Config) -> None:
    """Have what stories tell on one backend compared with the other."""
    config.pluginmanager.register(PLUGIN)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let the collector look only at what tests make."""
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long files; the order is as random as before otherwise."""
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The control plane that all tests share. Whoever stops a part of it starts it again."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as control_plane:
        yield control_plane
        rights_used.note(control_plane.directory / "audit.log")


@pytest.fixture
def kube(control_plane: ControlPlane) -> Kube:
    """A client with all rights."""
    return control_plane.kube


@pytest.fixture
def namespace(kube: Kube) -> Iterator[str]:
    """A namespace for one test."""
    name = create_namespace(kube)
    yield name
    discard_namespace(kube, name)
