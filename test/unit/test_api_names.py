"""Names fit where Kubernetes puts them."""

from __future__ import annotations

import re

import pytest

from banlieue.api import names, resources
from banlieue.api.kinds import KINDS
from banlieue.api.meta import Resource, ResourceObject
from banlieue.providers.vsphere.models import KINDS as VSPHERE_KINDS
from banlieue.sdk.simulated.models import KINDS as SIMULATED_KINDS

ALL_KINDS = (*KINDS, *VSPHERE_KINDS, *SIMULATED_KINDS)
QUALIFIED = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def constants(*prefixes: str) -> dict[str, str]:
    return {name: value for name, value in vars(names).items() if name.startswith(prefixes)}


@pytest.mark.parametrize(
    ("name", "value"),
    sorted(
        constants("LABEL_", "ANNOTATION_", "FINALIZER_", "CAPI_LABEL_", "CAPI_ANNOTATION_").items()
    ),
)
def test_keys_are_qualified_names(name: str, value: str) -> None:
    assert QUALIFIED.fullmatch(value), name
    assert len(value.split("/")[1]) <= 63


def test_each_name_has_one_constant() -> None:
    values = list(constants("LABEL_", "ANNOTATION_", "FINALIZER_", "MANAGER_").values())
    assert len(values) == len(set(values))


def test_the_finalizer_of_a_machine_kind() -> None:
    found = names.machine_finalizer("VSphereMachine")
    assert found == "vspheremachine.infrastructure.banlieue.io"


def test_each_provider_has_its_own_field_manager() -> None:
    managers = {
        names.provider_manager("vsphere", "a", "b-c"),
        names.provider_manager("vsphere", "a-b", "c"),
        names.provider_manager("vsphere", "a", "b"),
        names.provider_manager("proxmox", "a", "b"),
    }
    assert len(managers) == 4
    assert all(re.fullmatch(r"banlieue\.io/provider-[a-z]+-[0-9a-f]{8}", it) for it in managers)


def test_a_field_manager_fits_however_long_the_names_are() -> None:
    assert len(names.provider_manager("x" * 40, "n" * 63, "p" * 253)) <= 128


def test_the_field_manager_of_a_provider_never_changes() -> None:
    found = names.provider_manager("vsphere", "banlieue-system", "prod")
    assert found == "banlieue.io/provider-vsphere-3b4cf158"


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("VSphereMachine", "vspheremachines"),
        ("ProxmoxClusterTemplate", "proxmoxclustertemplates"),
        ("ProviderClass", "providerclasses"),
        ("NetworkPolicy", "networkpolicies"),
        ("Gateway", "gateways"),
        ("Box", "boxes"),
        ("Switch", "switches"),
    ],
)
def test_plurals_are_those_cluster_api_computes(kind: str, plural: str) -> None:
    assert names.plural(kind) == plural


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.__name__)
def test_the_resource_of_a_kind_is_its_own(kind: type[ResourceObject]) -> None:
    resource = kind.resource
    assert resource.kind == kind.__name__
    assert resource.plural == names.plural(resource.kind)
    assert resource.version == names.VERSION
    assert resource.crd_name == f"{resource.plural}.{resource.group}"


def test_core_kinds_have_no_group_in_their_version() -> None:
    assert resources.SECRETS.api_version == "v1"
    assert resources.LEASES.api_version == "coordination.k8s.io/v1"


def test_no_two_kinds_share_a_place_or_short_name() -> None:
    places = [kind.resource.crd_name for kind in ALL_KINDS]
    shorts = [short for kind in ALL_KINDS for short in kind.definition.short_names]
    assert len(places) == len(set(places))
    assert len(shorts) == len(set(shorts))


def test_resources_are_values() -> None:
    assert Resource("g", "v1", "Kind", "kinds") == Resource("g", "v1", "Kind", "kinds")
