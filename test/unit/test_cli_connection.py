"""What commands say when there is no way to the cluster: one sentence, and nothing secret in it."""

import socket
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from banlieue.cli import main
from banlieue.sdk.runtime.connection import Connection, NoConnectionError

SECRET = "c2VjcmV0LWtleQ=="

COMMANDS = [
    (["recover", "--confirm"], 1),
    (["bootstrap", "operator"], 1),
    (["bootstrap", "grant", "-n", "team-a", "--diff"], 2),
    (["adopt", "plan", "--provider", "a/b", "-n", "team-a"], 2),
]
each_command = pytest.mark.parametrize(("command", "code"), COMMANDS)


def kubeconfig(server: str = "https://127.0.0.1:1", **user: str) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {"server": server}}],
            "users": [{"name": "it", "user": user}],
        }
    )


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    if not main.cli.commands:
        main._register()
    return CliRunner()


NO_KUBECONFIGS = [
    "garbage",
    "",
    f"a: [ {SECRET}",
    f"- {SECRET}",
    "apiVersion: v1\nclusters: 1\ncontexts: 2\nusers: 3\ncurrent-context: it\n",
    kubeconfig(**{"client-certificate-data": SECRET, "client-key-data": SECRET}),
]


@pytest.mark.parametrize("text", NO_KUBECONFIGS)
async def test_a_file_that_is_no_kubeconfig_is_named_and_not_quoted(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(NoConnectionError) as told:
        await Connection(str(file)).load()
    assert str(file) in str(told.value)
    assert SECRET not in str(told.value)
    assert "\n" not in str(told.value)


async def test_a_kubeconfig_that_was_spoilt_meanwhile_is_told_at_the_reload(
    tmp_path: Path,
) -> None:
    file = tmp_path / "config"
    file.write_text(kubeconfig(token="x"))
    connection = Connection(str(file))
    await connection.load()
    file.write_text(f"a: [ {SECRET}")
    with pytest.raises(NoConnectionError, match="could not be read again") as told:
        await connection.reload()
    assert SECRET not in str(told.value)


@each_command
def test_a_missing_kubeconfig_is_said(
    runner: CliRunner, tmp_path: Path, command: list[str], code: int
) -> None:
    missing = tmp_path / "none"
    answer = runner.invoke(main.cli, [*command, "--kubeconfig", str(missing)])
    assert answer.exit_code == code
    assert answer.stderr.splitlines() == [
        (
            f"Error: no usable Kubernetes configuration: {missing} does not exist; "
            "name a kubeconfig by --kubeconfig or $KUBECONFIG"
        )
    ]


@each_command
def test_an_unknown_context_is_said(
    runner: CliRunner, tmp_path: Path, command: list[str], code: int
) -> None:
    file = tmp_path / "config"
    file.write_text(kubeconfig())
    answer = runner.invoke(main.cli, [*command, "--kubeconfig", str(file), "--context", "other"])
    assert answer.exit_code == code
    assert "a context that is in it" in answer.stderr


@each_command
def test_a_server_that_does_not_answer_is_named(
    runner: CliRunner, tmp_path: Path, command: list[str], code: int
) -> None:
    file = tmp_path / "config"
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{nobody.getsockname()[1]}"
        file.write_text(kubeconfig(server))
        answer = runner.invoke(main.cli, [*command, "--kubeconfig", str(file)])
    assert answer.exit_code == code, answer.output
    assert f"Error: the cluster cannot be read: {server} does not answer (" in answer.stderr
    assert "check the server and context of the kubeconfig" in answer.stderr


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["bootstrap", "grant", "-n", "a", "--secret", "Ü", "--dry-run"], "no name of a Secret"),
        (["bootstrap", "operator", "--version", "", "--dry-run"], "is empty"),
        (["bootstrap", "operator", "--registry", "", "--dry-run"], "is empty"),
        (["adopt", "plan", "--provider", "A B/cd", "-n", "a"], "no name of a namespace"),
        (["adopt", "plan", "--provider", "a/c d", "-n", "a"], "no name of a Provider"),
        (["adopt", "plan", "--provider", "a/b", "-n", "X Y"], "no name of a namespace"),
        (["recover", "--confirm", "--id", "Ü ü"], "no id of an installation"),
        (["recover", "--confirm", "--id", "../x"], "no id of an installation"),
    ],
)
def test_what_cannot_be_is_refused_before_the_cluster_is_asked(
    runner: CliRunner, command: list[str], told: str
) -> None:
    answer = runner.invoke(main.cli, command)
    assert answer.exit_code == 2
    assert told in " ".join(answer.stderr.replace("│", "").split())


def test_a_grant_to_a_backend_that_is_not_ours_is_noted(runner: CliRunner) -> None:
    command = ["bootstrap", "grant", "-n", "team-a", "--provider", "foo", "--dry-run"]
    answer = runner.invoke(main.cli, command)
    assert answer.exit_code == 0
    assert "note: banlieue brings no backend foo" in answer.stderr


@pytest.mark.parametrize(
    "command", [["schedule"], ["recover"], ["adopt", "plan"], ["bootstrap", "operator"]]
)
def test_where_the_kubeconfig_comes_from_is_in_the_help(
    runner: CliRunner, command: list[str]
) -> None:
    answer = runner.invoke(main.cli, [*command, "--help"])
    assert "$KUBECONFIG, else ~/.kube/config" in " ".join(answer.output.split())
