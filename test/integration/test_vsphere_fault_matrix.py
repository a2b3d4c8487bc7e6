"""Each SOAP method we use, disturbed in each way: one VM comes of it, with the right words."""

import ast
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest
from pyVmomi import VmomiSupport

from banlieue.providers import vsphere
from banlieue.providers.vsphere.client import soap
from banlieue.providers.vsphere.vms import machines
from test.kit import faultmatrix
from test.kit.faultmatrix import MODES, Cell, Scenario, run_cell
from test.kit.matrix_report import PROPERTY
from test.kit.vcsim import VCSim

pytestmark = pytest.mark.slow

SUSPEND = faultmatrix.powering("Suspended", "suspended")
HARD = faultmatrix.powering("PoweredOff", "poweredOff", powerOffMode="Hard")
SOFT = faultmatrix.powering("PoweredOff", "poweredOff", powerOffMode="TrySoft")
START = faultmatrix.powering("PoweredOn", "poweredOn", before="PoweredOff")
ATTRIBUTES = faultmatrix.making_with(lambda it: {"customAttributes": {it: "web"}})
UPGRADE = faultmatrix.making_with(lambda _: {"hardwareVersion": "vmx-19"})

MATRIX: dict[str, Scenario] = {
    "RetrieveServiceContent": faultmatrix.opening,
    "Login": faultmatrix.opening,
    "Logout": faultmatrix.ending,
    "CreateListView": faultmatrix.opening,
    "CreatePropertyCollector": faultmatrix.opening,
    "CreateFilter": faultmatrix.opening,
    "WaitForUpdatesEx": faultmatrix.making,
    "ModifyListView": faultmatrix.making,
    "DestroyPropertyCollector": faultmatrix.rewatching,
    "DestroyView": faultmatrix.rewatching,
    "RetrievePropertiesEx": faultmatrix.making,
    "ContinueRetrievePropertiesEx": faultmatrix.making,
    "FindAllByUuid": faultmatrix.destroying,
    "FindChild": faultmatrix.making,
    "HasPrivilegeOnEntities": faultmatrix.making,
    "CloneVM_Task": faultmatrix.making,
    "ReconfigVM_Task": faultmatrix.reconfiguring,
    "PowerOnVM_Task": START,
    "PowerOffVM_Task": HARD,
    "ShutdownGuest": SOFT,
    "SuspendVM_Task": SUSPEND,
    "ResetVM_Task": faultmatrix.restarting("Hard"),
    "RebootGuest": faultmatrix.restarting("TrySoft"),
    "Destroy_Task": faultmatrix.destroying,
    "MakeDirectory": faultmatrix.keeping,
    "MoveVirtualDisk_Task": faultmatrix.keeping,
    "QueryVirtualDiskUuid": faultmatrix.keeping,
    "SearchDatastoreSubFolders_Task": faultmatrix.listing,
    "CreateFolder": faultmatrix.making_with(lambda it: {"folder": it, "folderPolicy": "Create"}),
    "AddCustomFieldDef": ATTRIBUTES,
    "SetField": ATTRIBUTES,
    "QueryConfigOptionDescriptor": UPGRADE,
    "UpgradeVM_Task": UPGRADE,
}


LEFT_OUT: dict[str, str] = {
    "CreateDirectory": "only vSAN has it, which the simulator has not",
    "QueryConfigTarget": "PCI devices only, which no plain host of the simulator has",
    "RecommendDatastores": "datastore clusters only: test_vsphere_spec.py",
    "ReconfigureComputeResource_Task": "no machine waits for groups: test_vsphere_upkeep.py",
    **dict.fromkeys(
        (
            "CreateImportSpec",
            "CreateSnapshot_Task",
            "HttpNfcLeaseAbort",
            "HttpNfcLeaseComplete",
            "HttpNfcLeaseProgress",
            "ImportVApp",
            "MarkAsTemplate",
            "Rename_Task",
        ),
        "imports of images, no part of a machine's life: test_vsphere_images.py",
    ),
}
"""Methods that no row disturbs, and why."""


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
    assert used - set(MATRIX) - set(LEFT_OUT) == set()


@pytest.fixture(scope="module")
def vcenter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VCSim]:
    with VCSim(tmp_path_factory.mktemp("vcsim")) as vcenter:
        vcenter.guest(delay=0.0, shutdown_delay=0.0)
        yield vcenter


@pytest.fixture
def small_pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the methods that only large vCenters see called on a small one."""
    if request.node.callspec.params["method"] == "ContinueRetrievePropertiesEx":
        monkeypatch.setattr(soap, "PAGE", 3)
    if request.node.callspec.params["method"] == "FindChild":
        monkeypatch.setattr(machines, "_FEW", 0)
        monkeypatch.setattr(machines, "_BULK", 0)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("method", MATRIX)
def test_a_disturbed_call_makes_no_second_vm(
    vcenter: VCSim, method: str, record_property: Callable[[str, object], None]
) -> None:
    with ThreadPoolExecutor(len(MODES)) as pool:
        cells: list[Cell] = list(
            pool.map(lambda mode: run_cell(vcenter, method, mode, MATRIX[method]), MODES)
        )
    record_property(PROPERTY, [asdict(cell) for cell in cells])
    wrong = [cell for cell in cells if not cell.is_right]
    assert not wrong, "\n".join(map(repr, wrong))
