"""The shape of a VM, networks, zones and folders of a plan: decided before anything is sent."""

import re
from dataclasses import replace

import pytest
from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.provider import Capabilities, Provider
from banlieue.providers.vsphere.backend import BACKEND
from banlieue.providers.vsphere.differing import differing
from banlieue.providers.vsphere.hardware import cards
from banlieue.providers.vsphere.models import (
    RESERVED_EXTRA_CONFIG,
    CpuAllocation,
    FolderPolicy,
    MemoryAllocation,
    VSphereFields,
    VSphereMachineSpec,
)
from banlieue.providers.vsphere.places import networks, zones
from banlieue.providers.vsphere.places.domains import failure_domains
from banlieue.providers.vsphere.places.folders import Home, home_of
from banlieue.providers.vsphere.places.inventory import (
    Inventory,
    Network,
    Pool,
    ZoneKind,
)
from banlieue.providers.vsphere.places.placement import Plan, locate
from banlieue.providers.vsphere.places.stores import NotReachable
from banlieue.providers.vsphere.places.templates import Template
from banlieue.providers.vsphere.vms import clone, shape
from banlieue.sdk import tenancy
from banlieue.sdk.driver import MachineState, NicPlan
from banlieue.sdk.errors import InvalidSpec, NeedsOperator, Refused
from test.kit.vsphere_places import Native, by_id, host, inventory, plan, template


def no_load(_: str) -> int:
    return 0


def built(made: Plan, of: Template | None = None, offered: shape.Offered = {}) -> clone.Clone:  # noqa: B006 - never changed
    of = of or template()
    return clone.build(made, locate(inventory(), made, of, no_load), of, offered)


def of_version(version: str) -> Template:
    return replace(template(), version=version, cores_per_socket=4)


GPU = {"gpu": (shape.PciDevice("gpu", 0x10DE, 0x2000),)}


# Processors, features, devices


@pytest.mark.parametrize(
    ("cpus", "wanted", "present", "set_to"),
    [(8, None, 4, None), (6, None, 4, 2), (5, None, 4, 1), (6, 3, 4, 3), (2, None, None, None)],
)
def test_sockets_are_whole(
    cpus: int, wanted: int | None, present: int | None, set_to: int | None
) -> None:
    made = replace(plan(num_cores_per_socket=wanted), cpus=cpus)
    assert shape.cores_per_socket(made, present) == set_to


@pytest.mark.parametrize(
    ("fields", "changes", "words"),
    [
        ({"num_cores_per_socket": 4}, {"cpus": 6}, "numCoresPerSocket 4"),
        ({}, {"firmware": "bios", "features": ("SecureBoot",)}, "SecureBoot needs firmware efi"),
        ({}, {"firmware": "bios", "features": ("TPM",)}, "TPM needs firmware efi"),
        ({}, {"features": ("TPM",)}, "TPM needs virtual hardware vmx-14"),
        ({"pci_device_labels": ["gpu"]}, {}, "pciDeviceLabels needs virtual hardware vmx-17"),
        ({"pci_device_labels": ["tpu"]}, {}, "name one of: gpu"),
        ({"memory_allocation": MemoryAllocation(limit_mib=10)}, {}, "memoryAllocation.limitMiB"),
        (
            {"cpu_allocation": CpuAllocation(reservation_mhz=9, limit_mhz=2)},
            {},
            "cpuAllocation.limitMhz",
        ),
    ],
)
def test_what_cannot_be_had_together_is_named(
    fields: dict[str, Native], changes: dict[str, Native], words: str
) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        built(replace(plan(**fields), **changes), of_version("vmx-13"), GPU)
    assert words in refusal.value.message


def test_a_pci_label_where_no_device_has_one_says_to_label_one() -> None:
    made = plan(hardware_version="vmx-19", pci_device_labels=["tpu"])
    with pytest.raises(InvalidSpec, match="no device here has a label: have one labelled"):
        built(made, of_version("vmx-19"), {})


def test_devices_of_newer_hardware_wait_for_the_upgrade() -> None:
    made = replace(
        plan(hardware_version="vmx-19", pci_device_labels=["gpu", "gpu"]), features=("TPM",)
    )
    sent = built(made, of_version("vmx-13"), GPU)
    kinds = {type(change.device) for change in sent.config.deviceChange}
    assert not kinds & {vim.vm.device.VirtualPCIPassthrough, vim.vm.device.VirtualTPM}
    assert not sent.power_on
    sent = built(made, of_version("vmx-19"), GPU)
    added = [change.device for change in sent.config.deviceChange]
    assert sum(isinstance(it, vim.vm.device.VirtualPCIPassthrough) for it in added) == 2
    assert sum(isinstance(it, vim.vm.device.VirtualTPM) for it in added) == 1
    assert sent.config.memoryReservationLockedToMax
    assert sent.power_on


def test_a_hardware_version_only_ever_rises() -> None:
    made = plan(hardware_version="vmx-15")
    assert shape.upgrade_to(made, "vmx-19") is None
    assert shape.upgrade_to(made, "vmx-15") is None
    assert shape.upgrade_to(made, "vmx-9") == "vmx-15"
    off, facts = PowerState.POWERED_OFF, {"hardwareVersion": "vmx-9"}
    seen = MachineState("n", "u", "vm-1", None, off, facts=facts)
    assert differing(made.spec, seen) == ("hardwareVersion",)
    assert differing(made.spec, replace(seen, facts={})) == (), "not read is not different"


def test_features_nobody_asks_for_stay_the_templates() -> None:
    config = built(plan()).config
    assert (config.cpuHotAddEnabled, config.memoryHotAddEnabled, config.nestedHVEnabled) == (
        None,
        None,
        None,
    )
    asked = replace(plan(), features=("HotAddCPU", "HotAddMemory", "NestedVirtualization"))
    config = built(asked).config
    assert (config.cpuHotAddEnabled, config.memoryHotAddEnabled, config.nestedHVEnabled) == (
        True,
        True,
        True,
    )


# Configuration keys


@pytest.mark.parametrize(
    "key",
    [
        "guestinfo.userdata",
        "banlieue.mark",
        "banlieue-hold",
        "disk.EnableUUID",
        "uuid.bios",
        "vc.uuid",
        "ethernet0.address",
        "ethernet12.generatedAddress",
        "scsi0:0.fileName",
        "nvme0.present",
        "numvcpus",
        "memsize",
        "firmware",
        "uefi.secureBoot.enabled",
        "displayName",
    ],
)
def test_keys_that_would_break_a_vm_are_refused(key: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        built(plan(extra_config={key: "x"}))
    assert key in refusal.value.message


@pytest.mark.parametrize(
    "key", ["pciPassthru.use64bitMMIO", "ethernet1.ctxPerDev", "sched.mem.pshare.enable", "tools.x"]
)
def test_other_keys_are_let_through(key: str) -> None:
    assert not re.match(RESERVED_EXTRA_CONFIG, key.lower())
    options = {
        option.key: option.value
        for option in built(plan(extra_config={key: "1"})).config.extraConfig
    }
    assert options[key] == "1"


# Networks


def nets(*more: Network, **changes: Native) -> Inventory:
    plain = inventory()
    known = {**plain.networks, **by_id(more)}
    ids = frozenset(known)
    return replace(plain, networks=known, hosts=by_id([host(1, networks=ids)]), **changes)


TWIN = Network("dvportgroup-2", "prod", "group-n1", "dvportgroup-2", "60", "DVS-B")
FIRST = Network("dvportgroup-1", "prod", "group-n1", "dvportgroup-1", "50 2c", "DVS-A")
SEGMENT = Network(
    "dvportgroup-3", "seg", "group-n1", "dvportgroup-3", "50", "DVS-A", logical_switch="ls-1"
)
OPAQUE = Network("network-o1", "nsx", "group-n1", opaque=("ls-1", "nsx.LogicalSwitch"))


def found(places: Inventory, wanted: str) -> str:
    cluster = next(iter(places.clusters.values()))
    return networks.find(places, cluster, {"portGroup": wanted}).id


def test_two_networks_of_one_name_are_told_apart() -> None:
    """Failure: two networks of one name, and whichever is found first is taken."""
    places = nets(FIRST, TWIN)
    with pytest.raises(NotReachable) as refusal:
        found(places, "prod")
    assert "DVS-A/prod, DVS-B/prod" in str(refusal.value)
    assert found(places, "DVS-B/prod") == TWIN.id
    only_here = replace(places, hosts=by_id([host(1, networks=frozenset({TWIN.id}))]))
    assert found(only_here, "prod") == TWIN.id, "the one that is reachable is meant"


def test_an_opaque_network_is_its_port_group_where_there_is_one() -> None:
    assert found(nets(OPAQUE), "nsx") == found(nets(OPAQUE), "ls-1") == OPAQUE.id
    both = nets(OPAQUE, SEGMENT)
    assert found(both, "nsx") == found(both, "ls-1") == found(both, "seg") == SEGMENT.id
    assert {"nsx", "ls-1", "seg", "DVS-A/seg"} <= networks.words(both, SEGMENT)


def test_a_card_on_an_opaque_network_is_at_peace() -> None:
    nic = NicPlan("eth0", {"portGroup": "nsx"})
    (card,) = [cards.new("u", -1, nic, OPAQUE).device]
    assert (card.backing.opaqueNetworkId, card.backing.opaqueNetworkType) == OPAQUE.opaque
    card.key = 4000
    mac = card.macAddress
    change = cards.change("u", [nic], [card], {mac: "eth0"}, lambda _: OPAQUE, running=False)
    assert change is None


def test_a_vm_has_so_many_cards_and_no_more() -> None:
    many = tuple(NicPlan(f"e{number}", {"portGroup": "prod"}) for number in range(11))
    with pytest.raises(InvalidSpec) as refusal:
        built(replace(plan(), nics=many))
    assert "at most 10" in refusal.value.message


# Failure domains


def grouped(kind: ZoneKind) -> Inventory:
    plain = inventory(host(1), host(2))
    cluster = replace(
        plain.clusters["domain-c1"], groups={"row-a": ("host-1",), "row-b": ("host-2",)}
    )
    nested = Pool("resgroup-3", "inner", "resgroup-2", "domain-c1")
    return replace(
        plain,
        kind=kind,
        clusters={cluster.id: cluster},
        pools={**plain.pools, nested.id: nested},
    )


@pytest.mark.parametrize(
    ("kind", "ids"),
    [
        (ZoneKind.CLUSTER, ["domain-c1"]),
        (ZoneKind.POOL, ["resgroup-2"]),
        (ZoneKind.GROUP, ["domain-c1/row-a", "domain-c1/row-b"]),
    ],
)
def test_what_a_failure_domain_is_says_the_provider(kind: ZoneKind, ids: list[str]) -> None:
    places = grouped(kind)
    assert [domain.id for domain in failure_domains(places, Capabilities())] == ids
    assert zones.kind_of({"failureDomains": kind.value}) is kind


def test_a_host_group_has_its_hosts_only_and_a_pool_its_pools_only() -> None:
    places = grouped(ZoneKind.GROUP)
    row = replace(plan(), failure_domain=replace(plan().failure_domain, id="domain-c1/row-b"))
    target = locate(places, row, template(), no_load)
    assert target.host is not None
    assert target.host.id == "host-2", "the cluster would choose among all its hosts"
    assert zones.zone_of(places, "host-1", None) == "domain-c1/row-a"
    pools = grouped(ZoneKind.POOL)
    inside = replace(
        plan(resource_pool="inner"),
        failure_domain=replace(plan().failure_domain, id="resgroup-2"),
    )
    assert locate(pools, inside, template(), no_load).pool == "resgroup-3"
    assert zones.zone_of(pools, "host-1", "resgroup-3") == "resgroup-2"
    assert zones.zone_of(pools, "host-1", "resgroup-1") is None
    plain = replace(inside, spec=VSphereMachineSpec.model_construct())
    assert locate(pools, plain, template(), no_load).pool == "resgroup-2"
    outside = replace(inside, spec=VSphereMachineSpec.model_construct(resource_pool="Resources"))
    with pytest.raises(InvalidSpec):
        locate(pools, outside, template(), no_load)
    gone = replace(row, failure_domain=replace(row.failure_domain, id="domain-c1/row-z"))
    with pytest.raises(NeedsOperator):
        locate(places, gone, template(), no_load)


def test_a_host_without_the_devices_is_not_chosen() -> None:
    manual = inventory(host(1), host(2))
    clusters = {key: replace(it, places_vms=False) for key, it in manual.clusters.items()}
    places = replace(manual, clusters=clusters)
    target = locate(places, plan(), template(), no_load, able=frozenset({"host-2"}))
    assert target.host is not None
    assert target.host.id == "host-2"
    with pytest.raises(Refused):
        locate(places, plan(), template(), no_load, able=frozenset())


# Folders


@pytest.mark.parametrize(
    ("fields", "home", "folder", "missing"),
    [
        ({}, Home(), "group-v1", ()),
        ({}, Home("team"), "group-v2", ()),
        ({}, Home("team/new", FolderPolicy.CREATE), "group-v2", ("new",)),
        ({"folder": "x/y", "folder_policy": FolderPolicy.CREATE}, Home(), "group-v1", ("x", "y")),
        ({"folder": "team/web"}, Home("elsewhere"), "group-v3", ()),
        (
            {"folder": "/dc-1/vm/n", "folder_policy": FolderPolicy.CREATE},
            Home(),
            "group-v1",
            ("n",),
        ),
    ],
)
def test_the_folder_is_the_machines_or_the_providers(
    fields: dict[str, Native], home: Home, folder: str, missing: tuple[str, ...]
) -> None:
    places = inventory()
    datacenter = places.datacenters["datacenter-1"]
    spec = VSphereMachineSpec.model_construct(**fields)
    assert home_of(places, datacenter, spec, home) == (folder, missing)


@pytest.mark.parametrize(
    ("folder", "policy"),
    [
        ("nowhere", FolderPolicy.EXISTING),
        ("/dc-2/vm/x", FolderPolicy.CREATE),
        ("x" * 81, FolderPolicy.CREATE),
    ],
)
def test_a_folder_that_cannot_be_is_the_specs_fault(folder: str, policy: FolderPolicy) -> None:
    places = inventory()
    spec = VSphereMachineSpec.model_construct(folder=folder, folder_policy=policy)
    with pytest.raises(InvalidSpec) as refusal:
        home_of(places, places.datacenters["datacenter-1"], spec, Home())
    assert refusal.value.reason is Reason.INVALID_CONFIGURATION


def test_settings_that_mean_nothing_are_told() -> None:
    with pytest.raises(NeedsOperator):
        Home.of({"folderPolicy": "Maybe"})
    with pytest.raises(NeedsOperator):
        zones.kind_of({"failureDomains": "Rack"})
    assert {"folder", "folderPolicy", "failureDomains"} <= BACKEND.settings_keys


# Other namespaces


GIVEN: dict[str, Native] = {
    "template": "golden",
    "cloneMode": "Full",
    "snapshot": "v1",
    "datacenter": "dc",
    "cluster": "blue",
    "resourcePool": "prod",
    "folder": "team",
    "folderPolicy": "Create",
    "datastore": "fast",
    "storagePolicy": "gold",
    "hardwareVersion": "vmx-19",
    "numCoresPerSocket": 2,
    "cpuAllocation": {"reservationMhz": 100},
    "memoryAllocation": {"reservationMiB": 100},
    "pciDeviceLabels": ["gpu"],
    "customAttributes": {"owner": "me"},
    "extraConfig": {"tools.x": "1"},
}


def test_every_field_of_vsphere_needs_leave_from_another_namespace() -> None:
    """A new field is given a value here, or this fails."""
    names = {field.alias or name for name, field in VSphereFields.model_fields.items()}
    assert names == set(GIVEN)
    spec = VSphereMachineSpec.from_api({"imageRef": {"name": "ubuntu"}, **GIVEN})
    provider = Provider.from_api(
        {
            "metadata": {"namespace": "system", "name": "one"},
            "spec": {
                "providerClassRef": {"name": "vsphere"},
                "connection": {"endpoint": "https://x", "credentialsRef": {"name": "c"}},
            },
        }
    )
    refused = tenancy.refused_fields(provider, "team", spec)
    assert {text.partition(":")[0] for text in refused} == set(GIVEN)
    assert not tenancy.refused_fields(provider, "system", spec)
    allowed = {name: [_word(value)] for name, value in GIVEN.items()}
    provider.spec.policy.concrete_fields = allowed
    assert not tenancy.refused_fields(provider, "team", spec)


def _word(value: Native) -> str:
    if isinstance(value, dict):
        ((key, text),) = value.items()
        return f"{key}={text}"
    return str(value[0] if isinstance(value, list) else value)
