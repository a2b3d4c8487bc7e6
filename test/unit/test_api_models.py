"""The models read what the API server gives and write what it takes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError

from banlieue.api.devices import Guest, ObservedResources
from banlieue.api.infrastructure.machine import (
    MACHINE_RULES,
    BackendError,
    Machine,
    MachineSpec,
    MachineStatus,
    MachineTemplateSpec,
    MoveRole,
)
from banlieue.api.kinds import KINDS
from banlieue.api.markers import Rule
from banlieue.api.meta import Condition, LabelSelector, ObjectMeta, ResourceObject, to_camel
from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.provider import AllowedNamespaces, Provider
from banlieue.api.v1alpha1.virtualmachine import Adopt, VirtualMachine, VirtualMachineSpec
from banlieue.providers.vsphere.models import KINDS as VSPHERE_KINDS
from banlieue.providers.vsphere.models import VSphereMachine, VSphereMachineTemplateSpec
from banlieue.sdk.simulated.models import KINDS as SIMULATED_KINDS
from test.kit.filled import fields_of, fields_set, variants

ALL_KINDS = (*KINDS, *VSPHERE_KINDS, *SIMULATED_KINDS)

every_kind = pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.__name__)


@every_kind
def test_every_field_survives_the_way_to_json_and_back(kind: type[ResourceObject]) -> None:
    for filled in variants(kind):
        sent = json.loads(json.dumps(filled.to_api()))
        assert kind.from_api(sent) == filled
        assert kind.from_api(sent).to_api() == sent


@every_kind
def test_filled_objects_leave_no_field_out(kind: type[ResourceObject]) -> None:
    seen = set()
    for filled in variants(kind):
        seen |= fields_set(getattr(filled, "spec")) | fields_set(getattr(filled, "status", None))  # noqa: B009 - declared by each kind, not by the base
    assert fields_of(kind) - seen == set()


@every_kind
def test_no_null_is_ever_written(kind: type[ResourceObject]) -> None:
    def nulls(value: Any, path: str) -> list[str]:  # noqa: ANN401 - JSON data
        if isinstance(value, dict):
            return [hit for key, inner in value.items() for hit in nulls(inner, f"{path}.{key}")]
        if isinstance(value, list):
            return [hit for inner in value for hit in nulls(inner, f"{path}[]")]
        return [path] if value is None else []

    for filled in variants(kind):
        assert nulls(filled.to_api(), "") == []


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("provider_id", "providerID"),
        ("backend_id", "backendID"),
        ("installation_id", "installationID"),
        ("insecure_skip_tls_verify", "insecureSkipTLSVerify"),
        ("memory_mib", "memoryMiB"),
        ("min_disk_gib", "minDiskGiB"),
        ("ca_bundle", "caBundle"),
        ("class_", "class"),
        ("from_", "from"),
        ("id", "id"),
        ("uid", "uid"),
        ("os_family", "osFamily"),
        ("ssh_authorized_keys", "sshAuthorizedKeys"),
    ],
)
def test_names_are_spelled_as_the_api_spells_them(name: str, spelled: str) -> None:
    assert to_camel(name) == spelled


def test_unset_and_empty_fields_are_left_out() -> None:
    assert MachineSpec().to_api() == {}
    assert MachineStatus().to_api() == {}
    assert Machine(kind="XMachine", api_version="x/v1").to_api() == {
        "apiVersion": "x/v1",
        "kind": "XMachine",
        "metadata": {"name": ""},
    }


def test_an_empty_value_that_means_something_is_written() -> None:
    assert VirtualMachineSpec(readiness_gates=[]).to_api()["readinessGates"] == []
    assert MachineStatus(addresses=[]).to_api() == {"addresses": []}
    everything = AllowedNamespaces.from_api({"from": "Selector", "selector": {}})
    assert everything.to_api() == {"from": "Selector", "selector": {}}


def test_a_newer_field_does_not_break_an_older_reader() -> None:
    stored = {"spec": {"cpus": 2, "quantum": {"bits": 3}}, "status": {"mood": "good"}}
    machine = Machine.from_api(stored)
    assert machine.spec.cpus == 2
    assert "quantum" not in machine.to_api()["spec"]


def test_the_common_machine_reads_every_backend() -> None:
    for filled in variants(VSphereMachine):
        assert isinstance(filled, VSphereMachine)
        common = Machine.from_api(filled.to_api())
        assert common.kind == "VSphereMachine"
        assert common.spec.to_api().items() <= filled.spec.to_api().items()
        assert common.status == filled.status


def test_kind_and_version_follow_from_the_model() -> None:
    vm = VirtualMachine(metadata=ObjectMeta(name="db"), spec=VirtualMachineSpec())
    assert (vm.api_version, vm.kind) == ("banlieue.io/v1alpha1", "VirtualMachine")


def test_defaults_are_those_of_the_design() -> None:
    spec = VirtualMachineSpec()
    assert spec.wanted_power_state is PowerState.POWERED_ON
    assert VirtualMachineSpec(adopt=Adopt(id="42")).wanted_power_state is None
    assert spec.to_api() == {
        "powerOffMode": "TrySoft",
        "powerOffTimeoutSeconds": 300,
        "migrationPolicy": "automatic",
        "ephemeral": False,
        "driftPolicy": {"power": "Correct", "hardware": "Correct"},
        "onMissing": "Report",
        "deletionProtection": False,
        "paused": False,
    }


def test_a_machine_says_what_absence_means() -> None:
    spec = MachineSpec()
    assert (spec.epoch, spec.role) == (0, MoveRole.CURRENT)
    assert spec.wanted_power_state == "PoweredOn"
    assert spec.wanted_power_off_mode == "TrySoft"
    assert spec.wanted_power_off_timeout_seconds == 300


def test_templates_lack_what_controllers_write() -> None:
    written = {
        "provider_ref",
        "placement",
        "virtual_machine_ref",
        "instance",
        "provider_id",
        "move",
        "teardown",
        "class_",
        "power_state",
        "restart_at",
        "adopt",
        "user_data",
        "network_data",
        "removed_disks",
    }
    assert set(MachineSpec.model_fields) - set(MachineTemplateSpec.model_fields) == written
    assert not written & set(VSphereMachineTemplateSpec.model_fields)


def test_times_are_utc_and_whole_seconds() -> None:
    moment = datetime(2026, 10, 1, 10, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=2)))
    spec = VirtualMachineSpec(restart_at=moment)
    assert spec.restart_at == datetime(2026, 10, 1, 8, tzinfo=UTC)
    assert spec.to_api()["restartAt"] == "2026-10-01T08:00:00Z"


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="zone"):
        VirtualMachineSpec(restart_at=datetime(2026, 10, 1, 8))  # noqa: DTZ001 - what is refused


CONDITION = {
    "type": "Ready",
    "status": "False",
    "reason": "ProviderUnreachable",
    "message": "the endpoint does not answer",
    "lastTransitionTime": "2026-10-01T08:00:00Z",
    "observedGeneration": 3,
}


def test_a_condition_is_written_as_the_contract_reads_it() -> None:
    assert Condition.from_api(CONDITION).to_api() == CONDITION


@pytest.mark.parametrize(
    "broken",
    [
        {"reason": ""},
        {"reason": "has space"},
        {"reason": "EndsWithComma,"},
        {"reason": "9Lives"},
        {"status": "true"},
        {"type": ""},
        {"lastTransitionTime": "2026-10-01T08:00:00"},
        {"lastTransitionTime": None},
    ],
    ids=str,
)
def test_a_condition_cluster_api_would_choke_on_cannot_be_made(broken: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Condition.from_api({**CONDITION, **broken})


def test_a_status_never_breaks_its_schema_for_a_long_or_empty_word() -> None:
    long = "x" * 99_999
    assert len(Condition.from_api({**CONDITION, "message": long}).message) == 32768
    guest = Guest(hostname=long, os_name="")
    assert len(guest.hostname or "") == 256
    assert guest.os_name is None
    error = BackendError(code="Fault", message=long, time=datetime(2026, 10, 1, tzinfo=UTC))
    assert len(error.message) == 4096


def test_what_is_observed_may_be_smaller_than_what_may_be_asked_for() -> None:
    seen = {"cpus": 0, "memoryMiB": 32, "disks": [{"name": "root", "sizeGiB": 0}]}
    assert ObservedResources.from_api(seen).to_api() == seen


def test_a_backends_kind_keeps_the_common_rules_beside_its_own() -> None:
    class Special(Machine):
        cel = (Rule("true", "nothing: nothing"),)

    assert [*Special.rules()] == [*MACHINE_RULES, *Special.cel]


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ({}, {}, True),
        ({"matchLabels": {"tier": "gold"}}, {"tier": "gold", "x": "y"}, True),
        ({"matchLabels": {"tier": "gold"}}, {"tier": "iron"}, False),
        (_in := {"key": "tier", "operator": "In", "values": ["gold"]}, {"tier": "gold"}, True),
        (_in, {}, False),
        ({"key": "tier", "operator": "NotIn", "values": ["gold"]}, {}, True),
        ({"key": "tier", "operator": "NotIn", "values": ["gold"]}, {"tier": "gold"}, False),
        ({"key": "tier", "operator": "Exists"}, {"tier": ""}, True),
        ({"key": "tier", "operator": "Exists"}, {}, False),
        ({"key": "tier", "operator": "DoesNotExist"}, {}, True),
        ({"key": "tier", "operator": "DoesNotExist"}, {"tier": "gold"}, False),
    ],
    ids=str,
)
def test_selectors_mean_what_they_mean_in_kubernetes(
    selector: dict[str, Any], labels: dict[str, str], *, selected: bool
) -> None:
    if "key" in selector:
        selector = {"matchExpressions": [selector]}
    assert LabelSelector.from_api(selector).matches(labels) is selected


def test_targets_keep_numbers_and_strings_apart() -> None:
    provider = Provider.from_api(
        {
            "metadata": {"name": "p"},
            "spec": {
                "providerClassRef": {"name": "proxmox"},
                "connection": {"endpoint": "https://pve.example.com:8006"},
                "capabilities": {
                    "networkClasses": [{"name": "prod", "target": {"bridge": "vmbr0", "vlan": 30}}]
                },
            },
        }
    )
    target = provider.spec.capabilities.network_classes[0].target
    assert target == {"bridge": "vmbr0", "vlan": 30}
    assert provider.to_api()["spec"]["capabilities"]["networkClasses"][0]["target"] == target
