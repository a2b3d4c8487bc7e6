from collections.abc import Callable
from pathlib import Path

import pytest

from hack.cluster.clusterapi import clusterctl as module
from hack.cluster.clusterapi.clusterctl import Clusterctl, ClusterctlError
from hack.cluster.clusterapi.repository import CONFIGURATION

KUBECONFIG = """
apiVersion: v1
clusters:
- name: local
  cluster: {server: 'https://10.88.254.2:6443'}
"""

Fake = Callable[[str], None]


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    return path


@pytest.fixture
def clusterctl(tmp_path: Path, kubeconfig: Path) -> Clusterctl:
    return Clusterctl(tmp_path / "repository", kubeconfig)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Puts a script in the place of clusterctl."""

    def install(script: str) -> None:
        path = tmp_path / "clusterctl"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(module, "find_tool", lambda _: path)

    return install


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    calls: list[tuple[str, ...]] = []

    def kubectl(_: Path, *arguments: str) -> str:
        calls.append(arguments)
        return ""

    monkeypatch.setattr(module, "kubectl", kubectl)
    return calls


def test_it_knows_the_cluster_and_the_repository(fake: Fake, clusterctl: Clusterctl) -> None:
    fake('printf "%s\\n" "$@" "$REPO"; echo done >&2')
    answer = clusterctl.run("upgrade", "plan")
    assert answer.output.splitlines() == [
        "upgrade",
        "plan",
        f"--config={CONFIGURATION}",
        f"--kubeconfig={clusterctl.kubeconfig}",
        str(clusterctl.repository),
    ]
    assert answer.messages == "done\n"


def test_a_command_without_a_cluster_names_none(fake: Fake, tmp_path: Path) -> None:
    fake('echo "$@"')
    assert "kubeconfig" not in Clusterctl(tmp_path).run("generate", "provider").output


def test_nothing_of_this_machine_reaches_it(
    fake: Fake, clusterctl: Clusterctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "planted")
    monkeypatch.setenv("CLUSTER_TOPOLOGY", "false")
    monkeypatch.setenv("KUBECONFIG", "/somewhere/else")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    fake("env")
    lines = clusterctl.run("version").output.splitlines()
    environment = dict(line.split("=", 1) for line in lines if "=" in line)
    assert {"GITHUB_TOKEN", "CLUSTER_TOPOLOGY", "KUBECONFIG", "https_proxy"}.isdisjoint(environment)
    assert environment["CLUSTERCTL_DISABLE_VERSIONCHECK"] == "true"
    assert environment["GOPROXY"] == "off"


def test_no_request_leaves_but_to_the_cluster(clusterctl: Clusterctl) -> None:
    environment = clusterctl.environment()
    assert environment["HTTPS_PROXY"].startswith("http://127.0.0.1:")
    assert environment["NO_PROXY"] == "10.88.254.2"


def test_hosts_of_any_form_are_left_out_of_the_proxy(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("clusters: [{cluster: {server: 'https://[fd00::1]:6443/prefix'}}]")
    assert Clusterctl(tmp_path, path).environment()["NO_PROXY"] == "fd00::1"


def test_variables_of_templates_are_passed_on(fake: Fake, tmp_path: Path) -> None:
    fake('echo "$VSPHERE_SERVER"')
    clusterctl = Clusterctl(tmp_path, variables={"VSPHERE_SERVER": "vc.example"})
    assert clusterctl.run("generate", "cluster").output == "vc.example\n"


def test_its_error_is_told(fake: Fake, clusterctl: Clusterctl) -> None:
    fake('echo "Error: no such provider" >&2; exit 1')
    with pytest.raises(ClusterctlError, match="clusterctl delete --all: Error: no such provider"):
        clusterctl.run("delete", "--all")


def test_an_endless_command_is_ended(fake: Fake, clusterctl: Clusterctl) -> None:
    fake("echo waiting >&2; exec tail -f /dev/null")
    with pytest.raises(ClusterctlError, match=r"no end after 0\.5 s; waiting"):
        clusterctl.run("init", timeout=0.5)


def test_init_waits_for_the_last_check_of_cert_manager(
    fake: Fake, clusterctl: Clusterctl, waits: list[tuple[str, ...]]
) -> None:
    fake('printf "%s\\n" "$@"')
    arguments = clusterctl.init().output.splitlines()
    assert waits == [("wait", "--for=delete", "namespace/cert-manager-test", "--timeout=60s")]
    assert arguments[:6] == [
        "init",
        "--core=cluster-api",
        "--bootstrap=kubeadm",
        "--control-plane=kubeadm",
        "--infrastructure=banlieue",
        "--wait-providers",
    ]


@pytest.mark.usefixtures("waits")
def test_init_takes_other_versions_or_no_infrastructure(fake: Fake, clusterctl: Clusterctl) -> None:
    fake('printf "%s\\n" "$@"')
    assert "--infrastructure=-" in clusterctl.init(infrastructure=()).output.splitlines()
    pinned = clusterctl.init(infrastructure=["banlieue:v0.1.1"]).output.splitlines()
    assert "--infrastructure=banlieue:v0.1.1" in pinned
