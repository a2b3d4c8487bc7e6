"""The vSphere backend keeps the promises of the seam, against our vCenter simulator."""

from collections.abc import Iterator

import pytest

from banlieue.sdk.testing.conformance import ConformanceTarget, DriverConformance
from test.kit.vsphere_target import VSphereTarget, vsphere_target

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def vcenter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as target:
        target.use_the_role()
        yield target


class TestVSphere(DriverConformance):
    @pytest.fixture
    def target(self, vcenter: VSphereTarget) -> ConformanceTarget:
        vcenter.proxy.clear()
        vcenter.vcenter.clear_delays()
        return vcenter
