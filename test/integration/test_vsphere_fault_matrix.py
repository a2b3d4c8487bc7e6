"""Each SOAP method we use, disturbed in each way: one VM comes of it, with the right words."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyVmomi import VmomiSupport

from banlieue.providers import vsphere
from banlieue.providers.vsphere.client import soap
from banlieue.providers.vsphere.vms import machines
from test.kit.certificates import Authority
from test.kit.faultcourses import COURSES, LEFT_OUT
from test.kit.faultmatrix import Cell, live_in_all_ways, run_course
from test.kit.faultservices import services
from test.kit.vsphere_target import VSphereTarget, vsphere_target

pytestmark = pytest.mark.slow

ROWS = {method for rows in (COURSES, services()) for row in rows.values() for method in row}


def test_every_method_we_use_has_a_row() -> None:
    """The calls are read from our own source: a new one fails here until it has a row."""
    words = {
        node.func.attr
        for file in Path(str(vsphere.__file__)).parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    known = {
        method[1]
        for definition in VmomiSupport._managedDefMap.values()
        for method in definition[-1] or ()
    }
    # Methods of our own objects that share a name with one of the vendor's.
    used = (words & known) - {"DropConnections", "RetrieveContent"} | {"RetrieveServiceContent"}
    assert used - ROWS - set(LEFT_OUT) == set()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        target.vcenter.guest(delay=0.0, shutdown_delay=0.0)
        yield target


@pytest.fixture(scope="module")
def authority() -> Authority:
    """One for all proxies: keys and certificates cost more than many a cell."""
    return Authority("banlieue test proxy CA")


@pytest.fixture
def small_pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the methods that only large vCenters see called on a small one."""
    if request.node.callspec.params["course"] == "large":
        monkeypatch.setattr(soap, "PAGE", 3)
        monkeypatch.setattr(machines, "_FEW", 0)
        monkeypatch.setattr(machines, "_BULK", 0)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("course", COURSES)
def test_a_disturbed_call_makes_no_second_vm(
    target: VSphereTarget,
    authority: Authority,
    course: str,
    record_property: Callable[[str, object], None],
) -> None:
    arrived: set[str] = set()

    def live(mode: str) -> list[Cell]:
        return run_course(target, authority, mode, course, COURSES[course], arrived=arrived)

    live_in_all_ways(live, record_property)
    assert arrived - ROWS - set(LEFT_OUT) == set()
