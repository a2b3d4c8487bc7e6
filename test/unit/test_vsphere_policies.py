"""Storage policies are asked once for all, and kept while their service is away."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from pyVmomi import vim

from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.providers.vsphere.client import pbm
from banlieue.providers.vsphere.client.soap import Found
from banlieue.providers.vsphere.places.inventory import Inventory
from banlieue.providers.vsphere.places.policies import Policies, declared
from banlieue.providers.vsphere.places.reading import parse
from test.kit.vsphere_places import inventory

Native = Any
"""An object of the vendor's library, which has no types for them."""


@dataclass
class Service:
    """The policy service, and a clock."""

    now: float = 0.0
    asked: list[tuple[str, ...]] = field(default_factory=list)
    error: Exception | None = None
    known: dict[str, str] = field(default_factory=lambda: {"gold": "p-1", "iron": "p-2"})

    def read(self, _: object, names: frozenset[str]) -> dict[str, str]:
        self.asked.append(tuple(sorted(names)))
        if self.error is not None:
            raise self.error
        return {name: key for name, key in self.known.items() if name in names}

    def fulfilled(self, _: object, policies: dict[str, str], stores: Native) -> dict[str, Native]:
        return dict.fromkeys(policies, frozenset(stores))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    monkeypatch.setattr(pbm, "read_policies", made.read)
    monkeypatch.setattr(pbm, "compatible", made.fulfilled)
    return made


def policies(service: Service, *named: str) -> Policies:
    session: Native = None
    return Policies(session=session, monotonic=lambda: service.now, max_age=300, named=named)


def test_what_classes_name_is_asked_for() -> None:
    classes = Capabilities.from_api(
        {
            "storageClasses": [
                {"name": "a", "target": {"storagePolicy": "gold"}},
                {"name": "b", "target": {"datastore": "x"}},
            ]
        }
    )
    assert declared(classes) == {"gold"}


def test_nothing_is_asked_while_nobody_names_a_policy(service: Service) -> None:
    places = inventory()
    assert policies(service).attach(places) is places
    assert service.asked == []


def test_policies_are_asked_once_for_all_and_again_when_they_are_old(service: Service) -> None:
    known = policies(service, "gold")
    for _ in range(5):
        found = known.attach(inventory()).policies
    assert (set(found), found["gold"].id) == ({"gold"}, "p-1")
    assert service.asked == [("gold",)]
    assert set(known.attach(inventory(), "iron").policies) == {"gold", "iron"}
    service.now += 301
    known.attach(inventory())
    assert service.asked == [("gold",), ("gold", "iron"), ("gold", "iron")]


@pytest.mark.parametrize(
    "error", [TimeoutError("silence"), vim.fault.NoPermission(privilegeId="StorageProfile.View")]
)
def test_what_was_known_stays_while_the_service_is_away(service: Service, error: Exception) -> None:
    known = policies(service, "gold")
    known.attach(inventory())
    service.now, service.error = 301, error
    assert set(known.attach(inventory()).policies) == {"gold"}
    known.attach(inventory())
    assert len(service.asked) == 2, "not asked again at once"
    service.now, service.error, service.known = 332, None, {}
    assert known.attach(inventory()).policies == {}, "now it is known to be gone"


def test_an_ended_session_is_no_answer(service: Service) -> None:
    service.error = vim.fault.NotAuthenticated()
    with pytest.raises(vim.fault.NotAuthenticated):
        policies(service, "gold").attach(inventory())


# What the inventory says


def _found(kind: str, moid: str, /, **values: Native) -> Found:
    return Found(kind, moid, {name.replace("__", "."): value for name, value in values.items()})


def test_all_kinds_of_places_are_read() -> None:
    datacenter = vim.Datacenter("datacenter-1", None)
    folder = vim.Folder("group-h1", None)
    group = vim.cluster.HostGroup(name="row-a", host=[vim.HostSystem("host-1", None)])
    machines = vim.cluster.VmGroup(name="vms", vm=[])
    opaque = vim.OpaqueNetwork.Summary(
        name="seg", accessible=True, opaqueNetworkId="ls-1", opaqueNetworkType="nsx.LogicalSwitch"
    )
    places: Inventory = parse(
        "group-d1",
        [
            _found("Datacenter", "datacenter-1", name="dc", vmFolder=vim.Folder("group-v1", None)),
            _found("Folder", "group-h1", name="host", parent=datacenter),
            _found(
                "ClusterComputeResource",
                "domain-c1",
                name="blue",
                parent=folder,
                host=[vim.HostSystem("host-1", None)],
                resourcePool=vim.ResourcePool("resgroup-1", None),
                environmentBrowser=vim.EnvironmentBrowser("env-1", None),
                configurationEx__group=[group, machines],
            ),
            _found(
                "HostSystem",
                "host-1",
                name="esx",
                runtime__connectionState="connected",
                runtime__inQuarantineMode=True,
            ),
            _found(
                "StoragePod",
                "group-p1",
                name="pod",
                podStorageDrsEntry__storageDrsConfig__podConfig__enabled=True,
            ),
            _found(
                "Datastore",
                "datastore-1",
                name="a",
                parent=vim.StoragePod("group-p1", None),
                summary__accessible=True,
                summary__freeSpace=5 << 30,
            ),
            _found("OpaqueNetwork", "network-o1", name="seg", summary=opaque),
            _found("VmwareDistributedVirtualSwitch", "dvs-1", name="DVS-A", uuid="50"),
            _found(
                "DistributedVirtualPortgroup",
                "dvportgroup-1",
                name="seg",
                key="dvportgroup-1",
                config__distributedVirtualSwitch=vim.DistributedVirtualSwitch("dvs-1", None),
                config__segmentId="/infra/segments/x",
                config__logicalSwitchUuid="ls-1",
            ),
        ],
    )
    cluster = places.clusters["domain-c1"]
    assert (cluster.browser, cluster.groups) == ("env-1", {"row-a": ("host-1",)})
    assert places.usable_hosts(cluster) == (), "what is in quarantine gets nothing"
    assert places.pods["group-p1"].recommends
    assert (places.datastores["datastore-1"].parent, places.datastores["datastore-1"].free_gib) == (
        "group-p1",
        5,
    )
    assert places.networks["network-o1"].opaque == ("ls-1", "nsx.LogicalSwitch")
    segment = places.networks["dvportgroup-1"]
    assert (segment.switch, segment.segment) == ("DVS-A", "/infra/segments/x")
    assert segment.logical_switch == "ls-1"
