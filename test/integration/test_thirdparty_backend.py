"""A backend of somebody else runs without any change in the tree."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from banlieue.api.meta import Resource
from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.sdk.simulated.backend import BACKEND
from banlieue.sdk.testing.simulated_target import SimulatedTarget
from test.kit.controlplane import ControlPlane
from test.kit.installed import READY_SECONDS, Registered
from test.kit.kube import Kube
from test.kit.simulated import PLANTED_PASSWORD, WorldProcess
from test.kit.stack import Object, Role, Stack, condition
from test.kit.statuswatch import StatusWatch
from test.kit.thirdparty import CHECK, MANIFESTS, environment_with, install_acme
from test.kit.watched import Watched

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
        timeout=560,
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


# End to end

ACME_MACHINES = Resource("infrastructure.acme.example", "v1", "AcmeMachine", "acmemachines")
_GROUP = ACME_MACHINES.group


class AcmeTarget(SimulatedTarget):
    """Acme as its users know it; nothing of its package is imported here."""

    capabilities = Capabilities.from_api(
        {
            "storageClasses": [{"name": "gold", "target": {"shelf": "fast"}}],
            "networkClasses": [{"name": "prod", "target": {"wire": "lan"}}],
        }
    )


class AcmeRegistered(Registered):
    """The class is the one Acme ships."""

    def provider_class_object(self) -> Object:
        shipped: Object = yaml.safe_load((MANIFESTS / "providerclass.yaml").read_text())
        return shipped


@pytest.fixture
def acme(control_plane: ControlPlane, world: WorldProcess, tmp_path: Path) -> Iterator[Watched]:
    """banlieue as shipped, nothing of Acme's applied yet."""
    backend = replace(BACKEND, name="acme", machine=ACME_MACHINES)
    target = AcmeTarget(backend, world.endpoint, world.port, PLANTED_PASSWORD)
    with Stack(control_plane, tmp_path) as stack:
        stack.install()
        with StatusWatch(control_plane) as status:
            watched = Watched(stack, status, list(target.secrets), AcmeRegistered(stack, target))
            yield watched
            watched.check()
        stack.purge()


def test_a_virtual_machine_runs_on_it_from_end_to_end(
    acme: Watched, site: Path, tmp_path: Path
) -> None:
    registered, stack, kube = acme.registered, acme.stack, acme.registered.kube
    controller = stack.controller().start()
    crd = run(["-m", "banlieue", "crds", "--backend", "acme"], environment_with(site), tmp_path)
    with _applied(kube, crd):
        acme.status.follow(f"{ACME_MACHINES.plural}.{_GROUP}", lasting=False)
        # The controller is at work already: it learns of the kind by its class.
        registered.register()
        path = environment_with(site)["PYTHONPATH"]
        provider = stack.provider("acme", environment={"PYTHONPATH": path}).start()
        registered.provider_ready()
        registered.create("db")
        vm = registered.ready("db")
        machine = registered.machine("db")
        (raw,) = registered.vms_of("db")
        assert machine["spec"]["providerID"] == f"acme://{raw.uuid}"
        assert vm["status"]["providerID"] == f"acme://{raw.uuid}"
        assert vm["status"]["infrastructureRef"]["kind"] == "AcmeMachine"
        assert vm["status"]["addresses"]
        assert condition(vm, "Scheduled")[0] == "True"

        assert _finds_acme(provider), "this test would not notice"
        assert not _finds_acme(controller)
        registered.delete("db")
        assert registered.vms_of("db") == []
        controller.stop()
        provider.stop()


@contextlib.contextmanager
def _applied(kube: Kube, crds: str) -> Iterator[None]:
    """What Acme's users apply is there, and gone in the end."""
    ours = [doc for doc in yaml.safe_load_all(crds) if doc and doc["spec"]["group"] == _GROUP]
    kube.apply_crds(ours)
    rights = kube.apply_yaml((MANIFESTS / "rbac.yaml").read_text())
    kube.wait_for(
        "clusterroles",
        "banlieue-system-controller",
        until=lambda role: any(_GROUP in rule.get("apiGroups", ()) for rule in role["rules"]),
        timeout=READY_SECONDS,
        what="aggregated",
    )
    yield
    for obj in (*rights, *ours):
        meta = obj["metadata"]
        kube.delete(obj["kind"], meta["name"], meta.get("namespace"))


def _finds_acme(role: Role) -> bool:
    """Whether a process with the environment this one has could import the package."""
    raw = Path(f"/proc/{role.process.pid}/environ").read_bytes().decode()
    environment = dict(entry.split("=", 1) for entry in raw.split("\0") if "=" in entry)
    program = "import importlib.util as u; print(u.find_spec('acme_banlieue') is not None)"
    return run(["-c", program], environment, Path("/")).strip() == "True"
