import dataclasses
from typing import Any

import pytest

from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.provider import Capabilities, ProviderSpec
from banlieue.sdk.driver import FailureDomain
from banlieue.sdk.errors import InvalidSpec, NeedsOperator
from banlieue.sdk.provider import capabilities
from banlieue.sdk.testing.scripted import ScriptedEndpoint, scripted_backend

BACKEND = scripted_backend(ScriptedEndpoint())
HERE = FailureDomain("d1", ("c1",), storage_classes=("gold",), network_classes=("prod",))


def declare(
    subnets: list[dict[str, Any]] | None = None, target: dict[str, Any] | None = None
) -> Capabilities:
    return Capabilities.from_api(
        {
            "storageClasses": [
                {"name": "gold", "target": {"datastore": "ssd"} | (target or {})},
                {"name": "far", "target": {"datastore": "other"}},
            ],
            "networkClasses": [
                {
                    "name": "prod",
                    "target": {"portGroup": "pg"},
                    "mtu": 9000,
                    "subnets": subnets
                    or [
                        {
                            "cidr": "10.0.0.0/24",
                            "gateway": "10.0.0.1",
                            "nameservers": ["10.0.0.2"],
                            "searchDomains": ["example"],
                            "allowStatic": ["10.0.0.64/26"],
                        },
                        {
                            "cidr": "2001:db8::/64",
                            "gateway": "fe80::1",
                            "nameservers": ["10.0.0.2"],
                        },
                    ],
                }
            ],
        }
    )


def spec(declared: Capabilities, **more: object) -> ProviderSpec:
    return ProviderSpec.from_api(
        {
            "providerClassRef": {"name": "c"},
            "connection": {"endpoint": "x://y"},
            "capabilities": declared.to_api(),
            **more,
        }
    )


def test_classes_resolve_to_targets() -> None:
    assert capabilities.storage_target(declare(), "gold", HERE) == {"datastore": "ssd"}
    net = capabilities.network(declare(), "prod", HERE)
    assert net.target == {"portGroup": "pg"}
    assert net.mtu == 9000
    assert net.nameservers == ("10.0.0.2",)
    assert net.search_domains == ("example",)


@pytest.mark.parametrize("name", ["far", "none"])
def test_a_class_that_is_not_reachable_or_not_declared_is_said_so(name: str) -> None:
    with pytest.raises(NeedsOperator) as caught:
        capabilities.storage_target(declare(), name, HERE)
    assert caught.value.reason == Reason.STORAGE_CLASS_NOT_AVAILABLE
    with pytest.raises(NeedsOperator) as caught:
        capabilities.network(declare(), name, HERE)
    assert caught.value.reason == Reason.NETWORK_NOT_AVAILABLE


def test_a_static_address_gets_what_the_guest_needs() -> None:
    net = capabilities.network(declare(), "prod", HERE)
    found = capabilities.static_address(net, "10.0.0.70")
    assert (found.address, found.prefix, found.gateway) == ("10.0.0.70", 24, "10.0.0.1")
    assert found.nameservers == ("10.0.0.2",)


@pytest.mark.parametrize("address", ["10.0.0.5", "10.9.0.70", "2001:db8::5", "nonsense"])
def test_addresses_outside_the_static_ranges_are_refused(address: str) -> None:
    net = capabilities.network(declare(), "prod", HERE)
    with pytest.raises(InvalidSpec) as caught:
        capabilities.static_address(net, address)
    assert "10.0.0.64/26" in caught.value.message


def test_gateways_by_address() -> None:
    net = capabilities.network(declare(), "prod", HERE)
    assert capabilities.gateway_of(net, "10.0.0.200") == "10.0.0.1"
    assert capabilities.gateway_of(net, "2001:db8::9") == "fe80::1"
    assert capabilities.gateway_of(net, "192.0.2.1") is None


def test_a_right_declaration_has_no_flaws() -> None:
    assert capabilities.flaws(spec(declare()), BACKEND) == ()
    assert capabilities.without_flaws(declare(), BACKEND) == declare()


def test_unknown_target_keys_are_named_and_kept_from_the_driver() -> None:
    wrong = declare(target={"datastroe": "x"})
    [flaw] = capabilities.flaws(spec(wrong), BACKEND)
    assert "capabilities.storageClasses[gold].target" in flaw
    assert "datastroe" in flaw
    assert "datastore" in flaw
    usable = capabilities.without_flaws(wrong, BACKEND)
    assert [entry.name for entry in usable.storage_classes] == ["far"]


@pytest.mark.parametrize(
    "subnet",
    [
        {"cidr": "10.0.0.0/99"},
        {"cidr": "10.0.0.0/24", "gateway": "10.0.1.1"},
        {"cidr": "10.0.0.0/24", "allowStatic": ["10.0.0.0/16"]},
        {"cidr": "10.0.0.0/24", "allowStatic": ["2001:db8::/64"]},
    ],
)
def test_impossible_subnets_are_flaws(subnet: dict[str, Any]) -> None:
    wrong = declare(subnets=[subnet])
    assert capabilities.flaws(spec(wrong), BACKEND)
    assert not capabilities.without_flaws(wrong, BACKEND).network_classes


def test_unknown_settings_are_named_and_kept_from_the_driver() -> None:
    backend = dataclasses.replace(BACKEND, settings_keys=frozenset({"folder"}))
    given: dict[str, str | int] = {"folder": "vms", "foldre": "vms"}
    [flaw] = capabilities.flaws(spec(declare(), settings=given), backend)
    assert flaw.startswith("settings: key 'foldre'")
    assert capabilities.known_settings(given, backend) == {"folder": "vms"}
