"""The CRDs are structural, bounded, explained, and exactly what is stored in the tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import Field

from banlieue.api import names
from banlieue.api.crd.render import crd, crds, to_yaml
from banlieue.api.crd.schema import UnsupportedSchemaError, structural_schema
from banlieue.api.kinds import KINDS
from banlieue.api.markers import TEMPLATE, VALIDATIONS, Rule
from banlieue.api.meta import Model, Resource, ResourceObject
from banlieue.providers.vsphere.models import KINDS as VSPHERE_KINDS
from banlieue.providers.vsphere.models import VSphereMachine, VSphereMachineTemplate
from banlieue.sdk.simulated.models import KINDS as SIMULATED_KINDS
from hack import generate

INFRASTRUCTURE_KINDS = (*VSPHERE_KINDS, *SIMULATED_KINDS)
ALL_KINDS = (*KINDS, *INFRASTRUCTURE_KINDS)

every_kind = pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.__name__)
every_infrastructure_kind = pytest.mark.parametrize(
    "kind", INFRASTRUCTURE_KINDS, ids=lambda kind: kind.__name__
)


def walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from walk(inner, f"{path}.{name}")
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from walk(schema["additionalProperties"], f"{path}.*")


def fields(kind: type[ResourceObject]) -> dict[str, dict[str, Any]]:
    """Everything below spec and status; the root belongs to Kubernetes."""
    found = dict(walk(structural_schema(kind)))
    return {path: it for path, it in found.items() if path.startswith((".spec", ".status"))}


def test_the_files_in_the_tree_are_what_the_models_say() -> None:
    assert generate.differences(generate.generated()) == []


def test_the_check_notices_what_is_stale_missing_or_left_over(tmp_path: Path) -> None:
    files = generate.generated()
    generate.write(files, tmp_path)
    assert generate.differences(files, tmp_path) == []
    folder = tmp_path / generate.CRDS
    (folder / "banlieue.io_providers.yaml").write_text("edited", encoding="utf-8")
    (folder / "banlieue.io_vmclasses.yaml").unlink()
    (folder / "banlieue.io_ghosts.yaml").write_text("gone", encoding="utf-8")
    found = generate.differences(files, tmp_path)
    assert [line.split(":")[0].rsplit("_", 1)[1] for line in found] == [
        "vmclasses.yaml",
        "providers.yaml",
        "ghosts.yaml",
    ]
    generate.write(files, tmp_path)
    assert generate.differences(files, tmp_path) == []


def test_every_kind_of_the_tree_is_generated() -> None:
    assert set(generate.backend_kinds()) == set(INFRASTRUCTURE_KINDS)


def test_generating_twice_gives_the_same() -> None:
    assert [to_yaml(it) for it in crds(ALL_KINDS)] == [to_yaml(it) for it in crds(ALL_KINDS)]


@every_kind
def test_everything_is_bounded(kind: type[ResourceObject]) -> None:
    def unbounded(schema: dict[str, Any]) -> bool:
        if schema.get("x-kubernetes-int-or-string"):
            return "maxLength" not in schema or "maximum" not in schema
        match schema["type"]:
            case "string":
                return not {"maxLength", "enum", "format"} & set(schema)
            case "array":
                return "maxItems" not in schema
            case "object":
                return "additionalProperties" in schema and "maxProperties" not in schema
        return False

    assert [path for path, schema in fields(kind).items() if unbounded(schema)] == []


@every_kind
def test_every_field_is_explained(kind: type[ResourceObject]) -> None:
    unexplained = [
        path
        for path, schema in fields(kind).items()
        if not path.endswith(("[]", "*")) and not schema.get("description", "").endswith((".", "…"))
    ]
    assert unexplained == []


@every_kind
def test_lists_say_how_they_merge(kind: type[ResourceObject]) -> None:
    for path, schema in fields(kind).items():
        if schema.get("type") != "array":
            continue
        match schema["x-kubernetes-list-type"]:
            case "map":
                items = schema["items"]
                assert set(schema["x-kubernetes-list-map-keys"]) <= set(items["required"]), path
            case "set":
                assert "properties" not in schema["items"], path
            case other:
                assert other == "atomic", path


@every_kind
def test_conditions_and_named_lists_merge_by_their_keys(kind: type[ResourceObject]) -> None:
    for path, schema in fields(kind).items():
        name, objects = path.rsplit(".", 1)[-1], "properties" in schema.get("items", {})
        named = ("conditions", "disks", "failureDomains", "networkInterfaces", "interfaces")
        if name in named and objects:
            assert schema["x-kubernetes-list-type"] == "map", path


@every_kind
def test_status_has_no_defaults(kind: type[ResourceObject]) -> None:
    status = {path for path, it in fields(kind).items() if "default" in it and "status" in path}
    assert status == set()


@every_infrastructure_kind
def test_infrastructure_kinds_have_no_defaults_at_all(kind: type[ResourceObject]) -> None:
    assert {path for path, schema in fields(kind).items() if "default" in schema} == set()


def test_what_is_computed_when_absent_has_no_default() -> None:
    found = fields(next(kind for kind in KINDS if kind.__name__ == "VirtualMachine"))
    for computed in (".spec.deletionPolicy", ".spec.readinessGates", ".spec.hostname"):
        assert "default" not in found[computed]


@every_kind
def test_defaults_are_those_of_the_models(kind: type[ResourceObject]) -> None:
    spec = kind.model_fields["spec"].annotation
    assert isinstance(spec, type)
    assert issubclass(spec, Model)
    shown_fields = structural_schema(kind)["properties"]["spec"]["properties"]
    for name, info in spec.model_fields.items():
        rendered = shown_fields[info.alias or name]
        default = info.get_default(call_default_factory=True, validated_data={})
        shown = default.to_api() if isinstance(default, Model) else default
        if info.is_required() or shown in (None, [], {}):
            assert "default" not in rendered
        else:
            assert rendered["default"] == shown


@every_infrastructure_kind
def test_infrastructure_kinds_meet_the_contract(kind: type[ResourceObject]) -> None:
    rendered = crd(kind)
    labels = rendered["metadata"]["labels"]
    spelled = rendered["spec"]["names"]
    assert labels["cluster.x-k8s.io/v1beta2"] == "v1alpha1"
    assert "cluster.x-k8s.io/v1beta1" not in labels
    assert spelled["listKind"] == f"{kind.__name__}List"
    assert set(spelled["categories"]) == {"banlieue", "cluster-api"}
    assert rendered["spec"]["scope"] == "Namespaced"
    is_machine = kind.__name__.endswith("Machine")
    assert (labels.get("banlieue.io/machine") == "true") is is_machine
    assert ".spec.failureDomain" not in fields(kind)
    assert not {".status.ready", ".status.failureReason", ".status.v1beta2"} & set(fields(kind))


@pytest.mark.parametrize("backend", [VSPHERE_KINDS, SIMULATED_KINDS], ids=["vsphere", "simulated"])
def test_what_a_template_takes_a_machine_takes(backend: tuple[type[ResourceObject], ...]) -> None:
    by_suffix = {
        suffix: next(kind for kind in backend if kind.__name__.endswith(suffix))
        for suffix in ("Machine", "MachineTemplate", "Cluster", "ClusterTemplate")
    }
    for suffix in ("Machine", "Cluster"):
        ours = fields(by_suffix[suffix])
        start = ".spec.template.spec"
        for path, schema in fields(by_suffix[f"{suffix}Template"]).items():
            if path.startswith(f"{start}."):
                same = ours[f".spec{path.removeprefix(start)}"]
                for word in ("type", "required", "x-kubernetes-list-type", "enum", "maxLength"):
                    assert schema.get(word) == same.get(word), (path, word)


def test_templates_have_no_transition_rules() -> None:
    rules = [
        rule["rule"]
        for schema in fields(VSphereMachineTemplate).values()
        for rule in schema.get(VALIDATIONS, ())
    ]
    assert rules
    assert not [rule for rule in rules if "oldSelf" in rule]


@every_kind
def test_rules_name_the_field_and_the_remedy(kind: type[ResourceObject]) -> None:
    for path, schema in walk(structural_schema(kind)):
        for rule in schema.get(VALIDATIONS, ()):
            message, at = rule["message"], rule.get("fieldPath", "")
            field = (at or path).removesuffix("[]").rsplit(".", 1)[-1]
            assert field in message or not field, (path, message)
            assert ": " in message or " left out " in message, message
            assert len(message) < 200


@every_kind
def test_rules_that_hold_a_field_once_set_stand_at_the_root(kind: type[ResourceObject]) -> None:
    for path, schema in walk(structural_schema(kind)):
        for rule in schema.get(VALIDATIONS, ()):
            if "oldSelf" in rule["rule"]:
                assert path == "" or path.endswith("[]"), rule


@every_kind
def test_every_column_shows_a_field_there_is(kind: type[ResourceObject]) -> None:
    known = fields(kind)
    for column in crd(kind)["spec"]["versions"][0]["additionalPrinterColumns"]:
        path = re.sub(r'\[\?\(@\.type=="\w+"\)\]', "[]", column["jsonPath"])
        if not path.startswith(".metadata."):
            assert known[path]["type"] == column["type"], column


def test_columns_are_those_users_know() -> None:
    found = {
        kind.__name__: [
            (column["name"], column.get("priority", 0))
            for column in crd(kind)["spec"]["versions"][0]["additionalPrinterColumns"]
        ]
        for kind in KINDS
    }
    assert [name for name, _ in found["VirtualMachine"]] == (
        [
            "Class",
            "Image",
            "Provider",
            "Power",
            "IP",
            "Ready",
            "Reason",
            "Age",
            "FailureDomain",
            "ProviderID",
            "Host",
        ]
    )
    assert [name for name, wide in found["VirtualMachine"] if wide] == (
        ["FailureDomain", "ProviderID", "Host"]
    )
    assert [name for name, wide in found["Provider"] if not wide] == (
        ["Class", "Ready", "Version", "FDs", "VMs", "Age"]
    )
    assert [name for name, _ in found["ProviderClass"]] == [
        "Backend",
        "Machine",
        "Providers",
        "Ready",
        "Tag",
        "Paused",
        "Age",
        "Reason",
    ]
    assert [name for name, wide in found["VMImage"] if not wide] == [
        "OS",
        "Version",
        "Arch",
        "Ready",
        "Progress",
        "Age",
    ]


def test_machines_can_be_selected_by_provider_and_owner() -> None:
    version = crd(VSphereMachine)["spec"]["versions"][0]
    assert [field["jsonPath"] for field in version["selectableFields"]] == [
        f".{names.FIELD_PROVIDER_NAMESPACE}",
        f".{names.FIELD_PROVIDER_NAME}",
        f".{names.FIELD_VIRTUAL_MACHINE_NAME}",
    ]


class Colour(StrEnum):
    RED = "red"


class Inner(Model):
    """Inner words."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule("self.size >= oldSelf.size", "size must grow: raise it", ".size"),
        Rule("self.size > 0", "size must be positive: raise it", ".size"),
    )
    size: int = Field(default=3, ge=0, le=9, description="How big.")


class ToySpec(Model):
    colour: Colour | None = Field(default=None, description="Outer\n    words.")
    inner: Inner = Field(default_factory=Inner, description="Outer words win.")
    template: Annotated[Inner, TEMPLATE] | None = Field(default=None, description="A template.")
    value: int | str = Field(description="Either.")
    words: Annotated[
        list[str], Rule("self.all(w, w != '')", "words must not be empty: fill them")
    ] = Field(default_factory=list)


class Toy(ResourceObject):
    """A toy.

    With a second
    paragraph.
    """

    resource: ClassVar[Resource] = Resource("g.io", "v1", "Toy", "toys")
    spec: ToySpec


def test_the_generator_renders_each_construct() -> None:
    schema = structural_schema(Toy)
    spec = schema["properties"]["spec"]
    properties = spec["properties"]
    assert schema["description"] == "A toy.\n\nWith a second paragraph."
    assert spec["required"] == ["value"]
    assert properties["colour"] == {
        "description": "Outer words.",
        "type": "string",
        "enum": ["red"],
    }
    assert properties["value"] == {
        "description": "Either.",
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    }
    assert properties["inner"]["default"] == {"size": 3}
    assert properties["inner"]["description"] == "Outer words win."
    assert properties["inner"]["properties"]["size"]["default"] == 3
    assert len(properties["inner"][VALIDATIONS]) == 2
    assert [rule["rule"] for rule in properties["template"][VALIDATIONS]] == ["self.size > 0"]
    assert properties["words"]["x-kubernetes-list-type"] == "atomic"
    assert properties["words"][VALIDATIONS][0]["message"].startswith("words must")
    assert crd(Toy)["spec"]["versions"][0].get("subresources") is None


@pytest.mark.parametrize(
    "annotation", [float, Any, dict[str, Any], list[Any], int | bool, int | str | bool], ids=str
)
def test_what_the_api_server_cannot_check_is_not_weakened_in_silence(annotation: Any) -> None:  # noqa: ANN401 - a type
    class Spec(Model):
        odd: annotation

    class Odd(ResourceObject):
        """Odd."""

        resource: ClassVar[Resource] = Resource("g.io", "v1", "Odd", "odds")
        spec: Spec

    with pytest.raises(UnsupportedSchemaError, match=r"Odd\.spec\.odd"):
        structural_schema(Odd)
