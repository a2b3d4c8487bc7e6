"""The CRDs do on a real API server what the models say."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from banlieue.api.crd.render import crds
from banlieue.api.kinds import KINDS
from banlieue.api.markers import VALIDATIONS
from banlieue.api.meta import ResourceObject
from banlieue.providers.vsphere.models import KINDS as VSPHERE_KINDS
from banlieue.sdk.simulated.models import KINDS as SIMULATED_KINDS
from test.kit.controlplane import ControlPlane, KubectlError
from test.kit.filled import variants
from test.kit.kube import Kube, KubeError, Object
from test.kit.rule_cases import CASES, Case, changed, minimal
from test.kit.waiting import wait_until
from test.kit.yaml_text import yaml_documents

pytestmark = pytest.mark.slow

ALL_KINDS = {kind.__name__: kind for kind in (*KINDS, *VSPHERE_KINDS, *SIMULATED_KINDS)}
ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted((ROOT / "config/samples").glob("*.yaml"))
INVALID = 422

every_kind = pytest.mark.parametrize("kind", ALL_KINDS.values(), ids=ALL_KINDS)


@pytest.fixture(scope="module", autouse=True)
def _installed(control_plane: ControlPlane) -> None:
    control_plane.install_crds(crds(ALL_KINDS.values()))


@pytest.fixture
def made(kube: Kube) -> Iterator[list[Object]]:
    """What a test makes outside its namespace; it is removed afterwards."""
    objects: list[Object] = []
    yield objects
    for obj in objects:
        kube.delete(obj["kind"], obj["metadata"]["name"], missing_ok=True)


class Place:
    """Makes objects of any kind under names of their own."""

    def __init__(self, kube: Kube, namespace: str, made: list[Object]) -> None:
        self.kube, self.namespace, self._made = kube, namespace, made

    def where(self, kind: type[ResourceObject]) -> str | None:
        return self.namespace if kind.resource.namespaced else None

    def create(self, kind: type[ResourceObject], obj: Object) -> Object:
        """Create with a status, as nobody but a test does in one step."""
        created = self.kube.create(obj, self.where(kind))
        if not kind.resource.namespaced:
            self._made.append(created)
        if "status" not in obj:
            return created
        return self.kube.replace({**created, "status": obj["status"]}, subresource="status")


@pytest.fixture
def place(kube: Kube, namespace: str, made: list[Object]) -> Place:
    return Place(kube, namespace, made)


def unique(kind: type[ResourceObject]) -> str:
    return f"{kind.resource.singular}-{secrets.token_hex(4)}"


@every_kind
def test_every_field_is_accepted_and_kept(kind: type[ResourceObject], place: Place) -> None:
    for filled in variants(kind):
        sent = filled.to_api()
        sent["metadata"]["name"] = unique(kind)
        kept = place.create(kind, sent)
        read = place.kube.get(kind.__name__, kept["metadata"]["name"], place.where(kind))
        for part in ("spec", "status"):
            assert canonical(read.get(part)) == canonical(sent.get(part))
        assert canonical(kind.from_api(read).to_api().get("spec")) == canonical(sent["spec"])


@every_kind
def test_an_unknown_field_is_an_error(kind: type[ResourceObject], place: Place) -> None:
    with pytest.raises(KubeError, match=r'unknown field "spec\.banana"'):
        place.create(kind, changed(minimal(kind, unique(kind)), {"spec.banana": "yellow"}))


@every_kind
def test_the_server_fills_in_what_the_models_fill_in(
    kind: type[ResourceObject], place: Place
) -> None:
    sent = minimal(kind, unique(kind))
    stored = place.create(kind, sent)
    assert stored["spec"] == kind.from_api(sent).to_api().get("spec", {})


TARGETS: dict[str, tuple[object, str]] = {
    "a switch": ({"thin": True}, "must be of type"),
    "a fraction": ({"ratio": 1.5}, "must be of type"),
    "a list": ({"hosts": ["a"]}, "must be of type"),
    "too many entries": ({f"key-{number}": 1 for number in range(17)}, "must have at most 16"),
    "too long a text": ({"path": "x" * 257}, "may not be more than 256"),
    "too large a number": ({"vlan": 2**53 + 1}, "should be less than or equal to"),
}


@pytest.mark.parametrize(("target", "told"), TARGETS.values(), ids=TARGETS)
def test_a_target_is_a_small_map_of_strings_and_integers(
    target: object, told: str, place: Place
) -> None:
    kind = ALL_KINDS["Provider"]
    classes = {"storageClasses": [{"name": "gold", "target": target}]}
    with pytest.raises(KubeError, match=told) as refused:
        place.create(kind, changed(minimal(kind, "prod"), {"spec.capabilities": classes}))
    assert refused.value.status == INVALID
    assert "spec.capabilities.storageClasses[0].target" in refused.value.message


def test_the_server_keeps_no_null(place: Place) -> None:
    kind = ALL_KINDS["Provider"]
    obj = minimal(kind, "prod")
    obj["spec"] |= {
        "capabilities": {"storageClasses": [{"name": "gold", "target": {"vlan": None}}]},
        "overcommit": {"cpu": None},
        "policy": None,
        "mode": None,
    }
    stored = place.create(kind, obj)["spec"]
    assert stored["capabilities"] == {"storageClasses": [{"name": "gold", "target": {}}]}
    assert stored["overcommit"] == {}
    assert "policy" not in stored
    assert stored["mode"] == "ReadWrite"


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def rules(schema: dict[str, Any]) -> Iterator[str]:
    yield from (rule["message"] for rule in schema.get(VALIDATIONS, ()))
    for inner in schema.get("properties", {}).values():
        yield from rules(inner)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from rules(schema[key])


def test_every_rule_has_a_case_on_every_kind_that_has_it() -> None:
    declared = {
        (rendered["spec"]["names"]["kind"], message)
        for rendered in crds(ALL_KINDS.values())
        for message in rules(rendered["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    }
    assert declared == {(kind, case.message) for case in CASES for kind in case.kinds}


@pytest.mark.parametrize(
    ("case", "kind"),
    [(case, ALL_KINDS[name]) for case in CASES for name in case.kinds],
    ids=[f"{name}-{case.message[:40]}" for case in CASES for name in case.kinds],
)
def test_what_breaks_a_rule_is_refused_with_its_message(
    case: Case, kind: type[ResourceObject], place: Place
) -> None:
    good = minimal(kind, unique(kind))
    if case.before is not None:
        good = place.create(kind, changed(good, case.before))
    broken = changed(good, case.broken)
    touches_status = any(path.startswith("status.") for path in case.broken)
    with pytest.raises(KubeError) as refused:
        write(place, kind, broken, case, subresource="status" if touches_status else "")
    assert refused.value.status == INVALID
    assert case.message in refused.value.message
    causes = refused.value.details["causes"]
    assert len(causes) == 1, f"more than this rule was broken: {causes}"


def write(
    place: Place, kind: type[ResourceObject], obj: Object, case: Case, *, subresource: str
) -> None:
    if case.before is None:
        place.create(kind, obj)
    else:
        place.kube.replace(obj, subresource=subresource)


MACHINES = [ALL_KINDS["VSphereMachine"], ALL_KINDS["SimulatedMachine"]]
every_machine = pytest.mark.parametrize("kind", MACHINES, ids=lambda kind: kind.__name__)

INSTANCE = {
    "uuid": "01234567-89ab-4cde-8f01-23456789abcd",
    "name": "db-0123abcd",
    "installationID": "one",
    "backendIdentity": "vc-1",
}


@every_machine
def test_identity_is_written_step_by_step(kind: type[ResourceObject], place: Place) -> None:
    machine = place.create(kind, minimal(kind, unique(kind)))
    steps: list[dict[str, Any]] = [
        {"spec.providerRef": {"name": "prod", "namespace": "infra"}},
        {"spec.placement": {"failureDomain": "a"}},
        {"spec.placement": {"failureDomain": "b"}},
        {"spec.instance": INSTANCE},
        {"spec.providerID": "vsphere://1"},
        {"spec.teardown": {"mode": "Destroy", "uid": machine["metadata"]["uid"]}},
        {"spec.move": {"epoch": 1, "role": "Previous"}},
        {"spec.paused": True},
    ]
    for step in steps:
        machine = place.kube.replace(changed(machine, step))


@every_machine
def test_a_move_or_restore_may_create_a_machine_that_has_its_identity(
    kind: type[ResourceObject], place: Place
) -> None:
    identity = {
        "spec.providerRef": {"name": "prod", "namespace": "infra"},
        "spec.placement": {"failureDomain": "a"},
        "spec.instance": INSTANCE,
        "spec.providerID": "vsphere://1",
        "spec.virtualMachineRef": {"name": "db", "uid": "gone"},
    }
    machine = place.create(kind, changed(minimal(kind, unique(kind)), identity))
    place.kube.replace(
        changed(machine, {"spec.virtualMachineRef": {"name": "db", "uid": "restored"}})
    )


@every_machine
def test_a_refused_place_may_be_left_once(kind: type[ResourceObject], place: Place) -> None:
    refused = {
        "spec.placement": {"failureDomain": "a"},
        "spec.instance": INSTANCE,
        "status.createRefused": {"failureDomain": "a", "reason": "InsufficientCapacity"},
    }
    machine = place.create(kind, changed(minimal(kind, unique(kind)), refused))
    machine = place.kube.replace(changed(machine, {"spec.placement": {"failureDomain": "b"}}))
    with pytest.raises(KubeError, match=r"spec\.placement is fixed"):
        place.kube.replace(changed(machine, {"spec.placement": {"failureDomain": "c"}}))


@every_machine
def test_a_lost_status_may_be_written_anew(kind: type[ResourceObject], place: Place) -> None:
    done = {"status.initialization": {"provisioned": True}}
    machine = place.create(kind, changed(minimal(kind, unique(kind)), done))
    machine = place.kube.replace(changed(machine, {"status": None}), subresource="status")
    assert "status" not in machine
    place.kube.replace(changed(machine, done), subresource="status")


@pytest.mark.parametrize("name", ["VirtualMachine", *(kind.__name__ for kind in MACHINES)])
def test_what_users_may_change_is_accepted(name: str, place: Place) -> None:
    kind = ALL_KINDS[name]
    before = {
        "spec.adopt": {"id": "42", "accepted": False},
        "spec.disks": [{"name": "data", "sizeGiB": 10}, {"name": "log", "sizeGiB": 5}],
    }
    obj = place.create(kind, changed(minimal(kind, unique(kind)), before))
    obj = place.kube.replace(changed(obj, {"spec.adopt": {"id": "42", "accepted": True}}))
    obj = place.kube.replace(changed(obj, {"spec.disks": [{"name": "data", "sizeGiB": 11}]}))
    place.kube.replace(changed(obj, {"spec.disks": [{"name": "log", "sizeGiB": 1}]}))


def test_an_adopted_machine_needs_neither_class_nor_image(place: Place) -> None:
    kind = ALL_KINDS["VirtualMachine"]
    adopted = {"spec": {"adopt": {"id": "42"}}}
    obj = place.create(kind, {**minimal(kind, unique(kind)), **adopted})
    obj = place.kube.replace(changed(obj, {"spec.classRef": {"name": "small"}}))
    place.kube.replace(changed(obj, {"spec.imageRef": {"name": "ubuntu"}}))


def test_a_template_may_change_as_cluster_class_rotates_it(place: Place) -> None:
    kind = ALL_KINDS["VSphereMachineTemplate"]
    disks = "spec.template.spec.disks"
    obj = minimal(kind, unique(kind))
    obj = place.create(kind, changed(obj, {disks: [{"name": "data", "sizeGiB": 10}]}))
    place.kube.replace(changed(obj, {disks: [{"name": "data", "sizeGiB": 5}]}))


def test_machines_are_selected_by_provider_and_owner(place: Place) -> None:
    kind = ALL_KINDS["VSphereMachine"]
    for name, provider in (("a", "prod"), ("b", "prod"), ("c", "lab")):
        refs = {
            "spec.providerRef": {"name": provider, "namespace": "infra"},
            "spec.virtualMachineRef": {"name": name},
        }
        place.create(kind, changed(minimal(kind, name), refs))

    def selected(selector: str) -> list[str]:
        found = place.kube.list("VSphereMachine", place.namespace, field_selector=selector)
        return sorted(obj["metadata"]["name"] for obj in found)

    both = "spec.providerRef.namespace=infra,spec.providerRef.name="
    assert selected(f"{both}prod") == ["a", "b"]
    assert selected(f"{both}lab") == ["c"]
    assert selected("spec.virtualMachineRef.name=b") == ["b"]


READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Ready",
    "message": "",
    "lastTransitionTime": "2026-10-01T08:00:00Z",
}
ADDRESSES = [
    {"type": "Hostname", "address": "db-1"},
    {"type": "InternalIP", "address": "10.0.0.7"},
    {"type": "InternalIP", "address": "2001:db8::7"},
]


def table(control_plane: ControlPlane, *arguments: str) -> list[dict[str, str]]:
    head, *rows = control_plane.kubectl("get", *arguments).splitlines()
    starts = [word.start() for word in re.finditer(r"\S+", head)]
    ends = [*starts[1:], None]
    cut = [
        [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
        for line in (head, *rows)
    ]
    return [dict(zip(cut[0], row, strict=True)) for row in cut[1:]]


def test_kubectl_get_shows_a_virtual_machine(control_plane: ControlPlane, place: Place) -> None:
    kind = ALL_KINDS["VirtualMachine"]
    status = {
        "status": {
            "scheduled": {"providerName": "prod", "providerNamespace": "infra"},
            "observedPowerState": "PoweredOn",
            "observedFailureDomain": "prod-dc1-a",
            "providerID": "vsphere://1",
            "host": "esx-1",
            "addresses": ADDRESSES,
            "conditions": [READY],
        }
    }
    place.create(kind, {**minimal(kind, "db"), **status})
    for name in ("vm", "bvm", "virtualmachines"):
        (row,) = table(control_plane, name, "-n", place.namespace)
        assert row.pop("AGE")
        assert row == {
            "NAME": "db",
            "CLASS": "small",
            "IMAGE": "ubuntu-22.04",
            "PROVIDER": "prod",
            "POWER": "PoweredOn",
            "IP": "10.0.0.7",
            "READY": "True",
            "REASON": "Ready",
        }
    (wide,) = table(control_plane, "vm", "-n", place.namespace, "-o", "wide")
    assert wide["FAILUREDOMAIN"] == "prod-dc1-a"
    assert wide["PROVIDERID"] == "vsphere://1"
    assert wide["HOST"] == "esx-1"


def test_kubectl_get_shows_providers_and_images(control_plane: ControlPlane, place: Place) -> None:
    provider = ALL_KINDS["Provider"]
    status: Object = {
        "status": {
            "version": "8.0.3",
            "failureDomainCount": 4,
            "machineCount": 0,
            "conditions": [READY],
        }
    }
    place.create(provider, {**minimal(provider, "prod"), **status})
    (row,) = table(control_plane, "prov", "-n", place.namespace, "-o", "wide")
    assert row["CLASS"] == "vsphere"
    assert (row["READY"], row["VERSION"], row["FDS"], row["VMS"]) == ("True", "8.0.3", "4", "0")
    assert row["ENDPOINT"] == "https://vcenter.example.com/sdk"

    image = ALL_KINDS["VMImage"]
    name = unique(image)
    described = {
        "spec.osDistribution": "ubuntu",
        "spec.osVersion": "22.04",
        "status.readyProviders": "1/2",
        "status.progress": "40%",
    }
    place.create(image, changed(minimal(image, name), described))
    (row,) = table(control_plane, "vmi", name)
    assert (row["OS"], row["VERSION"], row["ARCH"]) == ("ubuntu", "22.04", "amd64")
    assert (row["READY"], row["PROGRESS"]) == ("1/2", "40%")


def test_kubectl_get_shows_the_cluster_of_a_machine(
    control_plane: ControlPlane, place: Place
) -> None:
    kind = ALL_KINDS["VSphereMachine"]
    known: Object = {
        "metadata.labels": {"cluster.x-k8s.io/cluster-name": "prod"},
        "status.initialization": {"provisioned": True},
        "status.powerState": "PoweredOn",
        "status.conditions": [READY],
    }
    place.create(kind, changed(minimal(kind, "node"), known))
    (row,) = table(control_plane, "vsm", "-n", place.namespace)
    assert (row["CLUSTER"], row["PROVISIONED"], row["POWER"]) == ("prod", "true", "PoweredOn")
    names = control_plane.kubectl("get", "cluster-api", "-n", place.namespace, "-o", "name")
    assert names.strip() == "vspheremachine.infrastructure.banlieue.io/node"


def test_kubectl_explain_tells_what_the_models_tell(control_plane: ControlPlane) -> None:
    told = control_plane.kubectl("explain", "virtualmachine.spec.powerOffTimeoutSeconds")
    assert "How long the guest may take to shut down, in seconds." in " ".join(told.split())


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_samples_are_valid(path: Path, place: Place, made: list[Object]) -> None:
    for sample in yaml_documents(path.read_text(encoding="utf-8")):
        model = ALL_KINDS.get(sample["kind"])
        if model is None:
            assert sample["kind"] == "Secret"
            continue
        sample["metadata"].pop("namespace", None)
        applied = place.kube.apply(sample, place.where(model))
        if not model.resource.namespaced:
            made.append(applied)
        assert model.from_api(sample).spec  # type: ignore[attr-defined] # each kind declares it


def test_there_are_samples() -> None:
    assert {path.stem for path in SAMPLES} >= {"vsphere", "simulated", "virtualmachine"}


@pytest.fixture
def protection(kube: Kube) -> Iterator[None]:
    """The policy as shipped, for one test."""
    text = (ROOT / "config/admission/deletion-protection.yaml").read_text(encoding="utf-8")
    objects = kube.apply_yaml(text)
    yield
    for obj in reversed(objects):
        kube.delete(obj["kind"], obj["metadata"]["name"])


@pytest.mark.usefixtures("protection")
def test_a_protected_virtual_machine_cannot_be_deleted(
    control_plane: ControlPlane, place: Place
) -> None:
    kind, kube = ALL_KINDS["VirtualMachine"], place.kube
    guarded = place.create(kind, changed(minimal(kind, "db"), {"spec.deletionProtection": True}))
    place.create(kind, minimal(kind, "web"))

    def refusal() -> str:
        try:
            arguments = ("delete", "vm", "db", "-n", place.namespace, "--dry-run=server")
            control_plane.kubectl(*arguments)
        except KubectlError as error:
            return str(error)
        return ""

    # A policy takes a moment to be in force; a dry run changes nothing meanwhile.
    told = wait_until(refusal, 30, "the policy to be in force")
    assert f"VirtualMachine {place.namespace}/db is protected" in told
    assert "set spec.deletionProtection to false first" in told
    with pytest.raises(KubeError, match="is protected"):
        kube.delete_all("VirtualMachine", place.namespace)
    kube.delete("VirtualMachine", "web", place.namespace, missing_ok=True)
    kube.replace(changed(guarded, {"spec.deletionProtection": False}))
    kube.delete("VirtualMachine", "db", place.namespace)
    assert kube.list("VirtualMachine", place.namespace) == []
