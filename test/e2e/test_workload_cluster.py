"""A Kubernetes cluster over two vCenters, from `clusterctl generate cluster` to its end.

Core, bootstrap and control plane are Cluster API's own; what they talk to as the workload cluster's
API is Cluster API's in-memory server (`sigs.k8s.io/cluster-api/test` v1.14.2, built as
`hack/tools/workload-api`), and its Nodes come of a player that knows only what guestinfo tells.

All are pods as `clusterctl init` leaves them, unless `E2E_WORKLOAD=processes`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from banlieue.api.names import NODE_PATCHER_ACCOUNT
from hack.cluster.clusterapi.clusterctl import Clusterctl, ClusterctlError
from hack.cluster.clusterapi.repository import kubectl_kustomize
from test.kit.clusterctlmove import changes, move
from test.kit.contractwalk import walk
from test.kit.contractwatch import KINDS, ContractWatch
from test.kit.guestplayer import everybody, joining, nobody, planes
from test.kit.kube import Kube, Object
from test.kit.managementcluster import NAMESPACE
from test.kit.namespaces import create_namespace, discard_namespace
from test.kit.waiting import wait_until
from test.kit.workloadground import Ground, of_pods, pods_ground, processes_ground
from test.kit.workloadneighbours import Neighbours
from test.kit.workloadtopology import (
    ever_made,
    generations,
    live_templates,
    processors,
    resize,
    settled,
    templates_in_use,
    unused_templates,
)
from test.kit.workloadvcenter import NEW, OLD
from test.kit.workloadworld import (
    CLUSTERS,
    MACHINES,
    OURS,
    Workload,
    WorkloadWorld,
    is_plane,
    register,
    status_of,
    workload_cluster,
    workload_world,
)
from test.kit.yaml_text import yaml_documents

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3000)]
pytest_plugins = ["test.kit.fixtures_clusterctl"]

UP_SECONDS: Final = 600.0
ROLL_SECONDS: Final = 900.0
GONE_SECONDS: Final = 300.0
PLANE: Final = "cluster.x-k8s.io/control-plane"
PLURALS: Final = {
    "ServiceAccount": "serviceaccounts",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Deployment": "deployments.apps",
}

_TOP: Final = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def ground(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    """Where the clusters are managed."""
    if of_pods():
        with pods_ground(request.getfixturevalue("management")) as made:
            yield made
    else:
        with processes_ground(tmp_path_factory.mktemp("ground")) as made:
            yield made


@pytest.fixture(scope="module")
def world(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkloadWorld]:
    """Two vCenters with a Provider each."""
    with workload_world(ground, tmp_path_factory.mktemp("workload")) as made:
        yield made


@pytest.fixture
def team(world: WorkloadWorld) -> Iterator[str]:
    """A namespace for one cluster."""
    name = create_namespace(world.kube)
    yield name
    discard_namespace(world.kube, name)


def test_a_cluster_over_two_vcenters(
    world: WorkloadWorld, ground: Ground, team: str, node_patcher: str, tmp_path: Path
) -> None:
    """Story 20: Cluster API over two Providers: spread, healed, moved, upgraded, scaled, gone."""
    before = world.digests()
    allow_kubeconfig(world.kube, team, node_patcher)
    with (
        ContractWatch(ground, KINDS) as watch,
        workload_cluster(
            world,
            ground.clusterctl,
            team,
            planes=3,
            workers=2,
            # The Node that everything else waits for is told who it is by the patcher.
            says_provider_id=joining,
            held=everybody,
        ) as made,
    ):
        # Another management cluster, at work like the first; it knows no Provider yet.
        with processes_ground(tmp_path / "elsewhere") as elsewhere:
            with world.step("3 control planes and 4 workers, a move refused meanwhile"):
                refused(made, ground, elsewhere)
                made.await_running(3, 4, OLD, UP_SECONDS)
            as_the_contract_says(made, watch)
            assert set(made.domains_of(is_plane)) == set(world.domains), "each vCenter has some"
            assert made.domains_of(lambda it: not is_plane(it)) == ["east", "east", "west", "west"]
            described(ground.clusterctl, made)

            with world.step("two killed VMs are replaced beside a VirtualMachine"):
                beside_others(made)

            with world.step("moved away and back"):
                moved(made, ground, elsewhere)

        with world.step("another version"):
            made.upgrade(NEW)
            made.await_running(3, 4, NEW, ROLL_SECONDS)
        made.await_vms()

        with world.step("5 control planes and 10 workers, which are told who they are"):
            made.player.says_provider_id = planes
            made.scale(5, (5, 5))
            made.await_running(5, 10, NEW, ROLL_SECONDS)
        made.await_vms()
        undisturbed(made)

        with world.step("3 control planes and 2 workers again"):
            made.scale(3, (1, 1))
            made.await_running(3, 2, NEW, ROLL_SECONDS)
        made.await_vms()

        with world.step("deletion"):
            made.delete(GONE_SECONDS)
        assert world.vms() == []
        assert world.digests() == before


def test_three_quick_edits_of_a_topology_end_in_one_rollout(
    world: WorkloadWorld, ground: Ground, team: str
) -> None:
    """Each machine is replaced once, and nothing is left of what is between the first and the last.

    Cluster API acts on what it has read. Where it reads between two edits, one more template and,
    of the first machine to be replaced, one more machine come of it and go again.
    """
    with (
        ContractWatch(ground, KINDS) as watch,
        workload_cluster(
            world, ground.clusterctl, team, planes=1, workers=2, flavor="topology"
        ) as made,
    ):
        with world.step("a topology of 1 control plane and 2 workers"):
            wait_until(lambda: settled(made), UP_SECONDS, "the topology")
            made.await_running(1, 2, OLD, UP_SECONDS)
        first, told = live_templates(made), generations(made)
        assert sorted(first.values()) == [1, 2]
        assert ever_made(watch, team) == first
        walk(made)

        with world.step("three edits"):
            for cpus in (4, 6, 8):
                resize(made, cpus)
            wait_until(
                lambda: settled(made) and processors(made) == {8}, UP_SECONDS, "the last edit"
            )
            plane, workers = (it["metadata"]["name"] for it in templates_in_use(made))
            wanted = {plane: 1, workers: 2}
            wait_until(lambda: live_templates(made) == wanted, ROLL_SECONDS, "one rollout")
            made.await_running(1, 2, OLD, ROLL_SECONDS)
        made.await_vms()
        wait_until(lambda: not unused_templates(made), UP_SECONDS, "templates between to go")
        assert {it.cpus for it in world.vms()} == {8}

        ever, now = ever_made(watch, team), generations(made)
        assert {it: ever[it] for it in wanted} == wanted, "each machine was replaced once"
        assert {it: ever[it] for it in first} == first, "nothing was made of the old ones again"
        rounds = {kind: now[kind] - told[kind] for kind in now}
        assert all(1 <= it <= 3 for it in rounds.values()), rounds
        between = sum(ever.values()) - sum(first.values()) - sum(wanted.values())
        assert between <= sum(rounds.values()) - len(rounds), (ever, rounds)
        made.delete(GONE_SECONDS)
        assert not watch.findings, watch.report()
    assert world.vms() == []


def as_the_contract_says(made: Workload, watch: ContractWatch) -> None:
    """What was seen while the cluster came to be, and what is to be seen now that it runs."""
    made.await_vms()
    made.await_told()
    watch.stop()
    watch.check(made.namespace, machines=len(made.machines()))
    walk(made)


def beside_others(made: Workload) -> None:
    """A user's VirtualMachine and machine objects come, see Machines replaced, and go."""
    neighbours = Neighbours(made)
    neighbours.move_in()
    remediated(made)
    made.await_vms()
    made.await_told()
    neighbours.unchanged()
    neighbours.move_out()


@pytest.fixture
def node_patcher(ground: Ground) -> Iterator[str]:
    """The patcher as it ships; gives the name of its account."""
    kube, text = ground.kube, kubectl_kustomize(_TOP / "config" / "node-patcher")
    kube.apply_yaml(text)
    if ground.stack:
        ground.stack.node_patcher().start()
    yield NODE_PATCHER_ACCOUNT
    for obj in yaml_documents(text):
        kind, meta = obj["kind"], obj["metadata"]
        kube.delete(PLURALS[kind], meta["name"], meta.get("namespace"), missing_ok=True)


def allow_kubeconfig(kube: Kube, namespace: str, account: str) -> None:
    """Let the patcher read the kubeconfig of the one cluster, as its documentation says."""
    group = "rbac.authorization.k8s.io"
    metadata = {"name": "node-patcher", "namespace": namespace}
    rule = {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": ["made-kubeconfig"],
        "verbs": ["get"],
    }
    role = {"kind": "Role", "name": "node-patcher", "apiGroup": group}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    version = {"apiVersion": f"{group}/v1", "metadata": metadata}
    kube.create({**version, "kind": "Role", "rules": [rule]})
    kube.create({**version, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]})


def described(clusterctl: Clusterctl, made: Workload) -> None:
    """`clusterctl describe cluster` has nothing to complain of."""
    text = clusterctl.run("describe", "cluster", made.name, f"--namespace={made.namespace}").output
    (line,) = [it for it in text.splitlines() if "VSphereCluster" in it]
    assert line.split()[-3:-1] == ["True", "Ready"]


def undisturbed(made: Workload) -> None:
    """Core made each of its machines at the first attempt, left none behind, and can read us.

    A write of ours between its creation and its first clean-up makes it give a machine object up.
    That it does not know the template yet is no such failure.
    """
    kube, namespace = made.world.kube, made.namespace
    events = kube.list("events.events.k8s.io", namespace)
    notes = [str(it.get("note")) for it in events]
    failed = [it for it in notes if "failed to create InfraMachine" in it]
    assert [it for it in failed if "failed to compute" not in it] == []

    def all_owned() -> bool:
        owners = {it["spec"]["infrastructureRef"]["name"] for it in made.machines()}
        return owners == {it["metadata"]["name"] for it in kube.list(OURS, namespace)}

    wait_until(all_owned, UP_SECONDS, "each machine object to have its Machine")
    told = {
        condition["reason"]
        for obj in (*made.machines(), *kube.list(CLUSTERS, namespace))
        for condition in status_of(obj)["conditions"]
    }
    assert "InvalidConditionReported" not in told


def refused(made: Workload, here: Ground, there: Ground) -> None:
    """No move begins while machines are being made, and none is the worse for the attempt.

    Lets the guests go on, who are all held.
    """
    kube = made.world.kube

    def attempt(why: str) -> str:
        with pytest.raises(ClusterctlError, match=why) as caught:
            move(here, there, made.namespace)
        (cluster,) = kube.list(CLUSTERS, made.namespace)
        assert not cluster["spec"].get("paused")
        assert there.kube.list(CLUSTERS) == there.kube.list(MACHINES) == []
        return str(caught.value)

    await_guests(made, 1)
    attempt("not yet initialized")
    made.player.held = joining
    await_guests(made, 6)
    told = attempt("still provisioning the node")
    unnamed = [it["metadata"]["name"] for it in made.machines() if not status_of(it).get("nodeRef")]
    assert len(unnamed) == 6 - 1
    assert all(f"{made.namespace}/{name} is still" in told for name in unnamed)
    made.player.held = nobody


def await_guests(made: Workload, count: int) -> None:
    """Wait until so many VMs run that are to become Nodes."""
    wait_until(lambda: len(made.player.guests) >= count, UP_SECONDS, f"{count} guests")


def remediated(made: Workload) -> None:
    """Two VMs are killed, and their MachineHealthChecks have both Machines replaced.

    One is a worker. The other is the oldest of the control plane, which led etcd; its owner
    replaces it only because the others keep quorum.
    """
    kube, world = made.world.kube, made.world
    workers = {"cluster.x-k8s.io/deployment-name": made.sets()[0]["metadata"]["name"]}
    kube.create(health_check(made, "workers", {"matchLabels": workers}))
    kube.create(health_check(made, "planes", {"matchLabels": {PLANE: ""}}))
    machines = sorted(made.machines(), key=lambda it: str(it["metadata"]["creationTimestamp"]))
    victims = [
        next(it for it in machines if workers.items() <= it["metadata"]["labels"].items()),
        next(it for it in machines if is_plane(it)),
    ]
    uuids = [it["spec"]["providerID"].removeprefix("vsphere://") for it in victims]
    for vcenter in world.vcenters.values():
        for vm in vcenter.vms():
            if vm.uuid in uuids:
                vcenter.destroy_vm(vm.path)
    for victim in victims:
        name = victim["metadata"]["name"]
        kube.wait_gone(MACHINES, name, made.namespace, timeout=GONE_SECONDS)
    made.await_running(3, 4, OLD, UP_SECONDS)
    assert not {it.uuid for it in world.vms()} & set(uuids)


def moved(made: Workload, here: Ground, there: Ground) -> None:
    """There and back, both ways taken over by who works there: the same VMs, and none was changed.

    The other management cluster is given no Provider at first.
    """
    world, count = made.world, len(made.machines())
    before, digests = vms_of(world), world.digests()
    for vcenter in world.vcenters.values():
        vcenter.reset_counters()
    away = made.managed_by(there.kube)
    move(here, there, made.namespace)
    assert made.machines() == made.nodes() == []
    assert len(away.machines()) == count
    await_word(away, "make it with its Secret of the same name")
    register(there, world.vcenters, world.workload.host)
    taken_over(away, before)
    move(there, here, made.namespace)
    assert away.machines() == away.nodes() == []
    taken_over(made, before)
    assert world.digests() == digests
    assert [changes(it) for it in world.vcenters.values()] == [{}, {}]


def await_word(made: Workload, words: str) -> None:
    """Wait until every machine object says that its Provider is missing, and what to do."""

    def all_say() -> bool:
        found = [
            it
            for node in made.nodes()
            for it in status_of(node).get("conditions") or ()
            if it["reason"] == "ProviderNotFound" and words in it["message"]
        ]
        return len(found) == len(made.nodes())

    wait_until(all_say, UP_SECONDS, "machines to name the step that is missing")


def taken_over(made: Workload, before: dict[str, tuple[str, str, str]]) -> None:
    """Wait until a moved cluster runs where it is now, by the VMs it had."""
    made.await_running(3, 4, OLD, UP_SECONDS)
    made.await_vms()
    made.await_told()
    assert vms_of(made.world) == before


def vms_of(world: WorkloadWorld) -> dict[str, tuple[str, str, str]]:
    return {it.instance_uuid: (it.uuid, it.mo_ref, it.power_state) for it in world.vms()}


def health_check(made: Workload, name: str, selector: Object) -> Object:
    """Machines whose Node fell silent are replaced after a second."""
    silent = {"type": "Ready", "status": "Unknown", "timeoutSeconds": 1}
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineHealthCheck",
        "metadata": {"name": name, "namespace": made.namespace},
        "spec": {
            "clusterName": made.name,
            "selector": selector,
            "checks": {"unhealthyNodeConditions": [silent]},
        },
    }
