"""`banlieue schedule` against a real API server: the controller's answer, by reading alone."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from test.kit.stack import Object, condition, virtual_machine
from test.kit.watched import AtWork

pytestmark = pytest.mark.slow

READER: Final = "reader"
TENANT: Final = "tenant"
KINDS: Final = "namespaces,providers,providerclasses,vmclasses,vmimages,virtualmachines,configmaps"


def schedule(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: it for name, it in os.environ.items() if not name.startswith("KUBE")}
    return subprocess.run(
        [sys.executable, "-m", "banlieue", "schedule", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "KUBECONFIG": str(kubeconfig)},
        timeout=180,
    )


def placements(answer: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(answer.stdout)["placements"]
    return found


def allow_reading(at_work: AtWork) -> Path:
    """A user who may read what the scheduler looks at, and nothing else."""
    reading = ["get", "list"]
    rules = [
        {"apiGroups": ["banlieue.io"], "resources": ["*"], "verbs": reading},
        {"apiGroups": ["infrastructure.banlieue.io"], "resources": ["*"], "verbs": reading},
        {"apiGroups": [""], "resources": ["namespaces", "configmaps"], "verbs": reading},
    ]
    group = "rbac.authorization.k8s.io"
    kube = at_work.registered.kube
    meta = {"name": "schedule-reader"}
    kube.apply(
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": meta,
            "rules": rules,
        }
    )
    kube.apply(
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": meta["name"]},
            "subjects": [{"apiGroup": group, "kind": "User", "name": READER}],
        }
    )
    return at_work.registered.stack.control_plane.kubeconfig_for_user(READER)


def write(path: Path, *objects: Object) -> str:
    path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return str(path)


def giant_class(small: Object) -> Object:
    """The class of the backend's other tests, with more memory than any host has."""
    hardware = {**small["spec"]["hardware"], "memoryMiB": 32 * 1024 * 1024}
    return {
        "apiVersion": small["apiVersion"],
        "kind": small["kind"],
        "metadata": {"name": "giant"},
        "spec": {**small["spec"], "hardware": hardware},
    }


def unscheduled(obj: Object) -> bool:
    return condition(obj, "Scheduled")[0] == "False"


def said(obj: Object) -> tuple[str, str]:
    """Reason and message of the condition Scheduled."""
    found = next(it for it in obj["status"]["conditions"] if it["type"] == "Scheduled")
    return found["reason"], found["message"]


def test_what_is_foretold_happens_and_nothing_is_written(at_work: AtWork, tmp_path: Path) -> None:
    registered = at_work.registered
    plane = registered.stack.control_plane
    kubeconfig = allow_reading(at_work)
    registered.kube.apply(giant_class(registered.kube.get("vmclasses", "small")))
    fits = virtual_machine(registered.namespace, "fits")
    giant = virtual_machine(registered.namespace, "giant", classRef={"name": "giant"})
    since = plane.audit_position()
    answer = schedule(
        kubeconfig, "-f", write(tmp_path / "vm.yaml", fits, giant), "-o", "json", "--explain"
    )
    told, refused = placements(answer)
    assert plane.audit_writes(since, user=READER) == []
    assert told["placed"]
    assert {it["result"] for it in told["candidates"]} <= {"chosen", "fits", "rejected"}
    registered.kube.apply(fits)
    placed = registered.ready("fits")["status"]["scheduled"]
    assert told["failureDomain"] == placed["failureDomain"]
    assert told["provider"] == {
        "namespace": placed["providerNamespace"],
        "name": placed["providerName"],
    }
    registered.kube.apply(giant)
    if refused["placed"]:
        # Where the backend admits machines itself, only it can say no.
        assert answer.returncode == 0
    else:
        assert answer.returncode == 1
        real = registered.wait("giant", unscheduled, 30, "not placed")
        assert (refused["reason"], refused["message"]) == said(real)
    again = schedule(kubeconfig, "-f", write(tmp_path / "vm.yaml", fits))
    assert again.returncode == 0, again.stderr
    assert "stays in failure domain" in again.stdout
    registered.clear()


def test_files_tell_the_same_as_the_cluster_they_come_from(at_work: AtWork, tmp_path: Path) -> None:
    registered = at_work.registered
    kubeconfig = allow_reading(at_work)
    vm = write(tmp_path / "vm.yaml", virtual_machine(registered.namespace, "somewhere"))
    (tmp_path / "state").mkdir()
    kinds = f"{KINDS},{registered.plural}"
    dump = registered.stack.control_plane.kubectl("get", kinds, "-A", "-o", "yaml")
    (tmp_path / "state" / "all.yaml").write_text(dump, encoding="utf-8")
    options = ("-f", vm, "-o", "json", "--explain")
    live = schedule(kubeconfig, *options)
    files = schedule(kubeconfig, *options, "--from", str(tmp_path / "state"))
    assert live.returncode == files.returncode == 0, live.stderr + files.stderr
    assert placements(live) == placements(files)
    assert json.loads(files.stdout)["notes"] == json.loads(live.stdout)["notes"] == []


def test_who_may_not_read_providers_is_told_so(at_work: AtWork, tmp_path: Path) -> None:
    registered = at_work.registered
    kubeconfig = registered.stack.control_plane.kubeconfig_for_user(TENANT)
    vm = write(tmp_path / "vm.yaml", virtual_machine(registered.namespace, "somewhere"))
    answer = schedule(kubeconfig, "-f", vm)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert "you may not list providers" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_cluster_that_does_not_answer_is_told_so(at_work: AtWork, tmp_path: Path) -> None:
    registered = at_work.registered
    known = registered.stack.control_plane.kubeconfig.read_text(encoding="utf-8")
    away = tmp_path / "away.kubeconfig"
    away.write_text(known.replace(registered.stack.control_plane.url, "https://127.0.0.1:1"))
    vm = write(tmp_path / "vm.yaml", virtual_machine(registered.namespace, "somewhere"))
    answer = schedule(away, "-f", vm)
    assert answer.returncode == 2
    assert "the cluster cannot be read" in answer.stderr
    assert "Traceback" not in answer.stderr
