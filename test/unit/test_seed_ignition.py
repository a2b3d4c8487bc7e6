"""Ignition configurations: what is refused, what is added, and that the user's own stays."""

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from banlieue.api.reasons import Reason
from banlieue.sdk.driver import AddressPlan, NicPlan
from banlieue.sdk.errors import InvalidSpec
from banlieue.sdk.seed import files, ignition
from banlieue.sdk.seed.network import Card
from test.kit import ignitionspec

FILES = (files.File("/etc/hostname", "db-1\n"), files.File("/etc/x y", "a,%\n[b]\n", 0o755))
UNITS = (ignition.Unit("told.service", "[Service]\nExecStart=/bin/true\n"),)
KEYS = ("ssh-ed25519 AAAA a", "ssh-ed25519 BBBB b")
USERS: dict[str, Any] = {
    "ignition": {"version": "3.4.0"},
    "storage": {
        "files": [
            {"path": "/etc/hostname", "contents": {"source": "data:,mine"}, "mode": 420},
            {"path": "/etc/motd", "contents": {"source": "https://example.com/motd"}},
        ],
        "directories": [{"path": "/srv"}],
    },
    "systemd": {"units": [{"name": "mine.service", "enabled": True, "contents": "[Unit]\n"}]},
    "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [KEYS[0]], "uid": 500}]},
}


def completed(document: Any) -> dict[str, Any]:  # noqa: ANN401 - as JSON has it
    made = ignition.complete(json.dumps(document).encode(), files=FILES, units=UNITS, keys=KEYS)
    found: dict[str, Any] = json.loads(made)
    return found


def test_ours_is_added_and_the_users_stays() -> None:
    made = completed(USERS)
    assert ignitionspec.faults_of(made) == []
    found = ignitionspec.files_of(made)
    assert found["/etc/hostname"] == "mine", "the user's own file of that path"
    assert found["/etc/x y"] == "a,%\n[b]\n"
    for section, name in (("storage", "files"), ("storage", "directories"), ("systemd", "units")):
        for entry in USERS[section].get(name, ()):
            assert entry in made[section][name]
    (user,) = made["passwd"]["users"]
    assert user == {"name": "core", "uid": 500, "sshAuthorizedKeys": list(KEYS)}


def test_no_document_is_one_that_only_has_ours() -> None:
    made = json.loads(ignition.complete(ignition.NO_DOCUMENT, files=FILES, units=UNITS, keys=KEYS))
    assert ignitionspec.faults_of(made) == []
    assert {unit["name"] for unit in made["systemd"]["units"]} == {"told.service"}
    assert made["passwd"]["users"][0]["name"] == "core"


def test_a_document_that_is_replaced_by_another_is_merged_as_a_whole() -> None:
    document = {
        "ignition": {
            "version": "3.3.0",
            "config": {"replace": {"source": "https://example.com/config.ign"}},
        }
    }
    made = completed(document)
    assert ignitionspec.faults_of(made) == []
    (merged,) = made["ignition"]["config"]["merge"]
    inner = json.loads(base64.b64decode(merged["source"].removeprefix("data:;base64,")))
    assert inner == document
    assert ignitionspec.files_of(made)["/etc/hostname"] == "db-1\n"


def test_specification_2_is_what_kubeadm_bootstrap_data_has() -> None:
    document = {
        "ignition": {"config": {}, "security": {"tls": {}}, "timeouts": {}, "version": "2.3.0"},
        "networkd": {},
        "passwd": {"users": [{"name": "core"}]},
        "storage": {
            "files": [
                {"filesystem": "root", "path": "/etc/sudoers.d/core", "mode": 384, "contents": {}},
                {"filesystem": "root", "path": "/etc/kubeadm.yml", "contents": {}, "mode": 384},
            ]
        },
        "systemd": {
            "units": [{"contents": "[Unit]\n", "enabled": True, "name": "kubeadm.service"}]
        },
    }
    made = completed(document)
    ours = [it for it in made["storage"]["files"] if it["path"] in {"/etc/hostname", "/etc/x y"}]
    assert len(ours) == 2
    assert {it["filesystem"] for it in ours} == {"root"}
    assert made["storage"]["files"][:2] == document["storage"]["files"]  # type: ignore[index]  # JSON
    assert made["ignition"] == document["ignition"]
    assert made["passwd"]["users"][0]["sshAuthorizedKeys"] == list(KEYS)
    replaced = {"ignition": {"version": "2.2.0", "config": {"replace": {"source": "http://x/y"}}}}
    assert "append" in completed(replaced)["ignition"]["config"]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b"variant: flatcar\nversion: 1.0.0\n", "Butane"),
        (b"[]", "the document must be an object"),
        (b'{"ignition":[]}', "ignition must be an object"),
        (b"{}", "ignition.version"),
        (b'{"ignition":{"version":3}}', "ignition.version"),
        (b'{"ignition":{"version":"1.0.0"}}', "ignition.version"),
        (b'{"ignition":{"version":"3.4.0"},"storage":[]}', "storage must be an object"),
        (b'{"ignition":{"version":"3.4.0"},"storage":{"files":{}}}', "storage.files"),
        (b'{"ignition":{"version":"3.4.0"},"storage":{"files":[{}]}}', "storage.files[0]"),
        (
            b'{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"etc"}]}}',
            "must be absolute",
        ),
        (
            b'{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"a"},{"name":"a"}]}}',
            "systemd.units[1]",
        ),
        (b'{"ignition":{"version":"3.4.0"},"passwd":{"users":["core"]}}', "passwd.users[0]"),
        (b'{"ignition":{"version":"3.4.0"},"x":NaN}', "UTF-8"),
        (b"[" * 100_000, "UTF-8"),
    ],
)
def test_what_ignition_would_refuse_is_refused(document: bytes, words: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        ignition.check(document)
    assert refusal.value.reason is Reason.USER_DATA_INVALID
    assert words in refusal.value.message


@pytest.mark.parametrize("section", ["storage", "systemd", "passwd"])
def test_sections_may_be_null(section: str) -> None:
    made = completed({"ignition": {"version": "3.1.0"}, section: None})
    assert ignitionspec.faults_of(made) == []


_TEXT = st.text(max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)
_SECTIONS = st.fixed_dictionaries(
    {},
    optional={
        "ignition": st.fixed_dictionaries(
            {"version": st.sampled_from(["3.0.0", "3.4.0", "2.3.0", "9"])},
            optional={"config": _JSON},
        ),
        "storage": st.fixed_dictionaries({}, optional={"files": _JSON, "links": _JSON}) | _JSON,
        "systemd": st.fixed_dictionaries({}, optional={"units": _JSON}) | _JSON,
        "passwd": st.fixed_dictionaries({}, optional={"users": _JSON}) | _JSON,
        "other": _JSON,
    },
)


@given(_SECTIONS)
def test_any_document_is_completed_or_refused(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    try:
        ignition.check(json.dumps(document).encode())
    except InvalidSpec:
        return
    check_kept(before, completed(document))


def check_kept(before: dict[str, Any], made: dict[str, Any]) -> None:
    """Whatever is accepted is completed, and all that was there is there first."""
    assert made.get("other") == before.get("other")
    for section, name in (("storage", "files"), ("systemd", "units")):
        given_entries = (before.get(section) or {}).get(name) or []
        assert made[section][name][: len(given_entries)] == given_entries


# Files of the network


def network(*plans: AddressPlan, **more: Any) -> dict[str, str]:  # noqa: ANN401 - of a NicPlan
    nic = NicPlan("eth0", {}, addresses=plans, **more)
    return {file.path: file.text for file in files.network([Card(nic, "02:00:00:00:00:01")])}


def test_network_files_are_matched_by_mac_for_either_service() -> None:
    found = network(
        AddressPlan("IPv4", "static", "10.0.0.7", 24, "10.0.0.1"),
        AddressPlan("IPv6", "slaac"),
        nameservers=("10.0.0.2", "fd00::2"),
        search_domains=("example.com", "example.org"),
        mtu=9000,
    )
    assert found["/etc/systemd/network/10-banlieue-eth0.link"] == (
        "[Match]\nMACAddress=02:00:00:00:00:01\n\n[Link]\nName=eth0\n"
    )
    assert found["/etc/systemd/network/10-banlieue-eth0.network"] == (
        "[Match]\nMACAddress=02:00:00:00:00:01\n\n[Link]\nMTUBytes=9000\n\n"
        "[Network]\nDHCP=no\nIPv6AcceptRA=yes\nAddress=10.0.0.7/24\nDNS=10.0.0.2\nDNS=fd00::2\n"
        "Domains=example.com example.org\n\n[Route]\nGateway=10.0.0.1\n"
    )
    keyfile = found["/etc/NetworkManager/system-connections/banlieue-eth0.nmconnection"]
    assert keyfile == (
        "[connection]\nid=eth0\ntype=ethernet\n\n"
        "[ethernet]\nmac-address=02:00:00:00:00:01\nmtu=9000\n\n"
        "[ipv4]\nmethod=manual\naddress1=10.0.0.7/24\nroute1=0.0.0.0/0,10.0.0.1\ndns=10.0.0.2;\n"
        "dns-search=example.com;example.org;\n\n"
        "[ipv6]\nmethod=auto\ndns=fd00::2;\ndns-search=example.com;example.org;\n"
    )


@pytest.mark.parametrize(
    ("plans", "dhcp", "accepts", "four", "six"),
    [
        ((), "ipv4", "no", "auto", "link-local"),
        ((AddressPlan("IPv4", "dhcp"), AddressPlan("IPv6", "dhcp")), "yes", "yes", "auto", "dhcp"),
        ((AddressPlan("IPv6", "dhcp"),), "ipv6", "yes", "disabled", "dhcp"),
        ((AddressPlan("IPv4", "none"),), "no", "no", "disabled", "link-local"),
        (
            (AddressPlan("IPv6", "static", "fd00::7", 64, "fe80::1"),),
            "no",
            "no",
            "disabled",
            "manual",
        ),
    ],
)
def test_ways_to_an_address(
    plans: tuple[AddressPlan, ...], dhcp: str, accepts: str, four: str, six: str
) -> None:
    found = network(*plans)
    networkd = found["/etc/systemd/network/10-banlieue-eth0.network"]
    assert f"DHCP={dhcp}\nIPv6AcceptRA={accepts}\n" in networkd
    keyfile = found["/etc/NetworkManager/system-connections/banlieue-eth0.nmconnection"]
    assert f"[ipv4]\nmethod={four}\n" in keyfile
    assert f"[ipv6]\nmethod={six}\n" in keyfile


def test_nobody_waits_for_an_interface_that_gets_no_address() -> None:
    silent = network(AddressPlan("IPv4", "none"))
    unplugged = network(AddressPlan("IPv4", "dhcp"), connected=False)
    for found in (silent, unplugged):
        networkd = found["/etc/systemd/network/10-banlieue-eth0.network"]
        assert "[Link]\nRequiredForOnline=no\n" in networkd
