"""What the command says and refuses, without a cluster."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from banlieue.cli import main
from banlieue.sdk.provider.classes import default_class
from banlieue.sdk.registry import load_backend
from test.kit.yaml_text import yaml_documents


@pytest.fixture
def runner() -> CliRunner:
    if not main.cli.commands:
        main._register()
    return CliRunner()


@pytest.mark.parametrize(
    "command",
    [
        "controller",
        "operator",
        "provider",
        "dev",
        "crds",
        "recover",
        "schedule",
        "adopt",
        "bootstrap",
    ],
)
def test_every_command_explains_itself(runner: CliRunner, command: str) -> None:
    answer = runner.invoke(main.cli, [command, "--help"])
    assert answer.exit_code == 0
    assert len(answer.output.splitlines()) > 5
    assert "\\b" not in answer.output
    assert command in runner.invoke(main.cli, ["--help"]).output


def test_an_unknown_backend_is_refused_with_those_there_are(runner: CliRunner) -> None:
    answer = runner.invoke(main.cli, ["provider", "xen"])
    assert answer.exit_code == 2
    assert "xen" in answer.output
    assert "simulated" in answer.output
    assert "vsphere" in answer.output


def test_a_provider_is_named_with_its_namespace(runner: CliRunner) -> None:
    answer = runner.invoke(main.cli, ["provider", "simulated", "--provider", "prod"])
    assert answer.exit_code == 2
    assert "namespace/name" in answer.output


def test_recover_wants_to_be_told_what(runner: CliRunner) -> None:
    answer = runner.invoke(main.cli, ["recover"])
    assert answer.exit_code == 2
    assert "--confirm" in answer.output


def test_crds_are_those_of_the_chosen_backends(runner: CliRunner) -> None:
    answer = runner.invoke(main.cli, ["crds", "--backend", "simulated"])
    kinds = {document["spec"]["names"]["kind"] for document in yaml_documents(answer.output)}
    assert {"VirtualMachine", "Provider", "SimulatedMachine"} <= kinds
    assert "VSphereMachine" not in kinds


def test_a_default_class_names_the_kinds_of_its_backend() -> None:
    made = default_class(load_backend("vsphere")).to_api()
    assert made["metadata"]["name"] == "vsphere"
    assert made["spec"]["machine"]["kind"] == "VSphereMachine"
    assert made["spec"]["cluster"]["kind"] == "VSphereCluster"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        ("banlieue.controller.app", ("pyVmomi", "banlieue.providers")),
        ("banlieue.operator.app", ("pyVmomi", "banlieue.providers", "banlieue.controller")),
        ("banlieue.providers.vsphere.backend", ("pyVmomi", "kopf", "kubernetes")),
        ("banlieue.cli.main", ("pyVmomi", "kopf", "kubernetes", "banlieue.controller")),
    ],
)
def test_a_role_imports_only_what_it_needs(imported: str, absent: tuple[str, ...]) -> None:
    script = f"import sys, {imported}; print('\\n'.join(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert [name for name in loaded if name.startswith(absent)] == []


@pytest.mark.parametrize(
    "command",
    [["operator"], ["controller"], ["provider", "vsphere"], ["grant", "-n", "team-a"]],
    ids=lambda it: it[0],
)
def test_what_asks_no_cluster_compares_with_none(runner: CliRunner, command: list[str]) -> None:
    result = runner.invoke(main.cli, ["bootstrap", *command, "--dry-run", "--diff"])
    assert result.exit_code == 2
    assert "use one of them" in result.stderr
    assert result.stdout == ""


def test_lease_times_that_cannot_be_kept_are_refused_by_name(runner: CliRunner) -> None:
    answer = runner.invoke(main.cli, ["controller", "--leader-elect-renew-deadline", "90"])
    assert answer.exit_code == 2
    assert "--leader-elect-lease-duration must be longer than" in answer.output
    assert "--leader-elect-renew-deadline" in answer.output
