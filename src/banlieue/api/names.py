"""Every name that is visible in the API: groups, labels, annotations, finalizers, managers."""

from __future__ import annotations

import hashlib
from functools import lru_cache

GROUP = "banlieue.io"
"""API group of what users and platform admins write."""

INFRASTRUCTURE_GROUP = "infrastructure.banlieue.io"
"""API group of the machine and cluster kinds of our own backends."""

VERSION = "v1alpha1"

# Labels

LABEL_MACHINE_KIND = f"{GROUP}/machine"
"""On a CRD, value ``true``: a machine kind of some backend."""

LABEL_CLUSTER_KIND = f"{GROUP}/cluster"
"""On a CRD, value ``true``: a cluster kind of some backend."""

LABEL_CONTRACT = "cluster.x-k8s.io/v1beta2"
"""On a CRD: the versions that meet the Cluster API contract v1beta2."""

LABEL_IN_USE = f"{GROUP}/in-use"
"""On a namespace: it holds a Provider with machines and cannot be deleted."""

LABEL_OWNED_BY = f"{GROUP}/owned-by"
"""On an infrastructure machine: the VirtualMachine that made it, for people."""

LABEL_PROVIDER = f"{GROUP}/provider"
"""On an infrastructure machine: its Provider, for people; selection uses fields."""

LABEL_AGGREGATE_TO_CONTROLLER = f"{GROUP}/aggregate-to-controller"
"""On a ClusterRole: its rules are added to the controller's."""

LABEL_GRANT = f"{GROUP}/grant"
"""On a Role and its binding, value ``true``: a provider may read Secrets of machines to come."""

LABEL_AGGREGATE_TO_PROVIDER = f"{GROUP}/aggregate-to-provider"
"""On a ClusterRole: its rules are added to those of providers, of all (`any`) or of a backend."""

LABEL_AGGREGATE_TO_OPERATOR = f"{GROUP}/aggregate-to-operator"
"""On a ClusterRole: its rules are added to the operator's."""

LABEL_WORKLOAD_OF = f"{GROUP}/workload-of"
"""On all that the operator makes for a Provider: hash of the Provider's namespace and name."""

LABEL_NAME = "app.kubernetes.io/name"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_PART_OF = "app.kubernetes.io/part-of"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"

# Topology keys of anti-affinity that every failure domain has

TOPOLOGY_FAILURE_DOMAIN = f"{GROUP}/failure-domain"
TOPOLOGY_PROVIDER = f"{GROUP}/provider"
TOPOLOGY_HOST = f"{GROUP}/host"

# Annotations

ANNOTATION_FAILURE_DOMAINS = f"{GROUP}/failure-domains"
"""On a Provider: which failure domain name was given to which backend id."""

ANNOTATION_MIGRATE = f"{GROUP}/migrate"
"""On a VirtualMachine, value ``true``: go on with a move under migrationPolicy manual."""

ANNOTATION_ACCEPT_DATA_LOSS = f"{GROUP}/accept-data-disk-loss"
"""On a VirtualMachine, value ``true``: move although data disks stay behind."""

ANNOTATION_RELEASE_PREVIOUS = f"{GROUP}/release-previous"
"""On a VirtualMachine, value ``true``: destroy the machine a move left behind."""

ANNOTATION_RENEW_GRANT = f"{GROUP}/renew-grant"
"""On a VirtualMachine or Machine, a time: grant its user data for another day from then on."""

ANNOTATION_INTERFACE = f"{GROUP}/interface"
"""On an IPAddressClaim, by the controller: name of the interface the address is for."""

ANNOTATION_LEFT_WITH = f"{GROUP}/left-with"
"""On an IPAddressClaim, by the controller: the VirtualMachine whose VM was left on its backend."""

ANNOTATION_GRANT_OF = f"{GROUP}/grant-of"
"""On a grant: namespace and name of the Provider it is for."""

ANNOTATION_GRANT_NUMBER = f"{GROUP}/grant-number"
"""On a grant: which of the Provider's grants in the namespace it is."""

ANNOTATION_CONFIRMED_CLUSTER = f"{GROUP}/confirmed-cluster"
"""On ConfigMap banlieue-installation: uid of the cluster in which somebody confirmed it."""

ANNOTATION_WORKLOAD_OF = f"{GROUP}/workload-of-provider"
"""On all that the operator makes: namespace/name of the Provider; without it it is not ours."""

ANNOTATION_BACKEND = f"{GROUP}/backend"
"""On all that the operator makes: the backend it serves."""

ANNOTATION_DESIRED = f"{GROUP}/desired"
"""On all that the operator makes: hash of what it wanted when it wrote the object last."""

# Finalizers

FINALIZER_VIRTUAL_MACHINE = f"{GROUP}/virtualmachine"
"""On a VirtualMachine, by the controller: until its machine object is gone."""

FINALIZER_PROVIDER_IN_USE = f"{GROUP}/provider-in-use"
"""On a Provider, its Secrets and Lease, by the provider: until it has no machine."""

FINALIZER_PROVIDER_WORKLOAD = f"{GROUP}/provider-workload"
"""On a Provider, by the operator: until its workload is gone."""

FINALIZER_IMAGE_IN_USE = f"{GROUP}/image-in-use"
"""On a VMImage, by the controller: until nothing is or will be made from it any more."""

FINALIZER_IMAGE_COPIES = f"{GROUP}/image-copies"
"""On a VMImage that can be imported, by the controller: until the imported copies are gone.

Nothing is imported before it is there."""

FINALIZER_ADDRESSES = f"{GROUP}/addresses"
"""On a machine, by the controller: until its address claims are gone."""


def machine_finalizer(kind: str) -> str:
    """Name the finalizer a provider holds on its machines.

    Args:
        kind: machine kind, such as ``VSphereMachine``.

    Returns:
        ``vspheremachine.infrastructure.banlieue.io`` and the like.
    """
    return f"{kind.lower()}.{INFRASTRUCTURE_GROUP}"


# Spec features, in a Provider's status.specFeatures beside the names of machine fields

FEATURE_BACKEND_ADMISSION = "BackendAdmission"
"""The backend itself admits or refuses a new machine, so free memory is no filter."""

# Field managers

MANAGER_CONTROLLER = f"{GROUP}/controller"
MANAGER_OPERATOR = f"{GROUP}/operator"
MANAGER_STAMP = f"{GROUP}/stamp"
"""Of what the controller gives a machine of Cluster API: Provider, place, user data, intent."""

MANAGER_LEASE = f"{GROUP}/lease"
MANAGER_EVENTS = f"{GROUP}/events"


@lru_cache(maxsize=1024)
def provider_manager(backend: str, provider_namespace: str, provider_name: str) -> str:
    """Name the field manager of the process that serves one Provider.

    One manager per Provider, because server-side apply removes what the same manager leaves out:
    a shared one would let Providers delete each other's rows of VMImage status.
    """
    digest = hashlib.sha256(f"{provider_namespace}/{provider_name}".encode()).hexdigest()
    return f"{GROUP}/provider-{backend}-{digest[:8]}"


# What the operator makes

_NAME_LENGTH = 63
_HASH_LENGTH = 8


def provider_cluster_role(backend: str) -> str:
    """Name the ClusterRole every provider of a backend is bound to."""
    return f"banlieue-provider-{backend}"


def provider_hash(provider_namespace: str, provider_name: str) -> str:
    """Give 16 hex digits that stand for a Provider where its names are too long."""
    return hashlib.sha256(f"{provider_namespace}/{provider_name}".encode()).hexdigest()[:16]


def grant_name(provider_namespace: str, provider_name: str, number: int) -> str:
    """Name the Role, and its binding, that let a Provider's process read user data.

    Args:
        provider_namespace: namespace of the Provider.
        provider_name: its name.
        number: which of its grants in the tenant's namespace.
    """
    return f"banlieue-provider-grant-{provider_hash(provider_namespace, provider_name)}-{number}"


def provider_workload_name(
    backend: str, provider: str, namespace: str, install_namespace: str
) -> str:
    """Name all that is made to serve one Provider.

    ``banlieue-provider-<backend>-<provider>``; outside of the install namespace, and where that
    would be longer than 63 characters, it is cut and ends with a hash of namespace and name.

    Args:
        backend: backend that serves it.
        provider: name of the Provider.
        namespace: namespace of the Provider.
        install_namespace: where banlieue is installed.
    """
    plain = f"banlieue-provider-{backend}-{provider}"
    if namespace == install_namespace and len(plain) <= _NAME_LENGTH:
        return plain
    digest = provider_hash(namespace, provider)[:_HASH_LENGTH]
    return f"{plain[: _NAME_LENGTH - _HASH_LENGTH - 1].rstrip('-.')}-{digest}"


# Objects

INSTALLATION_CONFIG_MAP = "banlieue-installation"
"""ConfigMap in the controller's namespace that says which installation this is."""

INSTALLATION_ID = "id"
INSTALLATION_CLUSTER_UID = "clusterUID"
INSTALLATION_RECOVERY = "recovery"

SYSTEM_NAMESPACE = "banlieue-system"
"""Where everything of ours is installed unless told otherwise."""

CONTROLLER_ACCOUNT = "banlieue-controller"
"""ServiceAccount, Deployment and Lease of the controller, in the install namespace."""

OPERATOR_ACCOUNT = "banlieue-operator"
"""ServiceAccount, Deployment and Lease of the operator, in the install namespace."""

NODE_PATCHER_ACCOUNT = "banlieue-node-patcher"
"""ServiceAccount, Deployment and Lease of the node patcher, in the install namespace."""

MANAGER_CONTAINER = "manager"
"""Container of every Deployment of ours; clusterctl waits for those that have one."""

ROOT_DISK = "root"
"""Name of the disk that boots and is made from the image."""

DEFAULT_USER_DATA_KEY = "user-data"
DEFAULT_NETWORK_DATA_KEY = "network-data"
DEFAULT_CA_KEY = "ca.crt"

BOOTSTRAP_DATA_KEY = "value"
"""Key of the bootstrap data in a Secret made by a Cluster API bootstrap provider."""

BOOTSTRAP_FORMAT_KEY = "format"

DEFAULT_POWER_OFF_TIMEOUT_SECONDS = 300

GRANT_SECONDS = 24 * 3600
"""How long the Secrets of a machine's first boot are granted at most."""

# Cluster API

CAPI_GROUP = "cluster.x-k8s.io"
CAPI_LABEL_CLUSTER_NAME = f"{CAPI_GROUP}/cluster-name"
CAPI_LABEL_CONTROL_PLANE = f"{CAPI_GROUP}/control-plane"
CAPI_ANNOTATION_PAUSED = f"{CAPI_GROUP}/paused"
CAPI_ANNOTATION_MANAGED_BY = f"{CAPI_GROUP}/managed-by"
CAPI_ANNOTATION_DELETE_FOR_MOVE = "clusterctl.cluster.x-k8s.io/delete-for-move"
CAPI_ANNOTATION_BLOCK_MOVE = "clusterctl.cluster.x-k8s.io/block-move"
CAPI_ANNOTATION_TOPOLOGY_DRY_RUN = "topology.cluster.x-k8s.io/dry-run"
CAPI_CATEGORY = "cluster-api"

# Field paths the API server filters machines by

FIELD_PROVIDER_NAMESPACE = "spec.providerRef.namespace"
FIELD_PROVIDER_NAME = "spec.providerRef.name"
FIELD_VIRTUAL_MACHINE_NAME = "spec.virtualMachineRef.name"


def plural(kind: str) -> str:
    """Spell the lower-case plural of a kind as Go's flect does for the words kinds end with.

    Cluster API core computes a CRD's name this way and tries nothing else.
    """
    word = kind.lower()
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}s"
