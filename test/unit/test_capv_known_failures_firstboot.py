"""Failures of CAPV that are about first-boot data: how each would show, and that it does not."""

import base64
import gzip
import json
from dataclasses import replace
from typing import Any

import yaml
from pydantic import SecretBytes

from banlieue.providers.vsphere.hardware import cards
from banlieue.providers.vsphere.vms import guestinfo
from banlieue.sdk.driver import AddressPlan, Bootstrap, NicPlan
from test.kit.ignitionspec import files_of
from test.kit.vsphere_places import UUID, plan


def value(key: str, nics: tuple[NicPlan, ...], **bootstrap: Any) -> dict[str, Any]:  # noqa: ANN401 - fields
    """A guestinfo value of a machine, decoded."""
    made = replace(plan(), nics=nics, bootstrap=Bootstrap(**bootstrap))
    text = guestinfo.extra_config(made)[key]
    found: dict[str, Any] = yaml.safe_load(gzip.decompress(base64.b64decode(text)))
    return found


def test_30_names_and_macs_of_several_nics_are_not_swapped() -> None:
    """#1055: with 4 NICs names and MAC addresses are swapped, and no DHCP."""
    nics = tuple(NicPlan(f"eth{number}", {}) for number in range(4))
    ethernets = value("guestinfo.metadata", nics)["network"]["ethernets"]
    made = cards.planned(UUID, nics)
    assert len(made) == 4
    for mac, name in made.items():
        assert ethernets[name]["match"] == {"macaddress": mac}, "as on the card itself"
        assert ethernets[name]["set-name"] == name
        assert ethernets[name]["dhcp4"] is True


def test_32_a_fixed_address_lands_on_its_own_nic() -> None:
    """#1829, #1690: an address of a pool lands on both NICs."""
    fixed = (AddressPlan("IPv4", "pool", "10.0.0.7", 24, "10.0.0.1"),)
    nics = (NicPlan("eth0", {}), NicPlan("eth1", {}, addresses=fixed))
    ethernets = value("guestinfo.metadata", nics)["network"]["ethernets"]
    assert "addresses" not in ethernets["eth0"]
    assert ethernets["eth1"]["addresses"] == ["10.0.0.7/24"]
    assert ethernets["eth1"]["dhcp4"] is False


def test_34_a_static_ipv6_address_is_configured() -> None:
    """#765: a static IPv6 address is missing."""
    fixed = (AddressPlan("IPv6", "static", "fd00::10", 64, "fd00::1"),)
    entry = value("guestinfo.metadata", (NicPlan("eth0", {}, addresses=fixed),))
    assert entry["network"]["ethernets"]["eth0"]["addresses"] == ["fd00::10/64"]
    assert entry["network"]["ethernets"]["eth0"]["gateway6"] == "fd00::1"


def test_36_ignition_gets_its_static_addresses() -> None:
    """#2684, #1006: network metadata is for cloud-init only, so Flatcar has no static address."""
    fixed = (AddressPlan("IPv4", "static", "10.0.0.7", 24, "10.0.0.1"),)
    document = value(
        "guestinfo.ignition.config.data",
        (NicPlan("eth0", {}, addresses=fixed),),
        user_data=SecretBytes(json.dumps({"ignition": {"version": "3.3.0"}}).encode()),
        user_data_format="ignition",
    )
    networkd = files_of(document)["/etc/systemd/network/10-banlieue-eth0.network"]
    assert "Address=10.0.0.7/24\n" in networkd
    assert "Gateway=10.0.0.1\n" in networkd


def test_metadata_is_never_made_by_formatting_text() -> None:
    """A host name or key with quotes breaks a template of YAML."""
    keys = ('ssh-ed25519 AAAA "quoted": [x] # y',)
    found = value("guestinfo.metadata", (), ssh_authorized_keys=keys)
    assert found["public-keys-data"] == keys[0]
