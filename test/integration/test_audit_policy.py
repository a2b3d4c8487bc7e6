"""The audit policy and the alert that config/audit ships, on an API server that runs with them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from test.kit.controlplane import ControlPlane
from test.kit.kube import KubeError
from test.kit.stack import ROOT, Object, Stack
from test.kit.waiting import wait_until
from test.kit.walled import TENANT, Walled, binding, secret, subject, walled
from test.kit.yaml_text import yaml_documents

pytestmark = pytest.mark.slow

AUDIT = ROOT / "config" / "audit"


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    flags = {"audit-policy-file": str(AUDIT / "policy-rules.yaml")}
    with ControlPlane(tmp_path_factory.mktemp("audited"), apiserver_flags=flags) as plane:
        yield plane


def events(plane: ControlPlane, resource: str) -> list[Object]:
    lines = (plane.directory / "audit.log").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [it for it in found if it["objectRef"].get("resource") == resource]


def operator_alert(event: Object) -> bool:
    """What the log alert of the shipped file asks, of one event."""
    (rules,) = [
        yaml.safe_load(it["data"]["alerts.yaml"])
        for it in yaml_documents((AUDIT / "alerts.yaml").read_text(encoding="utf-8"))
        if it["kind"] == "ConfigMap"
    ]
    query = rules["groups"][0]["rules"][0]["expr"]
    given: dict[str, Any] = {
        "user_username": event["user"]["username"],
        "objectRef_resource": event["objectRef"]["resource"],
        "verb": event["verb"],
        "requestObject_roleRef_name": (event.get("requestObject") or {})
        .get("roleRef", {})
        .get("name", ""),
    }
    asked = re.findall(r'\| (\w+)(=~|!~)"([^"]*)"', query)
    assert {name for name, _, _ in asked} == set(given)
    return all(
        bool(re.fullmatch(pattern, given[name])) == (how == "=~") for name, how, pattern in asked
    )


@pytest.mark.security("6.1", "6.2")
def test_what_the_operator_binds_is_kept_and_a_foreign_role_is_told(
    audited: ControlPlane, tmp_path: Path
) -> None:
    with walled(audited, tmp_path) as walls:
        me = walls.almighty("banlieue-operator")
        it = subject(walls.namespace, "banlieue-provider-simulated-mine")
        good = binding(
            "", "banlieue-provider-x", "banlieue-provider-simulated", it, kind="ClusterRole"
        )
        bad = binding("", "banlieue-provider-y", "cluster-admin", it, kind="ClusterRole")
        me.create(good)
        with pytest.raises(KubeError, match="may bind roles banlieue-provider-"):
            me.create(bad)
        me.delete("clusterrolebindings", "banlieue-provider-x")
        _check_events(audited)
        _check_metric(walls)


def _check_events(plane: ControlPlane) -> None:
    made = [it for it in events(plane, "clusterrolebindings") if it["verb"] == "create"]
    said = {it["requestObject"]["roleRef"]["name"]: it for it in made}
    assert said.keys() == {"banlieue-provider-simulated", "cluster-admin"}
    assert not operator_alert(said["banlieue-provider-simulated"])
    assert operator_alert(said["cluster-admin"])
    refusal = said["cluster-admin"]["responseStatus"]
    assert refusal["code"] == 403
    assert "may bind roles banlieue-provider-*" in refusal["message"]


def _check_metric(walls: Walled) -> None:
    (rule,) = [
        it
        for it in yaml_documents((AUDIT / "alerts.yaml").read_text(encoding="utf-8"))
        if it["kind"] == "PrometheusRule"
    ]
    query = rule["spec"]["groups"][0]["rules"][0]["expr"]
    metric, pattern = re.findall(r'increase\((\w+)\{\s*policy=~"([^"]*)"', query)[0]
    told = walls.stack.control_plane.kubectl("get", "--raw", "/metrics")
    refused = [
        line
        for line in told.splitlines()
        if line.startswith(metric) and 'enforcement_action="deny"' in line
    ]
    policies = {re.findall(r'policy="([^"]*)"', line)[0] for line in refused}
    assert f"{walls.namespace}-operator" in policies
    assert re.fullmatch(pattern, f"{walls.namespace}-operator")
    assert all(float(line.rpartition(" ")[2]) > 0 for line in refused)


@pytest.mark.security("6.1")
def test_what_is_in_a_secret_is_never_kept(audited: ControlPlane, tmp_path: Path) -> None:
    with walled(audited, tmp_path) as walls:
        provider = walls.almighty("banlieue-provider-simulated-mine")
        provider.get("secrets", "mine", TENANT)
        with pytest.raises(KubeError):
            provider.create(secret(TENANT, "new", planted="planted-in-a-request"))
        wait_until(lambda: events(audited, "secrets"), 5, "the log")
        kept = events(audited, "secrets")
        assert {it["level"] for it in kept} == {"Metadata"}
        assert "planted" not in json.dumps(kept)


def test_the_rest_of_the_cluster_is_not_kept(audited: ControlPlane, tmp_path: Path) -> None:
    with Stack(audited, tmp_path):
        audited.kube.create(secret("default", "quiet", x="y"))
        audited.kube.delete("secrets", "quiet", "default")
    assert not [
        it for it in events(audited, "secrets") if it["objectRef"]["namespace"] == "default"
    ]
