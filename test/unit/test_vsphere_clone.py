import base64
import gzip
import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretBytes
from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerState
from banlieue.providers.vsphere.models import CloneMode
from banlieue.providers.vsphere.places.inventory import Cluster, Datacenter, Datastore, Network
from banlieue.providers.vsphere.places.placement import Target
from banlieue.providers.vsphere.vms import guestinfo
from banlieue.providers.vsphere.vms.clone import Clone, build, clone_spec
from banlieue.sdk.driver import AddressPlan, Bootstrap, DiskPlan, NicPlan
from banlieue.sdk.errors import InvalidSpec, NeedsOperator
from banlieue.sdk.identity import Mark
from banlieue.sdk.seed.network import version_2
from test.kit.vsphere_places import KIB, OWNER, UUID, plan, template

Native = Any
"""An object of the vendor's library, which has no types for them."""

STORE = Datastore("datastore-1", "ds1", None, usable=True)
DVS = Network("dvportgroup-1", "prod", None, "dvportgroup-1", "50 2c")
PLAIN = Network("network-1", "VM Network", None)


def target(*networks: Network, disks: int = 1) -> Target:
    return Target(
        datacenter=Datacenter("datacenter-1", "dc", None, "group-v1"),
        cluster=Cluster("domain-c1", "blue", None, "datacenter-1", "resgroup-1", (), True),
        folder="group-v1",
        pool="resgroup-1",
        datastores=(STORE,) * disks,
        networks=networks or (DVS,),
        host=None,
    )


def options(clone: Clone) -> dict[str, str]:
    return {option.key: option.value for option in clone.config.extraConfig}


def changes(clone: Clone, kind: type[Native]) -> list[Native]:
    return [change for change in clone.config.deviceChange if isinstance(change.device, kind)]


def test_identity_and_mark_travel_in_the_creating_call() -> None:
    clone = build(plan(), target(), template())
    config = clone.config
    assert (config.name, config.uuid, config.instanceUuid) == ("web-abc", UUID, UUID)
    assert (config.numCPUs, config.memoryMB, config.firmware) == (2, 4096, "efi")
    found = options(clone)
    assert Mark.decode(found["banlieue.mark"]) == Mark(OWNER, UUID)
    assert json.loads(found["banlieue.disks"]) == {"scsi0:0": "root"}
    assert found["disk.EnableUUID"] == "TRUE"
    assert clone.power_on


def test_a_clone_inherits_nothing_that_its_template_says_of_itself() -> None:
    """A VM that was ours may be a template now, with a note of where its own disks are to go."""
    found = options(build(plan(), target(), template()))
    assert [found[f"banlieue.{key}"] for key in ("kept", "image", "tags")] == ["", "", ""]


def test_a_machine_that_is_to_be_off_is_made_off() -> None:
    off = replace(plan(), power=PowerState.POWERED_OFF)
    assert not build(off, target(), template()).power_on


@pytest.mark.parametrize("firmware", ["bios", "efi", "efi-secure"])
def test_firmware(firmware: str) -> None:
    config = build(replace(plan(), firmware=firmware), target(), template()).config
    assert config.firmware == firmware.partition("-")[0]
    secure = config.bootOptions.efiSecureBootEnabled if config.bootOptions else False
    assert secure == (firmware == "efi-secure")


# Linked or full


@pytest.mark.parametrize(
    ("size", "mode", "snapshot", "expected"),
    [
        (10, None, True, "snapshot-2"),
        (None, None, True, "snapshot-2"),
        (10, None, False, None),
        (20, None, True, None),
        (10, CloneMode.FULL, True, None),
        (10, CloneMode.LINKED, True, "snapshot-2"),
    ],
)
def test_a_clone_is_linked_only_while_the_boot_disk_keeps_its_size(
    *, size: int | None, mode: CloneMode | None, snapshot: bool, expected: str | None
) -> None:
    clone = build(plan(size, clone_mode=mode), target(), template(snapshot=snapshot))
    assert clone.snapshot == expected
    move = clone_spec(clone, None).location.diskMoveType
    assert move == (
        "createNewChildDiskBacking" if expected else "moveAllDiskBackingsAndDisallowSharing"
    )


def test_a_named_snapshot_is_used_and_a_missing_one_refused() -> None:
    assert build(plan(snapshot="v1"), target(), template()).snapshot == "snapshot-1"
    with pytest.raises(NeedsOperator) as refusal:
        build(plan(snapshot="v9"), target(), template())
    assert refusal.value.reason is Reason.IMAGE_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("size", "snapshot", "kind"), [(10, False, NeedsOperator), (20, True, InvalidSpec)]
)
def test_a_linked_clone_that_cannot_be_is_never_made_full_silently(
    *, size: int, snapshot: bool, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        build(plan(size, clone_mode=CloneMode.LINKED), target(), template(snapshot=snapshot))


# Disks


def test_the_boot_disk_grows_and_never_shrinks() -> None:
    (change,) = changes(build(plan(25), target(), template()), vim.vm.device.VirtualDisk)
    assert (change.operation, change.device.key) == ("edit", 2000)
    assert change.device.capacityInKB == 25 * KIB
    with pytest.raises(InvalidSpec) as refusal:
        build(plan(5), target(), template())
    assert "10 GiB" in refusal.value.message


def test_data_disks_get_free_slots_and_are_remembered() -> None:
    extra = tuple(DiskPlan(f"data-{number}", 3, {}) for number in range(8))
    many = replace(plan(), disks=(*plan().disks, *extra))
    clone = build(many, target(disks=9), template(disks=2))
    added = [change.device.unitNumber for change in changes(clone, vim.vm.device.VirtualDisk)]
    assert added == [2, 3, 4, 5, 6, 8, 9, 10], "unit 7 is the controller's own"
    slots = json.loads(options(clone)["banlieue.disks"])
    assert slots["scsi0:1"] == "image-1"
    assert slots["scsi0:8"] == "data-5"
    assert [state.name for state in clone.disks][:3] == ["root", "image-1", "data-0"]


def test_no_disk_takes_the_name_of_one_that_the_image_brings() -> None:
    """It would be destroyed, or kept, in its place."""
    disks = (DiskPlan("root", 10, {}), DiskPlan("image-1", 5, {}))
    with pytest.raises(InvalidSpec, match="choose another"):
        build(replace(plan(), disks=disks), target(disks=2), template())


def test_what_cannot_be_honoured_is_refused() -> None:
    unsized = replace(plan(), disks=(*plan().disks, DiskPlan("data", None, {})))
    with pytest.raises(InvalidSpec):
        build(unsized, target(disks=2), template())
    with pytest.raises(NeedsOperator):
        build(plan(), target(), template(disks=0))


def test_more_disks_than_a_controller_holds_get_controllers_of_the_same_kind() -> None:
    extra = tuple(DiskPlan(f"data-{number}", 3, {}) for number in range(31))
    many = replace(plan(), disks=(*plan().disks, *extra))
    clone = build(many, target(disks=32), template())
    slots = json.loads(options(clone)["banlieue.disks"])
    assert list(slots.values()) == [disk.name for disk in many.disks]
    assert {slot.partition(":")[0] for slot in slots} == {"scsi0", "scsi1", "scsi2"}
    controllers = changes(clone, vim.vm.device.VirtualSCSIController)
    assert [type(change.device) for change in controllers] == [
        vim.vm.device.ParaVirtualSCSIController
    ] * 2
    places = [
        (change.device.controllerKey, change.device.unitNumber)
        for change in changes(clone, vim.vm.device.VirtualDisk)
    ]
    assert len(set(places)) == len(places)
    too_many = replace(plan(), disks=(*many.disks, *(replace(e, name=f"{e.name}x") for e in extra)))
    with pytest.raises(InvalidSpec):
        build(too_many, target(disks=63), template())


def test_a_vm_that_is_to_get_a_kept_disk_is_made_off_and_without_it() -> None:
    old = replace(plan(), disks=(*plan().disks, DiskPlan("old", None, {}, existing="web-data-1")))
    clone = build(old, target(disks=2), template())
    assert not clone.power_on
    assert list(json.loads(options(clone)["banlieue.disks"]).values()) == ["root"]


def test_a_boot_disk_that_is_to_outlive_its_vm_hangs_on_no_template() -> None:
    root = replace(plan().disks[0], retain=True)
    assert build(replace(plan(), disks=(root,)), target(), template()).snapshot is None
    linked = replace(plan(clone_mode=CloneMode.LINKED), disks=(root,))
    with pytest.raises(InvalidSpec):
        build(linked, target(), template())


# Networks


def test_the_cards_of_the_template_make_way_for_those_of_the_plan() -> None:
    two = replace(plan(), nics=(NicPlan("eth0", {}), NicPlan("eth1", {}, connected=False)))
    clone = build(two, target(DVS, PLAIN), template())
    spec = clone_spec(clone, None)
    cards = [
        change
        for change in spec.config.deviceChange
        if isinstance(change.device, vim.vm.device.VirtualEthernetCard)
    ]
    assert [change.operation for change in cards] == ["remove", "add", "add"]
    first, second = (change.device for change in cards[1:])
    assert first.backing.port.portgroupKey == "dvportgroup-1"
    assert (second.backing.deviceName, second.backing.network._moId) == ("VM Network", "network-1")
    assert (first.connectable.startConnected, second.connectable.startConnected) == (True, False)
    assert first.macAddress != second.macAddress


def test_mac_addresses_are_lasting_and_local() -> None:
    nic = NicPlan("eth0", {})
    made = guestinfo.mac_address(UUID, nic)
    assert made == guestinfo.mac_address(UUID.upper(), nic)
    assert int(made[:2], 16) & 3 == 2, "neither multicast nor somebody's"
    assert guestinfo.mac_address(UUID, replace(nic, mac_address="00:50:56:AA:BB:CC")) == (
        "00:50:56:aa:bb:cc"
    )


# First-boot data


def unpack(text: str) -> bytes:
    return gzip.decompress(base64.b64decode(text))


@pytest.mark.identity("11.1", "11.4")
def test_metadata_says_who_the_machine_is() -> None:
    keys = Bootstrap(ssh_authorized_keys=("ssh-ed25519 AAA a", "ssh-ed25519 BBB b"))
    found = options(build(replace(plan(), bootstrap=keys), target(), template()))
    body = json.loads(unpack(found["guestinfo.metadata"]))
    assert body["instance-id"] == UUID
    assert body["local-hostname"] == "web"
    assert body["provider-id"] == f"vsphere://{UUID}"
    assert body["public-keys-data"].splitlines() == ["ssh-ed25519 AAA a", "ssh-ed25519 BBB b"]
    assert found["guestinfo.userdata"] == "", "what a template has there is not for this VM"


@pytest.mark.parametrize(
    ("kind", "data", "key", "other"),
    [
        ("cloud-config", b"planted", "guestinfo.userdata", "guestinfo.ignition.config.data"),
        (
            "ignition",
            b'{"ignition":{"version":"3.4.0"},"planted":1}',
            "guestinfo.ignition.config.data",
            "guestinfo.userdata",
        ),
    ],
)
def test_user_data_goes_where_the_guest_looks(kind: str, data: bytes, key: str, other: str) -> None:
    given = Bootstrap(user_data=SecretBytes(data), user_data_format=kind)
    found = options(build(replace(plan(), bootstrap=given), target(), template()))
    assert b"planted" in unpack(found[key])
    assert found[f"{key}.encoding"] == "gzip+base64"
    assert found[other] == found[f"{other}.encoding"] == ""


def test_networks_are_matched_by_mac_and_named_as_in_the_api() -> None:
    nic = NicPlan(
        "eth0",
        {},
        addresses=(
            AddressPlan("IPv4", "static", "10.0.0.7", 24, "10.0.0.1"),
            AddressPlan("IPv6", "slaac"),
        ),
        nameservers=("10.0.0.2",),
        search_domains=("example.com",),
        mtu=9000,
    )
    entry = version_2(guestinfo.cards(UUID, [nic]))["ethernets"]["eth0"]
    assert entry == {
        "match": {"macaddress": guestinfo.mac_address(UUID, nic)},
        "set-name": "eth0",
        "dhcp4": False,
        "dhcp6": False,
        "accept-ra": True,
        "addresses": ["10.0.0.7/24"],
        "routes": [{"to": "0.0.0.0/0", "via": "10.0.0.1"}],
        "nameservers": {"addresses": ["10.0.0.2"], "search": ["example.com"]},
        "mtu": 9000,
    }
    plain = version_2(guestinfo.cards(UUID, [NicPlan("eth0", {})]))
    assert plain["ethernets"]["eth0"]["dhcp4"]


def test_the_users_own_network_data_beats_ours() -> None:
    data = Bootstrap(network_data=SecretBytes(b"version: 2"))
    found = guestinfo.extra_config(replace(plan(), bootstrap=data))
    body = json.loads(unpack(found["guestinfo.metadata"]))
    assert unpack(body["network"]) == b"version: 2\n"
    assert body["network.encoding"] == "gzip+base64"


def test_the_machines_own_keys_come_along_and_never_ours() -> None:
    clone = build(plan(extra_config={"mem.hotadd": "TRUE"}), target(), template())
    assert options(clone)["mem.hotadd"] == "TRUE"
    for key in ("guestinfo.userdata", "Banlieue.mark", "disk.enableUUID"):
        with pytest.raises(InvalidSpec):
            build(plan(extra_config={key: "x"}), target(), template())


def test_no_secret_is_in_a_repr() -> None:
    data = Bootstrap(user_data=SecretBytes(b"planted-0815"))
    secret = replace(plan(), bootstrap=data)
    assert "planted-0815" not in repr(secret)
    clone = build(secret, target(), template())
    assert options(clone)["guestinfo.userdata"] not in repr(clone), "packed it is as secret"
