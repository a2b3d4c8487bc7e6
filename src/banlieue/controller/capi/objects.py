"""What the objects of Cluster API say, as far as a machine of ours depends on it. Pure.

They are read as plain data: another version of Cluster API may have fields we do not know.
"""

from collections.abc import Mapping
from typing import Any

from banlieue.api import names
from banlieue.api.infrastructure.machine import Machine
from banlieue.api.meta import OwnerReference, Resource
from banlieue.sdk.identity import OWNER_MACHINE
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.machine.scope import controller_owner


def owner_reference(machine: Machine) -> OwnerReference | None:
    """The Machine that controls this object; until there is one, nothing is written to it."""
    reference = controller_owner(machine)
    return reference if reference is not None and reference.kind == OWNER_MACHINE else None


def is_stamped(machine: Machine) -> bool:
    """Whether the machine has its Provider, from where on its status is the provider's."""
    return machine.spec.provider_ref is not None


def names_machine(owner: Obj, kind: Resource, key: Key) -> bool:
    """Whether a Machine's infrastructureRef names this very object."""
    reference = _spec(owner).get("infrastructureRef") or {}
    return (
        reference.get("apiGroup") == kind.group
        and reference.get("kind") == kind.kind
        and reference.get("name") == key.name
        and Key.of(owner).namespace == key.namespace
    )


def is_leaving(obj: Obj) -> bool:
    """Whether an object is being deleted."""
    return bool((obj.get("metadata") or {}).get("deletionTimestamp"))


def cluster_name(owner: Obj) -> str:
    """Name of the Cluster a Machine belongs to."""
    labels = (owner.get("metadata") or {}).get("labels") or {}
    return str(_spec(owner).get("clusterName") or labels.get(names.CAPI_LABEL_CLUSTER_NAME) or "")


def is_control_plane(owner: Obj) -> bool:
    """Whether a Machine is one of the control plane; the label's presence says so."""
    labels = (owner.get("metadata") or {}).get("labels") or {}
    return names.CAPI_LABEL_CONTROL_PLANE in labels


def data_secret(owner: Obj) -> str:
    """Name of the Secret with a Machine's bootstrap data, empty while there is none."""
    return str((_spec(owner).get("bootstrap") or {}).get("dataSecretName") or "")


def failure_domain(owner: Obj) -> str:
    """The failure domain a Machine asks for, empty when it leaves that to us."""
    return str(_spec(owner).get("failureDomain") or "")


def is_initialized(cluster: Obj, what: str) -> bool:
    """Whether `status.initialization` of a Cluster says that something was done."""
    done = ((cluster.get("status") or {}).get("initialization") or {}).get(what)
    return bool(done)


def infrastructure_reference(cluster: Obj) -> Mapping[str, Any]:
    """The reference of a Cluster to its InfraCluster, empty when it has none."""
    found: Mapping[str, Any] = _spec(cluster).get("infrastructureRef") or {}
    return found


def _spec(obj: Obj) -> Mapping[str, Any]:
    found: Mapping[str, Any] = obj.get("spec") or {}
    return found
