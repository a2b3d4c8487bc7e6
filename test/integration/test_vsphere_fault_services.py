"""Calls to the services beside VMs, disturbed in each way: what was wanted is there once."""

from collections.abc import Callable, Iterator

import pytest

from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.providers.vsphere.client import rest, tags
from banlieue.providers.vsphere.images import lease
from test.kit.certificates import Authority
from test.kit.faultcourses import COURSES as BESIDE
from test.kit.faultcourses import LEFT_OUT
from test.kit.faultmatrix import Cell, live_in_all_ways, run_course
from test.kit.faultservices import IMAGE, POLICED, POOLED, services
from test.kit.imagefiles import ova
from test.kit.mirror import Mirror
from test.kit.vsphere_target import VSphereTarget
from test.kit.vspherespec import POLICY, furnished

pytestmark = pytest.mark.slow

COURSES = services()
ROWS = {method for rows in (BESIDE, COURSES) for row in rows.values() for method in row}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with furnished(tmp_path_factory.mktemp("vcsim"), "-lease-timeout", "4s") as target:
        target.vcenter.guest(delay=0.0, shutdown_delay=0.0)
        offered = target.capabilities.to_api()
        offered["storageClasses"] += [
            {"name": POLICED, "target": {"datastore": "LocalDS_0", "storagePolicy": POLICY}},
            {"name": POOLED, "target": {"datastoreCluster": "DC0_POD0"}},
        ]
        target.capabilities = Capabilities.from_api(offered)
        yield target


@pytest.fixture(scope="module")
def mirror() -> Iterator[Mirror]:
    with Mirror({IMAGE: ova()}) as mirror:
        yield mirror


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that did not answer is asked again soon, what is not there is looked for, and a
    vCenter that waits for files hears of them well within the seconds its leases last."""
    monkeypatch.setattr(lease, "MOST_SILENCE", 0.3)
    monkeypatch.setattr(rest, "_TIMEOUT", 1.0)
    monkeypatch.setattr(rest, "_FIRST_REST", 0.1)
    monkeypatch.setattr(rest, "_REFUSED_REST", 0.1)
    monkeypatch.setattr(tags, "_MISS_SECONDS", 0.0)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("course", COURSES)
def test_a_disturbed_service_ends_in_what_was_wanted(
    target: VSphereTarget,
    mirror: Mirror,
    course: str,
    record_property: Callable[[str, object], None],
) -> None:
    steps, authority = services(mirror)[course], Authority("banlieue test proxy CA")

    arrived: set[str] = set()

    # What policies allow is read with the inventory, again and again.
    timings = {"inventory": 0.2} if course == "placing" else {}

    def live(mode: str) -> list[Cell]:
        return run_course(target, authority, mode, course, steps, arrived=arrived, **timings)

    live_in_all_ways(live, record_property)
    assert arrived - ROWS - set(LEFT_OUT) == set()
