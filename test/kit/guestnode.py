"""What kubelet and kubeadm of a guest write to the API of their cluster."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from test.kit.kubeadmseed import Kubeadm
from test.kit.vcsim_values import Machine

Object = dict[str, Any]

SYSTEM: Final = "kube-system"
CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
STATIC: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
ETCD: Final = "etcd.inmemory.infrastructure.cluster.x-k8s.io"
"""What the in-memory etcd calls its annotations by."""

_CALM: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")


def now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(told: Kubeadm, machine: Machine, version: str, provider_id: str) -> Object:
    """The Node a kubelet registers; without a provider ID when that is empty."""
    taints = [dict(it) for it in told.taints]
    labels = {"kubernetes.io/hostname": told.node, "kubernetes.io/os": "linux"}
    if told.control_plane:
        labels[CONTROL_PLANE] = ""
        if not any(it.get("key") == CONTROL_PLANE for it in taints):
            taints.append({"key": CONTROL_PLANE, "effect": "NoSchedule"})
    spec: Object = {"taints": taints} if taints else {}
    if provider_id:
        spec["providerID"] = provider_id
    addresses = [{"type": "Hostname", "address": told.node}]
    if machine.address:
        addresses.append({"type": "InternalIP", "address": machine.address})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        # The in-memory server gives none, and whoever writes to a Node asks whether it is the same.
        "metadata": {"name": told.node, "labels": labels, "uid": str(uuid4())},
        "spec": spec,
        "status": {
            "addresses": addresses,
            "conditions": conditions("True"),
            "nodeInfo": {
                **dict.fromkeys(
                    ("bootID", "containerRuntimeVersion", "kernelVersion", "osImage"), "test"
                ),
                "architecture": "amd64",
                "kubeProxyVersion": version,
                "kubeletVersion": version,
                "machineID": machine.uuid.replace("-", ""),
                "operatingSystem": "linux",
                "systemUUID": machine.uuid,
            },
        },
    }


def conditions(ready: str) -> list[Object]:
    """Conditions of a Node whose kubelet reports (`True`) or is silent (`Unknown`)."""
    calm = "False" if ready == "True" else "Unknown"
    reason = "KubeletReady" if ready == "True" else "NodeStatusUnknown"
    wanted = {"Ready": ready, **dict.fromkeys(_CALM, calm)}
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "",
            "lastTransitionTime": now(),
            "lastHeartbeatTime": now(),
        }
        for kind, status in wanted.items()
    ]


def static_pod(component: str, name: str, annotations: Mapping[str, str]) -> Object:
    """The mirror of a static pod that runs."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{component}-{name}",
            "namespace": SYSTEM,
            "labels": {"component": component, "tier": "control-plane"},
            # Drains leave mirrors alone.
            "annotations": {"kubernetes.io/config.mirror": "test", **annotations},
        },
        "spec": {"nodeName": name, "containers": [{"name": component, "image": component}]},
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": now()},
            ],
        },
    }


def etcd_annotations(members: list[Object]) -> dict[str, str]:
    """Whom a new member of etcd is to the others; the first one leads."""
    known = [it["metadata"].get("annotations") or {} for it in members]
    known = [it for it in known if f"{ETCD}/member-removed" not in it]
    taken = {it[f"{ETCD}/member-id"] for it in known}
    chosen = random.SystemRandom()
    mine = next(it for it in iter(lambda: str(chosen.randrange(1, 2**31)), "") if it not in taken)
    if known:
        return {
            f"{ETCD}/cluster-id": known[0][f"{ETCD}/cluster-id"],
            f"{ETCD}/member-id": mine,
        }
    return {
        f"{ETCD}/cluster-id": str(chosen.randrange(1, 2**31)),
        f"{ETCD}/member-id": mine,
        f"{ETCD}/leader-from": now(),
    }


def leads(member: Object, members: list[Object]) -> bool:
    """Whether a member of etcd is the leader: who became it last."""

    def since(it: Object) -> str:
        return str((it["metadata"].get("annotations") or {}).get(f"{ETCD}/leader-from", ""))

    return bool(since(member)) and since(member) == max(since(it) for it in members)
