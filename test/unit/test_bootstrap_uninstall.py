"""How an install is taken out: in order, refusing while somebody would lose something."""

from collections.abc import Callable
from typing import Any

import pytest

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import (
    CRDS,
    NAMESPACES,
    PROVIDERS,
    VIRTUAL_MACHINES,
    VM_IMAGES,
    infrastructure,
)
from banlieue.bootstrap.apply import How, apply
from banlieue.bootstrap.cluster import BootstrapError
from banlieue.bootstrap.objects import key_of, resource_of
from banlieue.bootstrap.plan import Target, grant_plan, operator_plan, provider_plan
from banlieue.bootstrap.uninstall import Removal, uninstall
from banlieue.sdk.kube import Key
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.bootstrapping import InstallableApi, tools_of

Object = dict[str, Any]
MACHINES = infrastructure("SimulatedMachine")
CLUSTERS = infrastructure("SimulatedCluster")
SYSTEM = Key("", "banlieue-system")
DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments")


class Bench:
    """A cluster with an install, and what was said."""

    def __init__(self) -> None:
        self.api = InstallableApi()
        self.said: list[str] = []
        self.plan = operator_plan(Target())

    async def install(self, *more: list[Object]) -> None:
        for plan in (self.plan, *more):
            await apply(tools_of(self.api, self.said.append), plan, How())
        self.said.clear()
        self.api.calls.clear()

    async def uninstall(self, **how: bool) -> None:
        removal = Removal("banlieue-system", **how)
        await uninstall(tools_of(self.api, self.said.append), self.plan, removal)

    def left(self, plan: list[Object]) -> list[str]:
        there = [it for it in plan if self.api.peek(resource_of(it), key_of(it))]
        return [it["kind"] for it in there]

    def deleted(self) -> list[str]:
        return [call.resource.kind for call in self.api.calls if call.verb == "delete"]

    def written(self) -> list[Call]:
        verbs = {"delete", "apply", "json_patch", "create"}
        return [call for call in self.api.calls if call.verb in verbs]

    def add(self, resource: Resource, name: str, finalizer: str = "", **spec: object) -> Key:
        key = Key("team-a" if resource.namespaced else "", name)
        metadata: Object = {"name": name}
        metadata |= {"namespace": key.namespace} if key.namespace else {}
        metadata |= {"finalizers": [finalizer]} if finalizer else {}
        typed = {"apiVersion": resource.api_version, "kind": resource.kind}
        self.api.put(resource, {**typed, "metadata": metadata, "spec": spec})
        return key

    def finishing(self, resource: Resource, key: Key, *, only: Any = None) -> None:  # noqa: ANN401 - a predicate
        """Somebody at work takes the finalizers of an object off once it is being deleted."""

        def finish(call: Call, moment: Moment) -> None:
            found = self.api.look_at(resource, key)
            if moment is Moment.AFTER and found and "deletionTimestamp" in found["metadata"]:
                if only is None or only(found):
                    self.api.drop(resource, key, force=True)
                del call

        self.api.intercept(finish)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_nothing_is_left_but_the_namespace(bench: Bench) -> None:
    static, granted = provider_plan("simulated", Target()), grant_plan("team-a", ["simulated"])
    elsewhere = provider_plan("vsphere", Target("team-b"), system_namespace="banlieue-system")
    await bench.install(static, granted, elsewhere)
    await bench.uninstall()
    for plan in (bench.plan, static, granted, elsewhere):
        assert set(bench.left(plan)) <= {"Namespace"}
    namespace = bench.api.peek(NAMESPACES, SYSTEM)
    assert namespace
    assert names.LABEL_IN_USE not in namespace["metadata"]["labels"]
    assert "kept      Namespace banlieue-system" in bench.said[-1]


async def test_what_runs_goes_before_its_rights_and_the_walls_go_after_them(bench: Bench) -> None:
    await bench.install()
    await bench.uninstall(include_namespace=True)
    order = list(dict.fromkeys(bench.deleted()))
    assert order[0] == "Deployment"
    assert order[-2:] == ["CustomResourceDefinition", "Namespace"]
    for earlier, later in (
        ("ClusterRoleBinding", "ClusterRole"),
        ("ClusterRole", "ValidatingAdmissionPolicyBinding"),
        ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"),
        ("ValidatingAdmissionPolicy", "CustomResourceDefinition"),
    ):
        assert order.index(earlier) < order.index(later)


async def test_it_can_be_repeated_also_when_nothing_is_there(bench: Bench) -> None:
    await bench.uninstall()
    await bench.install()
    await bench.uninstall(include_namespace=True)
    await bench.uninstall(include_namespace=True)
    await bench.install()


# Refusals


async def test_vms_are_listed_and_nothing_is_changed(bench: Bench) -> None:
    await bench.install()
    for number in range(25):
        bench.add(VIRTUAL_MACHINES, f"db-{number:02}")
    with pytest.raises(BootstrapError) as refused:
        await bench.uninstall()
    text = str(refused.value)
    assert "25 VMs are here" in text
    assert "VirtualMachine team-a/db-00" in text
    assert "and 5 more" in text
    assert "--orphan" in text
    assert bench.written() == []


async def test_a_machine_without_its_virtual_machine_counts_too(bench: Bench) -> None:
    await bench.install()
    bench.add(MACHINES, "db", virtualMachineRef={"name": "db"})
    with pytest.raises(BootstrapError, match="SimulatedMachine team-a/db"):
        await bench.uninstall()
    assert bench.written() == []


@pytest.mark.parametrize("orphan", [False, True])
@pytest.mark.parametrize("kind", [MACHINES, CLUSTERS], ids=["machine", "cluster"])
async def test_what_belongs_to_cluster_api_is_never_touched(
    bench: Bench, kind: Resource, *, orphan: bool
) -> None:
    await bench.install()
    bench.add(kind, "node-1", providerRef={"name": "one"})
    with pytest.raises(BootstrapError, match=r"clusterctl move:\n  Simulated\w+ team-a/node-1"):
        await bench.uninstall(orphan=orphan)
    assert bench.written() == []


async def test_a_kind_whose_object_waits_for_somebody_is_never_deleted(bench: Bench) -> None:
    await bench.install()
    classes = Resource("banlieue.io", "v1alpha1", "VMClass", "vmclasses", namespaced=False)
    bench.add(classes, "small", "example.com/held")
    with pytest.raises(BootstrapError, match=r"finalizers, and nobody.*\n  VMClass small"):
        await bench.uninstall()
    assert bench.deleted() == []
    assert bench.left(bench.plan) == [it["kind"] for it in bench.plan]


async def test_an_object_that_comes_at_the_last_moment_keeps_its_kind(bench: Bench) -> None:
    await bench.install()

    def come(call: Call, moment: Moment) -> None:
        if call.verb == "delete" and call.resource.kind == "ClusterRole" and moment is Moment.AFTER:
            bench.add(VIRTUAL_MACHINES, "late", names.FINALIZER_VIRTUAL_MACHINE)

    bench.api.intercept(come)
    with pytest.raises(BootstrapError, match=r"are kept.*\n  VirtualMachine team-a/late"):
        await bench.uninstall()
    assert bench.api.peek(CRDS, Key("", "virtualmachines.banlieue.io"))
    assert bench.api.peek(VIRTUAL_MACHINES, Key("team-a", "late"))


async def test_a_dry_run_tells_what_would_go_and_writes_nothing(bench: Bench) -> None:
    await bench.install()
    bench.add(PROVIDERS, "one")
    await bench.uninstall(dry_run=True)
    assert bench.written() == []
    text = "\n".join(bench.said)
    for part in ("Provider team-a/one", "Deployment banlieue-system/", "vmimages.banlieue.io"):
        assert part in text


async def test_a_wrong_namespace_is_refused(bench: Bench) -> None:
    """The kinds would go, and what runs in the right one would stay."""
    await bench.install()
    bench.add(PROVIDERS, "one")
    with pytest.raises(BootstrapError, match="--namespace banlieue-system"):
        await uninstall(
            tools_of(bench.api, bench.said.append), bench.plan, Removal("elsewhere", orphan=True)
        )
    assert bench.written() == []


# What is left to others


async def test_images_go_before_the_providers_that_have_to_delete_their_copies(
    bench: Bench,
) -> None:
    await bench.install()
    bench.finishing(VM_IMAGES, bench.add(VM_IMAGES, "ubuntu", names.FINALIZER_IMAGE_COPIES))
    bench.finishing(PROVIDERS, bench.add(PROVIDERS, "one", names.FINALIZER_PROVIDER_IN_USE))
    await bench.uninstall()
    order = bench.deleted()
    assert order[:2] == ["VMImage", "Provider"]
    assert bench.left(bench.plan) == ["Namespace"]


async def test_without_a_controller_it_says_what_stays_and_removes_nothing_else(
    bench: Bench,
) -> None:
    await bench.install()
    bench.add(PROVIDERS, "one", names.FINALIZER_PROVIDER_IN_USE)
    with pytest.raises(BootstrapError, match=r"did not go in time:\n  Provider team-a/one"):
        await bench.uninstall()
    assert bench.left(bench.plan) == [it["kind"] for it in bench.plan]


async def test_orphaned_vms_are_released_before_they_are_deleted(bench: Bench) -> None:
    await bench.install()
    vm = bench.add(VIRTUAL_MACHINES, "db", names.FINALIZER_VIRTUAL_MACHINE, deletionProtection=True)

    def is_released(obj: Object) -> bool:
        spec = obj["spec"]
        return spec["deletionPolicy"] == "Orphan" and not spec["deletionProtection"]

    bench.finishing(VIRTUAL_MACHINES, vm, only=is_released)
    bench.finishing(PROVIDERS, bench.add(PROVIDERS, "one", names.FINALIZER_PROVIDER_IN_USE))
    bench.finishing(VM_IMAGES, bench.add(VM_IMAGES, "ubuntu", names.FINALIZER_IMAGE_COPIES))
    await bench.uninstall(orphan=True)
    assert bench.deleted()[:3] == ["VirtualMachine", "Provider", "VMImage"], (
        "a VM may stand on the copy that its Provider would delete"
    )
    assert bench.left(bench.plan) == ["Namespace"]


async def test_orphaning_gives_up_while_a_vm_is_held(bench: Bench) -> None:
    await bench.install()
    bench.add(VIRTUAL_MACHINES, "db", names.FINALIZER_VIRTUAL_MACHINE)
    with pytest.raises(BootstrapError, match=r"did not go in time:\n  VirtualMachine team-a/db"):
        await bench.uninstall(orphan=True)
    assert bench.left(bench.plan) == [it["kind"] for it in bench.plan]


async def test_what_is_not_ours_stays(bench: Bench) -> None:
    await bench.install()
    metadata = {"namespace": "banlieue-system", "name": "theirs"}
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {}}
    bench.api.put(DEPLOYMENTS, other)
    await bench.uninstall()
    assert bench.api.peek(DEPLOYMENTS, Key("banlieue-system", "theirs"))


async def test_what_clusterctl_leaves_behind_goes_too(bench: Bench) -> None:
    """It deletes what is in namespaces, and of the rest what is called like the namespace."""
    await bench.install(provider_plan("simulated", Target()))
    kept = {"CustomResourceDefinition", "Namespace"}
    for obj in bench.plan:
        mine = obj["metadata"].get("namespace") or obj["metadata"]["name"].startswith(
            f"{SYSTEM.name}-"
        )
        if obj["kind"] not in kept and mine:
            bench.api.drop(resource_of(obj), key_of(obj), force=True)
    assert "ClusterRole" in bench.left(bench.plan), "those that providers are bound to"
    await bench.uninstall()
    assert set(bench.left(bench.plan)) <= {"Namespace"}


async def test_grants_of_operators_that_labelled_them_otherwise_go_too(bench: Bench) -> None:
    await bench.install()
    name, rbac = "banlieue-provider-grant-0123456789abcdef-0", "rbac.authorization.k8s.io"
    left = []
    for kind, plural in (("Role", "roles"), ("RoleBinding", "rolebindings")):
        resource = Resource(rbac, "v1", kind, plural)
        metadata = {"namespace": "team-a", "name": name, "labels": {names.LABEL_GRANT: "true"}}
        typed = {"apiVersion": f"{rbac}/v1", "kind": kind, "metadata": metadata}
        bench.api.put(resource, typed)
        left.append((resource, Key("team-a", name)))
    await bench.uninstall()
    assert [bench.api.peek(*it) for it in left] == [None, None]


# Broken off in the middle


class BrokenOffError(Exception):
    """The command ended in the middle of a call."""


def _break_at(api: InstallableApi, write: int, moment: Moment) -> Callable[[], None]:
    verbs, left = {"apply", "delete", "json_patch"}, [write]

    def end(call: Call, at: Moment) -> None:
        if call.verb in verbs and at is moment:
            left[0] -= 1
            if left[0] == 0:
                raise BrokenOffError

    return api.intercept(end)


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER], ids=["before", "after"])
async def test_what_was_broken_off_anywhere_is_finished_by_running_it_again(
    moment: Moment,
) -> None:
    bench = Bench()
    writes = len(bench.plan)
    for write in range(1, writes, 13):
        undo = _break_at(bench.api, write, moment)
        with pytest.raises(BrokenOffError):
            await bench.install()
        undo()
        await bench.install()
        assert bench.left(bench.plan) == [it["kind"] for it in bench.plan]
        undo = _break_at(bench.api, write, moment)
        with pytest.raises(BrokenOffError):
            await bench.uninstall()
        undo()
        await bench.uninstall()
        assert bench.left(bench.plan) == ["Namespace"]
        bench.api.drop(NAMESPACES, SYSTEM, force=True)
