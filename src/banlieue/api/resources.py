"""Where the kinds we read and write live."""

from __future__ import annotations

from banlieue.api.meta import Resource
from banlieue.api.names import CAPI_GROUP, GROUP, INFRASTRUCTURE_GROUP, VERSION, plural


def infrastructure(kind: str) -> Resource:
    """Give the resource of a kind in our infrastructure group."""
    return Resource(INFRASTRUCTURE_GROUP, VERSION, kind, plural(kind))


PROVIDERS = Resource(GROUP, VERSION, "Provider", "providers")
PROVIDER_CLASSES = Resource(GROUP, VERSION, "ProviderClass", "providerclasses", namespaced=False)
VM_CLASSES = Resource(GROUP, VERSION, "VMClass", "vmclasses", namespaced=False)
VM_IMAGES = Resource(GROUP, VERSION, "VMImage", "vmimages", namespaced=False)
VIRTUAL_MACHINES = Resource(GROUP, VERSION, "VirtualMachine", "virtualmachines")

SECRETS = Resource("", "v1", "Secret", "secrets")
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
PODS = Resource("", "v1", "Pod", "pods")
NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "Lease", "leases")
EVENTS = Resource("events.k8s.io", "v1", "Event", "events")
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts")
DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io",
    "v1",
    "ClusterRoleBinding",
    "clusterrolebindings",
    namespaced=False,
)
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
CRDS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
)

CAPI_CLUSTERS = Resource(CAPI_GROUP, "v1beta2", "Cluster", "clusters")
CAPI_MACHINES = Resource(CAPI_GROUP, "v1beta2", "Machine", "machines")
IP_ADDRESS_CLAIMS = Resource(
    "ipam.cluster.x-k8s.io", "v1beta2", "IPAddressClaim", "ipaddressclaims"
)
IP_ADDRESSES = Resource("ipam.cluster.x-k8s.io", "v1beta2", "IPAddress", "ipaddresses")
