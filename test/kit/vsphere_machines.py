"""Machine objects of vSphere as the controller makes them."""

from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.providers.vsphere.models import VSPHERE_MACHINES
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.testing.memory_api import MemoryApi


def put_machine(api: MemoryApi, key: Key, provider: Key, domain: str, **spec: object) -> Obj:
    """Store a small machine, and the VirtualMachine that refers to it.

    Args:
        api: where they are stored.
        key: of both objects.
        provider: the Provider it is placed on.
        domain: the failure domain it is placed in.
        **spec: more fields of the machine's spec, or others.
    """
    kind = VSPHERE_MACHINES
    meta = {"namespace": key.namespace, "name": key.name}
    reference = {"apiGroup": kind.group, "kind": kind.kind, **meta}
    owner = api.put(
        VIRTUAL_MACHINES,
        {
            "metadata": meta,
            "spec": {"imageRef": {"name": "ubuntu"}, "classRef": {"name": "small"}},
            "status": {"infrastructureRef": reference},
        },
    )
    uid = owner["metadata"]["uid"]
    owned = {
        "apiVersion": VIRTUAL_MACHINES.api_version,
        "kind": VIRTUAL_MACHINES.kind,
        "name": key.name,
        "uid": uid,
        "controller": True,
    }
    return api.put(
        kind,
        {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {**meta, "ownerReferences": [owned]},
            "spec": {
                "providerRef": {"name": provider.name, "namespace": provider.namespace},
                "placement": {"failureDomain": domain},
                "virtualMachineRef": {"name": key.name, "uid": uid},
                "imageRef": {"name": "ubuntu"},
                "cpus": 1,
                "memoryMiB": 512,
                "disks": [{"name": "root", "storageClass": "gold"}],
                "networkInterfaces": [{"name": "eth0", "networkClass": "prod"}],
                **spec,
            },
        },
    )
