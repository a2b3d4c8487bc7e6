"""What an admin has set up before anything happens: classes, image, Providers, Secrets, Leases."""

import base64
from collections.abc import Mapping
from random import Random

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import (
    CRDS,
    LEASES,
    NAMESPACES,
    PROVIDER_CLASSES,
    PROVIDERS,
    SECRETS,
    VM_CLASSES,
    VM_IMAGES,
)
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.records import Latencies, State, default_state
from banlieue.sdk.simulated.world import PASSWORD, USERNAME, account
from banlieue.sdk.testing.memory_api import MemoryApi
from test.simulation.kinds import CLASSES as KINDS

NAMESPACE = "team-a"
SYSTEM = names.SYSTEM_NAMESPACE
CLUSTER_UID = "cluster-1"
FIXED = "10.9.0."
"""How the addresses begin that users give to their VMs."""
SUBNET = {"cidr": f"{FIXED}0/24", "gateway": f"{FIXED}1", "allowStatic": [f"{FIXED}0/24"]}
CLASSES = {"small": (1, 1024), "large": (2, 4096)}


def provider_key(name: str) -> Key:
    """Where a Provider lives."""
    return Key(SYSTEM, name)


def what_does_not_fit(_resource: Resource, obj: Obj) -> str:
    """What the API server would refuse: what an apply leaves of a task that others own, too."""
    task = (obj.get("status") or {}).get("task")
    return "status.task.operation: Required value" if task and "operation" not in task else ""


def set_up(api: MemoryApi, providers: Mapping[str, str]) -> None:
    """Store it all; `providers` are the names of Providers with those of their classes."""
    for name, uid in (("kube-system", CLUSTER_UID), (NAMESPACE, "ns-1"), (SYSTEM, "ns-2")):
        _put(api, NAMESPACES, {"metadata": {"name": name, "uid": uid}})
    for name, machine in KINDS.items():
        _put(api, CRDS, _definition(machine))
        _put(api, PROVIDER_CLASSES, _provider_class(name, machine))
    for name, (cpus, memory) in CLASSES.items():
        _put(api, VM_CLASSES, {"metadata": {"name": name}, "spec": _class(cpus, memory)})
    sources = [{"providerClass": it, "kind": "Template", "ref": "ubuntu-24.04"} for it in KINDS]
    spec = {"agent": "present", "sources": sources}
    _put(api, VM_IMAGES, {"metadata": {"name": "ubuntu"}, "spec": spec})
    for name, of_class in providers.items():
        add_provider(api, name, of_class)


def _provider_class(name: str, machine: Resource) -> Obj:
    return {
        "metadata": {"name": name},
        "spec": {
            "backend": name,
            "machine": {
                "apiGroup": machine.group,
                "version": machine.version,
                "kind": machine.kind,
            },
        },
    }


def add_provider(api: MemoryApi, name: str, of_class: str) -> None:
    """Store a Provider with its Secret and its Lease."""
    data = {"username": _text(USERNAME), "password": _text(PASSWORD)}
    meta = {"namespace": SYSTEM, "name": f"{name}-creds"}
    _put(api, SECRETS, {"metadata": meta, "data": data})
    stored = _put(
        api,
        PROVIDERS,
        {
            "metadata": {"namespace": SYSTEM, "name": name},
            "spec": {
                "providerClassRef": {"name": of_class},
                "connection": {
                    "endpoint": f"simulated://memory/{name}",
                    "credentialsRef": {"name": f"{name}-creds"},
                },
                "allowedNamespaces": {"from": "All"},
                "policy": {"adoption": {"allowedNamespaces": {"from": "All"}}},
                "capabilities": {
                    "storageClasses": [{"name": "fast", "target": {"pool": "fast"}}],
                    "networkClasses": [
                        {"name": "lan", "target": {"network": "lan"}, "subnets": [SUBNET]}
                    ],
                },
            },
        },
    )
    meta = {"namespace": SYSTEM, "name": stored["metadata"]["uid"]}
    _put(api, LEASES, {"metadata": meta, "spec": {}})


def virtual_machine(name: str, **spec: object) -> Obj:
    """A VirtualMachine as a user writes it."""
    return {
        "apiVersion": "banlieue.io/v1alpha1",
        "kind": "VirtualMachine",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"classRef": {"name": "small"}, "imageRef": {"name": "ubuntu"}, **spec},
    }


def fixed_interface(number: int) -> Obj:
    """The interface of a VM whose user chose its address."""
    ipam = {"family": "IPv4", "source": "static", "address": f"{FIXED}{number + 10}"}
    return {"name": "eth0", "ipam": [ipam]}


def backend_state(name: str, latencies: Latencies) -> State:
    """A small data centre that is as slow as it is told to be."""
    state = default_state(f"backend-{name}")
    state.accounts[USERNAME] = account(PASSWORD, Random(1))
    state.latencies = latencies
    return state


def _put(api: MemoryApi, resource: Resource, obj: Obj) -> Obj:
    typed = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
    return api.put(resource, typed)


def _class(cpus: int, memory: int) -> Obj:
    return {
        "hardware": {
            "cpus": cpus,
            "memoryMiB": memory,
            "disks": [{"name": "root", "sizeGiB": 20, "storageClass": "fast"}],
        },
        "network": {"interfaces": [{"name": "eth0", "networkClass": "lan"}]},
    }


def _definition(resource: Resource) -> Obj:
    return {
        "metadata": {
            "name": resource.crd_name,
            "labels": {names.LABEL_MACHINE_KIND: "true"},
        },
        "spec": {
            "group": resource.group,
            "names": {"kind": resource.kind, "plural": resource.plural},
            "versions": [{"name": resource.version, "served": True, "storage": True}],
        },
    }


def _text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()
