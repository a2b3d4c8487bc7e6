"""Takes banlieue out of a cluster, in the order in which whoever has to finish is still there.

Machines first, then Providers and images, then what runs, its rights, and at last the kinds, each
only when none of its objects waits for anybody.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import CRDS, NAMESPACES, PROVIDERS, VIRTUAL_MACHINES, VM_IMAGES
from banlieue.bootstrap import leftovers, presence
from banlieue.bootstrap.cluster import MANAGER, BootstrapError, NotFound, Tools
from banlieue.bootstrap.objects import key_of, resource_of, title
from banlieue.sdk.kube import Conflict, Key, Obj
from banlieue.sdk.machine_kinds import labelled_kinds, labelled_machine_kinds

_PODS: Final = Resource("", "v1", "Pod", "pods")
_SHOWN: Final = 20
_OF_GRANTS: Final = ("Role", "RoleBinding")


@dataclass(frozen=True, slots=True)
class Removal:
    """How far an uninstall goes.

    Attributes:
        namespace: where banlieue is installed.
        orphan: leave VMs and imported images on their backends instead of refusing.
        include_namespace: delete the namespace as well, with every Secret and record in it.
        dry_run: only say what would go.
    """

    namespace: str
    orphan: bool = False
    include_namespace: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    machines: list[Obj]
    vms: list[Obj]
    clusters: list[Obj]


async def uninstall(tools: Tools, plan: Sequence[Obj], removal: Removal) -> None:
    """Remove everything a plan installs, and what came of it.

    Args:
        tools: the cluster.
        plan: what the operator's path installs, in its order.
        removal: how far to go.

    Raises:
        BootstrapError: machines exist, or something did not go in time; the message lists them.
        ApiError: the API server refused.
    """
    await presence.check_alone(tools, removal.namespace)
    await _check(tools, await _look(tools), removal)
    if removal.dry_run:
        await _foretell(tools, plan, removal)
        return
    if removal.orphan:
        await _orphan(tools)
    # An orphaned VM may stand on an imported image: with its Provider gone, nobody deletes that.
    kinds = (PROVIDERS, VM_IMAGES) if removal.orphan else (VM_IMAGES, PROVIDERS)
    for kind in kinds:
        await _delete_all(tools, kind)
    await _check_unheld(tools, plan)
    await _remove_install(tools, plan, removal.namespace)
    await _remove_kinds(tools, plan)
    await _leave_namespace(tools, removal)


async def _look(tools: Tools) -> _Found:
    api = tools.cluster
    kinds = await tools.patiently(lambda: labelled_machine_kinds(api))
    clusters = await tools.patiently(lambda: labelled_kinds(api, names.LABEL_CLUSTER_KIND))
    return _Found(
        [it for kind in kinds for it in await _objects(tools, kind)],
        await _objects(tools, VIRTUAL_MACHINES),
        [it for kind in clusters for it in await _objects(tools, kind)],
    )


async def _objects(tools: Tools, kind: Resource) -> list[Obj]:
    try:
        return await tools.patiently(lambda: tools.cluster.list(kind))
    except NotFound:
        return []


async def _check(tools: Tools, found: _Found, removal: Removal) -> None:
    of_clusters = [it for it in found.machines if "virtualMachineRef" not in it.get("spec", {})]
    if of_clusters or found.clusters:
        raise BootstrapError(
            "machines of Cluster API are here; delete their Clusters first, or hand them over with "
            f"clusterctl move:\n{_listed((*found.clusters, *of_clusters))}"
        )
    if (found.vms or found.machines) and not removal.orphan:
        listed = found.vms or found.machines
        raise BootstrapError(
            f"{len(listed)} VMs are here; nothing was changed:\n{_listed(listed)}\n"
            "Delete them first, as their deletionPolicy says (kubectl delete virtualmachines --all "
            "--all-namespaces destroys VMs), or leave all of them on their backends with --orphan"
        )
    if found.vms:
        tools.say(f"{len(found.vms)} VMs will stay on their backends:\n{_listed(found.vms)}")


async def _orphan(tools: Tools) -> None:
    """Release every VM. Who is told first to leave the VM alone never sees it deleted otherwise."""
    for vm in await _objects(tools, VIRTUAL_MACHINES):
        await _release(tools, vm)
    await _gone(tools, VIRTUAL_MACHINES)
    api = tools.cluster
    for kind in await tools.patiently(lambda: labelled_machine_kinds(api)):
        await _gone(tools, kind)


async def _release(tools: Tools, vm: Obj) -> None:
    spec = vm["spec"]
    wanted: dict[str, Any] = {"deletionPolicy": "Orphan"}
    if spec.get("deletionProtection"):
        wanted["deletionProtection"] = False
    ops: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": vm["metadata"]["uid"]},
        *({"op": "add", "path": f"/spec/{key}", "value": it} for key, it in wanted.items()),
    ]
    key, uid = Key.of(vm), vm["metadata"]["uid"]
    try:
        await tools.patiently(
            lambda: tools.cluster.json_patch(VIRTUAL_MACHINES, key, ops, manager=MANAGER)
        )
        await tools.patiently(lambda: tools.cluster.delete(VIRTUAL_MACHINES, key, uid=uid))
    except (NotFound, Conflict):
        return  # gone, or another one by now, which the wait will find
    tools.say(f"released  VirtualMachine {key}")


async def _delete_all(tools: Tools, kind: Resource) -> None:
    found = await _objects(tools, kind)
    for obj in found:
        if await leftovers.delete(tools, kind, obj):
            tools.say(f"deleted   {kind.kind} {Key.of(obj)}")
    if found:
        await _gone(tools, kind)


async def _gone(tools: Tools, kind: Resource) -> None:
    left: list[Obj] = []

    async def gone() -> bool:
        left[:] = await _objects(tools, kind)
        return not left

    if not await tools.until(gone):
        raise BootstrapError(
            f"these did not go in time:\n{_listed(left)}\nController and providers have to run to "
            "finish them; look at their status, then repeat"
        )


async def _check_unheld(tools: Tools, plan: Sequence[Obj]) -> None:
    """While everybody is still there: nothing of ours may wait for somebody."""
    held = [it for kind in _kinds(plan) for it in await _held(tools, kind)]
    if held:
        raise BootstrapError(
            f"these still have finalizers, and nobody would take them off:\n{_listed(held)}"
        )


async def _held(tools: Tools, kind: Resource) -> list[Obj]:
    return [it for it in await _objects(tools, kind) if it["metadata"].get("finalizers")]


def _kinds(plan: Sequence[Obj]) -> list[Resource]:
    found = []
    for obj in plan:
        if obj["kind"] == "CustomResourceDefinition":
            spec = obj["spec"]
            version, kind = spec["versions"][0]["name"], spec["names"]
            namespaced = spec["scope"] == "Namespaced"
            found.append(
                Resource(
                    spec["group"], version, kind["kind"], kind["plural"], namespaced=namespaced
                )
            )
    return found


async def _remove_install(tools: Tools, plan: Sequence[Obj], namespace: str) -> None:
    found = await _installed(tools, plan, namespace)
    running = [(resource, obj) for resource, obj in found if resource.kind == "Deployment"]
    await _delete_each(tools, running)
    # They hand their Leases back, for which they need their rights.
    for _, deployment in running:
        await _await_no_pods(tools, deployment)
    await _delete_each(tools, [it for it in found if it not in running])


async def _delete_each(tools: Tools, found: Iterable[tuple[Resource, Obj]]) -> None:
    for resource, obj in found:
        if await leftovers.delete(tools, resource, obj):
            tools.say(f"deleted   {title(obj)}")


async def _installed(
    tools: Tools, plan: Sequence[Obj], namespace: str
) -> list[tuple[Resource, Obj]]:
    """What to delete, in order: what runs, policies, rights, accounts; and the rest of the plan."""
    found: dict[tuple[str, Key], tuple[Resource, Obj]] = {}
    for resource in leftovers.KINDS:
        labelled = await leftovers.installed(tools, resource, namespace)
        everywhere = await _beside(tools, resource, namespace)
        named = [await tools.find(it) for it in plan if it["kind"] == resource.kind]
        for obj in (*labelled, *everywhere, *filter(None, named)):
            found[obj["kind"], key_of(obj)] = resource, obj
    for wanted in reversed(plan):
        kind = wanted["kind"]
        if kind in {"Namespace", "CustomResourceDefinition"} or (kind, key_of(wanted)) in found:
            continue
        if there := await tools.find(wanted):
            found[kind, key_of(there)] = resource_of(there), there
    return list(found.values())


async def _beside(tools: Tools, resource: Resource, namespace: str) -> list[Obj]:
    """Static providers and grants in other namespaces."""
    if not resource.namespaced:
        return await _static_cluster_wide(tools, resource)
    # Operators of earlier versions labelled their grants as such, and as nothing else.
    found = await _labelled(tools, resource, leftovers.SELECTOR)
    if resource.kind in _OF_GRANTS:
        found += await _labelled(tools, resource, f"{names.LABEL_GRANT}=true")
    return [it for it in found if it["metadata"]["namespace"] != namespace]


async def _labelled(tools: Tools, resource: Resource, selector: str) -> list[Obj]:
    return list(
        await tools.patiently(lambda: tools.cluster.list(resource, label_selector=selector))
    )


async def _static_cluster_wide(tools: Tools, resource: Resource) -> list[Obj]:
    found = await _labelled(tools, resource, leftovers.SELECTOR)
    return [it for it in found if leftovers.is_static(it)]


async def _await_no_pods(tools: Tools, deployment: Obj) -> None:
    labels = deployment["spec"]["selector"].get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    namespace = key_of(deployment).namespace

    async def none() -> bool:
        pods = await tools.patiently(
            lambda: tools.cluster.list(_PODS, namespace=namespace, label_selector=selector)
        )
        return not pods

    if not await tools.until(none):
        raise BootstrapError(f"pods of {title(deployment)} did not end in time; repeat")


async def _remove_kinds(tools: Tools, plan: Sequence[Obj]) -> None:
    left = []
    for kind in _kinds(plan):
        if held := await _held(tools, kind):
            left += held
            continue
        definition = await tools.find(_definition(kind))
        if definition and await leftovers.delete(tools, CRDS, definition):
            tools.say(f"deleted   {title(definition)}")
    if left:
        raise BootstrapError(
            f"kinds with objects that have finalizers are kept, with everything in them:\n"
            f"{_listed(left)}"
        )
    await _wait_gone(tools, [it for it in plan if it["kind"] == "CustomResourceDefinition"])


def _definition(kind: Resource) -> Obj:
    metadata = {"name": kind.crd_name}
    return {"apiVersion": CRDS.api_version, "kind": CRDS.kind, "metadata": metadata}


async def _leave_namespace(tools: Tools, removal: Removal) -> None:
    key = Key("", removal.namespace)
    try:
        found = await tools.patiently(lambda: tools.cluster.get(NAMESPACES, key))
    except NotFound:
        return
    await _unmark(tools, found)
    if not removal.include_namespace:
        tools.say(
            f"kept      Namespace {key}: it has your Secrets and the record of this installation; "
            "--include-namespace deletes it"
        )
        return
    await leftovers.delete(tools, NAMESPACES, found)
    tools.say(f"deleted   Namespace {key}")
    await _wait_gone(tools, [{"apiVersion": "v1", **found, "kind": "Namespace"}])


async def _unmark(tools: Tools, namespace: Obj) -> None:
    if names.LABEL_IN_USE not in (namespace["metadata"].get("labels") or {}):
        return
    path = f"/metadata/labels/{names.LABEL_IN_USE.replace('/', '~1')}"
    await tools.cluster.json_patch(
        NAMESPACES, Key.of(namespace), [{"op": "remove", "path": path}], manager=MANAGER
    )


async def _wait_gone(tools: Tools, objects: Iterable[Obj]) -> None:
    for obj in objects:

        async def gone(obj: Obj = obj) -> bool:
            return await tools.find(obj) is None

        if not await tools.until(gone):
            raise BootstrapError(f"{title(obj)} did not go in time; look what holds it")


async def _foretell(tools: Tools, plan: Sequence[Obj], removal: Removal) -> None:
    for kind in (VIRTUAL_MACHINES, VM_IMAGES, PROVIDERS):
        for obj in await _objects(tools, kind):
            word = "release  " if kind == VIRTUAL_MACHINES else "delete   "
            tools.say(f"would {word} {kind.kind} {Key.of(obj)}")
    _each(tools.say, (it for _, it in await _installed(tools, plan, removal.namespace)))
    _each(tools.say, (it for it in plan if it["kind"] == "CustomResourceDefinition"))
    if removal.include_namespace:
        tools.say(f"would delete    Namespace {removal.namespace}")


def _each(say: Callable[[str], None], objects: Iterable[Obj]) -> None:
    for obj in objects:
        say(f"would delete    {title(obj)}")


def _listed(objects: Sequence[Obj]) -> str:
    shown = [f"  {it['kind']} {Key.of(it)}" for it in objects[:_SHOWN]]
    more = [f"  and {len(objects) - _SHOWN} more"] if len(objects) > _SHOWN else []
    return "\n".join((*shown, *more))
