"""The least-privilege role in strict mode: enough for a whole life, and no privilege too many."""

from collections.abc import Iterator

import pytest

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.backend import BACKEND
from banlieue.providers.vsphere.places.privileges import ROLE
from test.kit.vsphere_target import VSphereTarget, vsphere_target
from test.kit.vspherebench import VSphereBench
from test.kit.waiting import wait_until_async

pytestmark = pytest.mark.slow

ALL = tuple(privilege for privileges in ROLE.values() for privilege in privileges)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        target.vcenter.guest(delay=0.0, shutdown_delay=0.0)
        yield target


@pytest.fixture
def target(shared: VSphereTarget) -> Iterator[VSphereTarget]:
    yield shared
    shared.vcenter.clear_permissions()


async def test_the_role_is_enough_for_a_whole_life(target: VSphereTarget) -> None:
    target.vcenter.permit(target.vcenter.username, "", ALL)
    with VSphereBench(target) as bench:
        assert not bench.driver.about().missing_privileges
        root = {"name": "root", "storageClass": "gold"}
        data = {"name": "data", "storageClass": "gold", "sizeGiB": 1, "reclaimPolicy": "Retain"}
        more = {"name": "more", "storageClass": "gold", "sizeGiB": 1}
        bench.make_machine("web", disks=[root, data])
        await bench.until("it is Ready", lambda: bench.is_ready("web"))
        await wait_until_async(lambda: bench.vm("web").tools_running, 20.0, "the guest's tools")

        nics = [{"name": "eth0", "networkClass": "prod"}, {"name": "eth1", "networkClass": "test"}]
        bench.edit("web", disks=[root, data, more], networkInterfaces=nics)
        await bench.until("it has more", lambda: bench.is_ready("web"))
        bench.edit("web", disks=[root, data, {**more, "sizeGiB": 2}])
        await bench.until("it grows", lambda: bench.is_ready("web"))
        for state, spec in (
            ("Suspended", {}),
            ("PoweredOn", {}),
            ("PoweredOff", {"powerOffMode": "Hard", "cpus": 2, "memoryMiB": 1024}),
            ("PoweredOn", {}),
        ):
            bench.edit("web", powerState=state, **spec)
            await bench.until(state, lambda: bench.is_ready("web"))
        assert bench.vm("web").cpus == 2
        bench.delete("web")
        await bench.until("it is gone", lambda: not bench.machine("web"))
        assert not [error for error in bench.told if error.reason.value.startswith("Provider")]


@pytest.mark.parametrize("privilege", ALL)
def test_what_lacks_is_named_with_its_object(target: VSphereTarget, privilege: str) -> None:
    target.vcenter.permit(target.vcenter.username, "", [name for name in ALL if name != privilege])
    with BACKEND.connect(target.connection()) as driver:
        lacking = driver.about().missing_privileges
    assert privilege in {found.privilege for found in lacking}
    assert {found.privilege for found in lacking} <= {privilege, *ROLE["root"]}
    assert all(found.where for found in lacking)


async def test_what_lacks_is_named_by_the_machine_too(target: VSphereTarget) -> None:
    with VSphereBench(target, feeding=False) as bench:
        target.vcenter.deny(target.vcenter.username, "", ["Resource.AssignVMToPool"])
        bench.make_machine("poor")
        denied = ("False", Reason.PROVIDER_PERMISSION_DENIED)
        await bench.until("it is told", lambda: bench.condition("Ready", "poor") == denied)
        assert "Resource.AssignVMToPool" in bench.message("Ready", "poor")
        assert not bench.vms("poor")
        target.vcenter.clear_permissions()
        await bench.until("it is made", lambda: bench.is_ready("poor"))
