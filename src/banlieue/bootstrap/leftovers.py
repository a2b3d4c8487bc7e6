"""Objects of an install that no plan names any more: what an earlier version had."""

from collections.abc import Iterable, Sequence
from typing import Final

from banlieue.api.meta import Resource
from banlieue.api.names import plural
from banlieue.bootstrap.cluster import MANAGER, NotFound, Tools
from banlieue.bootstrap.objects import key_of, title
from banlieue.bootstrap.plan import COMPONENT
from banlieue.sdk.kube import Obj

_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"
SELECTOR: Final = "app.kubernetes.io/part-of=banlieue"

# What runs goes first, then its rights, and what walls them in at last.
KINDS: Final = (
    Resource("apps", "v1", "Deployment", "deployments"),
    Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
    Resource(_RBAC, "v1", "RoleBinding", "rolebindings"),
    Resource(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    Resource(_RBAC, "v1", "Role", "roles"),
    Resource(_RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False),
    Resource("", "v1", "ServiceAccount", "serviceaccounts"),
    *(
        Resource(_ADMISSION, "v1", kind, plural(kind), namespaced=False)
        for kind in ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy")
    ),
)


async def prune(tools: Tools, plan: Sequence[Obj], deleted: list[str]) -> None:
    """Delete what this package applied once, in the plan's namespace or for it, and does no more.

    Static providers and grants are plans of their own and stay. So does what others applied.

    Args:
        tools: the cluster.
        plan: what has to stay.
        deleted: takes the titles of what goes.
    """
    (namespace,) = {it["metadata"]["namespace"] for it in plan if it["metadata"].get("namespace")}
    kept = {(it["kind"], key_of(it)) for it in plan}
    for resource in KINDS:
        for obj in await installed(tools, resource, namespace):
            if (obj["kind"], key_of(obj)) in kept or not applied_by_us(obj):
                continue
            if is_static(obj):
                continue
            await delete(tools, resource, obj)
            deleted.append(title(obj))
            tools.say(f"deleted   {title(obj)}: this version has none")


async def installed(tools: Tools, resource: Resource, namespace: str) -> list[Obj]:
    """Objects of a kind that belong to the install in a namespace, by label and by name."""
    where = namespace if resource.namespaced else ""
    found = await tools.patiently(
        lambda: tools.cluster.list(resource, namespace=where, label_selector=SELECTOR)
    )
    prefixes = (f"{namespace}-", "banlieue-provider-")
    return [
        it for it in found if resource.namespaced or it["metadata"]["name"].startswith(prefixes)
    ]


async def delete(tools: Tools, resource: Resource, obj: Obj) -> bool:
    """Delete exactly this object; False when it was gone."""
    uid = obj["metadata"]["uid"]
    try:
        await tools.patiently(lambda: tools.cluster.delete(resource, key_of(obj), uid=uid))
    except NotFound:
        return False
    return True


def applied_by_us(obj: Obj) -> bool:
    """Whether this package applied the object."""
    return MANAGER in managers(obj)


def managers(obj: Obj) -> Iterable[str]:
    """Who set fields of an object by applying."""
    entries = obj["metadata"].get("managedFields") or ()
    return [it.get("manager", "") for it in entries if it.get("operation") == "Apply"]


def is_static(obj: Obj) -> bool:
    """Whether it belongs to a static provider, or is a grant to one."""
    labels: dict[str, str] = obj["metadata"].get("labels") or {}
    return labels.get(COMPONENT, "").startswith("provider-")
