"""What admission policies refuse to a provider, and to the controller, whatever their roles."""

from collections.abc import Iterator
from typing import Any

import pytest

from test.kit.controlplane import ControlPlane
from test.kit.kube import Kube, KubeError
from test.kit.stack import provider_class, virtual_machine
from test.kit.waiting import wait_until
from test.kit.walled import (
    MACHINES,
    TENANT,
    Walled,
    account,
    binding,
    role,
    rule,
    secret,
    subject,
    walled,
)

pytestmark = pytest.mark.slow

ACCOUNT = "banlieue-provider-simulated-mine"
FINALIZER = "simulatedmachine.infrastructure.banlieue.io"
INSTANCE = {
    "uuid": "6f0c2f5a-1111-4222-8333-123456789abc",
    "name": "m-12345678",
    "installationID": "one",
    "backendIdentity": "sim",
}
NAMES = ("mine", "theirs")
LEASE = "0123abcd-0123-4123-8123-0123456789ab"


@pytest.fixture(scope="module")
def walls(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Walled]:
    with walled(control_plane, tmp_path_factory.mktemp("walls")) as found:
        where = found.namespace
        found.kube.apply(role(where, ACCOUNT, rule("banlieue.io", "providers", "operate", "mine")))
        found.kube.apply(binding(where, ACCOUNT, ACCOUNT, subject(where, ACCOUNT)))
        yield found


@pytest.fixture(scope="module")
def me(walls: Walled) -> Kube:
    return walls.almighty(ACCOUNT)


def refused(words: str) -> Any:  # noqa: ANN401 - a context manager of pytest
    return pytest.raises(KubeError, match=words)


def patch(me: Kube, name: str, *ops: tuple[str, str, object]) -> None:
    made = [{"op": op, "path": path, "value": value} for op, path, value in ops]
    me.patch(MACHINES, name, made, TENANT)


def test_a_machine_of_its_own_gets_identity_finalizer_and_status(walls: Walled, me: Kube) -> None:
    walls.machine("allowed")
    patch(
        me,
        "allowed",
        ("add", "/spec/instance", INSTANCE),
        ("add", "/metadata/finalizers", [FINALIZER]),
    )
    patch(me, "allowed", ("add", "/spec/providerID", f"simulated://{INSTANCE['uuid']}"))
    status = {"conditions": [], "powerState": "PoweredOn"}
    me.patch(MACHINES, "allowed", {"status": status}, TENANT, subresource="status")
    for held in ([], [FINALIZER], []):  # taken off by somebody, put back, given up
        patch(me, "allowed", ("add", "/metadata/finalizers", held))


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (
            ("add", "/spec/userData", {"secretRef": {"name": "another"}}),
            "instance and providerID only",
        ),
        (("replace", "/spec/cpus", 64), "instance and providerID only"),
        (("remove", "/spec/memoryMiB", None), "instance and providerID only"),
        (("add", "/spec/paused", True), "instance and providerID only"),
        (
            ("add", "/spec/virtualMachineRef", {"name": "x", "uid": "y"}),
            "instance and providerID only",
        ),
        (("add", "/metadata/labels/x", "y"), "labels, annotations and owners"),
        (("remove", "/metadata/labels", None), "labels, annotations and owners"),
        (("add", "/metadata/annotations/x", "y"), "labels, annotations and owners"),
        (
            (
                "add",
                "/metadata/ownerReferences",
                [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}],
            ),
            "labels, annotations and owners",
        ),
        (("add", "/metadata/finalizers", ["example.com/for-ever"]), f"may write {FINALIZER} only"),
    ],
    ids=lambda it: it[1] if isinstance(it, tuple) else "",
)
@pytest.mark.security("2.3")
def test_nothing_else_of_its_own_machine_changes(
    walls: Walled, me: Kube, op: tuple[str, str, object], words: str
) -> None:
    walls.machine("kept")
    with refused(words):
        patch(me, "kept", op)


def test_the_largest_machine_is_compared_within_what_the_server_allows(
    walls: Walled, me: Kube
) -> None:
    disks = [
        {"name": f"disk-{number}", "sizeGiB": 1, "storageClass": "standard"} for number in range(32)
    ]
    nics = [{"name": f"nic-{number}", "networkClass": "lan"} for number in range(16)]
    walls.machine("largest", disks=disks, networkInterfaces=nics)
    patch(me, "largest", ("add", "/spec/instance", INSTANCE))
    with refused("instance and providerID only"):
        patch(me, "largest", ("replace", "/spec/disks/31/sizeGiB", 2))


def test_the_finalizers_of_others_stay(walls: Walled, me: Kube) -> None:
    walls.machine("held")
    walls.kube.patch(MACHINES, "held", {"metadata": {"finalizers": ["example.com/mine"]}}, TENANT)
    with refused("finalizer"):
        patch(me, "held", ("replace", "/metadata/finalizers", [FINALIZER]))
    walls.kube.patch(MACHINES, "held", {"metadata": {"finalizers": None}}, TENANT)


@pytest.mark.security("2.4")
def test_a_machine_of_another_provider_is_not_touched(walls: Walled, me: Kube) -> None:
    walls.machine("foreign", on="theirs")
    words = f"may not operate Provider {walls.namespace}/theirs"
    with refused(words):
        patch(me, "foreign", ("add", "/spec/instance", INSTANCE))
    with refused(words):
        me.patch(
            MACHINES,
            "foreign",
            {"status": {"powerState": "PoweredOn"}},
            TENANT,
            subresource="status",
        )
    with refused("never changes"):
        patch(me, "foreign", ("replace", "/spec/providerRef/name", "mine"))


def test_a_machine_that_was_placed_nowhere_is_nobodys(walls: Walled, me: Kube) -> None:
    made = walls.machine("unplaced")
    del made["spec"]["providerRef"], made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    made["metadata"]["name"] = "unplaced-too"
    walls.kube.create(made)
    try:
        with refused("placed on its Provider"):
            patch(me, "unplaced-too", ("add", "/spec/instance", INSTANCE))
    finally:
        walls.kube.delete(MACHINES, "unplaced-too", TENANT)


@pytest.mark.security("2.7")
def test_it_neither_makes_nor_deletes_anything(walls: Walled, me: Kube) -> None:
    made = walls.machine("deleted")
    with refused("placed on its Provider"):
        me.delete(MACHINES, "deleted", TENANT)
    del made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    made["metadata"]["name"] = "new"
    with refused("placed on its Provider"):
        me.create(made)
    for obj in (
        role(TENANT, "mine", rule("", "secrets", "get")),
        binding(TENANT, "mine", "mine", subject(walls.namespace, ACCOUNT)),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "made-by-a-provider"}},
        {
            "apiVersion": "banlieue.io/v1alpha1",
            "kind": "VirtualMachine",
            "metadata": {"namespace": TENANT, "name": "made-by-a-provider"},
            "spec": {"classRef": {"name": "small"}, "imageRef": {"name": "ubuntu"}},
        },
    ):
        with refused("no other object of this kind"):
            me.create(obj, dry_run=True)


def test_a_virtual_machine_is_not_a_machine_of_its_own(walls: Walled, me: Kube) -> None:
    walls.kube.apply(
        {
            "apiVersion": "banlieue.io/v1alpha1",
            "kind": "VirtualMachine",
            "metadata": {"namespace": TENANT, "name": "pinned"},
            "spec": {
                "classRef": {"name": "small"},
                "imageRef": {"name": "ubuntu"},
                "providerRef": {"namespace": walls.namespace, "name": "mine"},
            },
        }
    )
    change = {"spec": {"desiredPowerState": "PoweredOff"}}
    with refused("no other object of this kind"):
        me.patch("virtualmachines", "pinned", change, TENANT)
    with refused("no other object of this kind"):
        me.patch(
            "virtualmachines",
            "pinned",
            {"status": {"phase": "Running"}},
            TENANT,
            subresource="status",
        )


def test_no_token_of_another_account_is_to_be_had(walls: Walled, me: Kube) -> None:
    path = me.resource("serviceaccounts").path(walls.namespace, "banlieue-controller", "token")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    with refused("no other object of this kind"):
        me.request("POST", path, body=request)


# Its Provider


def test_of_its_provider_it_holds_names_and_reports(walls: Walled, me: Kube) -> None:
    where = walls.namespace
    me.patch(
        "providers",
        "mine",
        {
            "metadata": {
                "finalizers": ["banlieue.io/provider-in-use"],
                "annotations": {"banlieue.io/failure-domains": "{}"},
            }
        },
        where,
    )
    me.patch("providers", "mine", {"status": {"machineCount": 3}}, where, subresource="status")
    me.patch("providers", "mine", {"metadata": {"finalizers": None}}, where)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spec": {"cordoned": True}}, "spec, labels and owners"),
        (
            {"spec": {"connection": {"credentialsRef": {"name": "theirs-creds"}}}},
            "spec, labels and owners",
        ),
        ({"metadata": {"labels": {"x": "y"}}}, "spec, labels and owners"),
        ({"metadata": {"annotations": {"x": "y"}}}, "failure-domains only"),
        ({"metadata": {"finalizers": ["example.com/x"]}}, "provider-in-use only"),
    ],
    ids=str,
)
@pytest.mark.security("2.6")
def test_nothing_else_of_its_provider_changes(
    walls: Walled, me: Kube, change: dict[str, Any], words: str
) -> None:
    with refused(words):
        me.patch("providers", "mine", change, walls.namespace)


@pytest.mark.security("2.6")
def test_the_workload_is_told_by_the_operator_alone(walls: Walled, me: Kube) -> None:
    workload = {"status": {"workload": {"name": "forged"}}}
    with refused("the operator's"):
        me.patch("providers", "mine", workload, walls.namespace, subresource="status")
    walls.kube.patch("providers", "mine", workload, walls.namespace, subresource="status")
    with refused("the operator's"):
        me.patch(
            "providers",
            "mine",
            {"status": {"workload": None}},
            walls.namespace,
            subresource="status",
        )
    me.patch(
        "providers", "mine", {"status": {"machineCount": 4}}, walls.namespace, subresource="status"
    )


@pytest.mark.security("2.4")
def test_another_provider_is_not_touched(walls: Walled, me: Kube) -> None:
    for subresource in ("", "status"):
        with refused(f"may not operate Provider {walls.namespace}/theirs"):
            me.patch(
                "providers",
                "theirs",
                {
                    "status": {"machineCount": 1},
                    "metadata": {"annotations": {"banlieue.io/failure-domains": "x"}},
                },
                walls.namespace,
                subresource=subresource,
            )
    with refused("may not operate"):
        me.delete("providers", "mine", walls.namespace)


# Images


def row(walls: Walled, name: str, **more: object) -> dict[str, object]:
    return {"providerNamespace": walls.namespace, "providerName": name, "ready": True, **more}


@pytest.mark.security("2.4")
def test_of_an_image_it_writes_its_own_row(walls: Walled, me: Kube) -> None:
    walls.kube.apply(
        {
            "apiVersion": "banlieue.io/v1alpha1",
            "kind": "VMImage",
            "metadata": {"name": "walled"},
            "spec": {
                "osDistribution": "ubuntu",
                "osVersion": "24.04",
                "sources": [{"providerClass": "simulated", "kind": "Template", "ref": "x"}],
            },
        }
    )

    def write(*rows: dict[str, object], **more: object) -> None:
        status = {"status": {"perProvider": list(rows), **more}}
        me.patch("vmimages", "walled", status, subresource="status")

    write(row(walls, "mine"))
    walls.kube.patch(
        "vmimages",
        "walled",
        {"status": {"perProvider": [row(walls, "mine"), row(walls, "theirs")]}},
        subresource="status",
    )
    write(row(walls, "mine", bytes=4), row(walls, "theirs"))
    theirs = f"may not operate Provider {walls.namespace}/theirs"
    with refused(theirs):
        write(row(walls, "mine", bytes=4), row(walls, "theirs", bytes=5))
    with refused(theirs):
        write(row(walls, "mine", bytes=4))
    with refused("one Provider at a time"):
        write(row(walls, "mine", bytes=6), row(walls, "theirs", bytes=6))
    with refused("its own row"):
        write(row(walls, "mine", bytes=4), row(walls, "theirs"), observedGeneration=7)
    with refused("its own row"):
        me.patch("vmimages", "walled", {"spec": {"osVersion": "26.04"}})


def test_a_row_is_told_from_those_of_many_providers(walls: Walled, me: Kube) -> None:
    """The most rows there may be are compared within what the API server grants an expression."""
    walls.kube.apply(
        {
            "apiVersion": "banlieue.io/v1alpha1",
            "kind": "VMImage",
            "metadata": {"name": "many"},
            "spec": {
                "osDistribution": "ubuntu",
                "osVersion": "24.04",
                "sources": [{"providerClass": "simulated", "kind": "Template", "ref": "x"}],
            },
        }
    )
    rows = [row(walls, f"provider-{n}", message="m" * 200) for n in range(255)]
    walls.kube.patch("vmimages", "many", {"status": {"perProvider": rows}}, subresource="status")
    rows.append(row(walls, "mine"))
    me.patch("vmimages", "many", {"status": {"perProvider": rows}}, subresource="status")


# What its Provider needs


@pytest.mark.parametrize("kind", ["secrets", "configmaps"])
@pytest.mark.security("2.8")
def test_what_a_provider_needs_is_held_and_not_changed(walls: Walled, me: Kube, kind: str) -> None:
    where = walls.namespace
    obj = secret(where, "needed", password="x")
    if kind == "configmaps":
        data = obj.pop("stringData")
        obj = {**obj, "kind": "ConfigMap", "data": data}
    walls.kube.apply(obj)
    me.patch(kind, "needed", {"metadata": {"finalizers": ["banlieue.io/provider-in-use"]}}, where)
    for change in (
        {"data": {"password": "eHh4"}},
        {"metadata": {"labels": {"x": "y"}}},
        {"metadata": {"finalizers": ["example.com/x"]}},
        {"immutable": True},
    ):
        with refused("provider-in-use only"):
            me.patch(kind, "needed", change, where)
    me.patch(kind, "needed", {"metadata": {"finalizers": None}}, where)
    with refused("not make or delete any"):
        me.delete(kind, "needed", where)


def lease(walls: Walled, name: str, **metadata: object) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": walls.namespace, "name": name, **metadata},
        "spec": {"holderIdentity": "me"},
    }


@pytest.mark.security("2.7")
def test_a_lease_is_called_by_a_providers_uid(walls: Walled, me: Kube) -> None:
    me.create(lease(walls, LEASE))
    me.patch("leases", LEASE, {"spec": {"holderIdentity": "x"}}, walls.namespace)
    held = {"metadata": {"finalizers": ["banlieue.io/provider-in-use"]}}
    me.patch("leases", LEASE, held, walls.namespace)
    owner = {"apiVersion": "banlieue.io/v1alpha1", "kind": "Provider", "name": "mine", "uid": "u"}
    me.patch("leases", LEASE, {"metadata": {"ownerReferences": [owner]}}, walls.namespace)
    for name in ("banlieue-controller", "banlieue-operator", "kube-scheduler"):
        with refused("named by the Provider's uid"):
            me.create(lease(walls, name))
    with refused("owned by its Provider"):
        me.create(lease(walls, f"{LEASE[:-1]}0", finalizers=["example.com/x"]))
    with refused("named by the Provider's uid"):
        me.delete("leases", LEASE, walls.namespace)


@pytest.mark.security("2.9")
def test_a_lease_is_taken_for_minutes_and_not_for_years(walls: Walled, me: Kube) -> None:
    made = lease(walls, f"{LEASE[:-1]}1")
    made["spec"]["leaseDurationSeconds"] = 300
    me.create(made)
    with refused("300 seconds at the most"):
        longer = {"spec": {"leaseDurationSeconds": 301}}
        me.patch("leases", made["metadata"]["name"], longer, walls.namespace)
    made = lease(walls, f"{LEASE[:-1]}2")
    made["spec"]["leaseDurationSeconds"] = 2**31 - 1
    with refused("300 seconds at the most"):
        me.create(made)


@pytest.mark.security("2.9")
def test_the_lease_of_another_provider_is_not_made(walls: Walled) -> None:
    """By the rights a provider has: whose Lease it is, its Role says."""
    where, name = walls.namespace, "banlieue-provider-simulated-narrow"
    uids = {it: walls.kube.get("providers", it, where)["metadata"]["uid"] for it in NAMES}
    own = rule("coordination.k8s.io", "leases", "get patch", uids["mine"])
    walls.kube.apply(account(where, name))
    walls.kube.apply(role(where, name, rule("coordination.k8s.io", "leases", "create"), own))
    walls.kube.apply(binding(where, name, name, subject(where, name)))
    narrow = walls.as_account(name)
    wait_until(
        lambda: narrow.create(lease(walls, uids["mine"]), dry_run=True),
        10,
        "rights",
        retry_on=(KubeError,),
    )
    with refused("may not make the Lease of a Provider that is not its own"):
        narrow.create(lease(walls, uids["theirs"]))


def test_events_are_told_and_not_taken_back(me: Kube) -> None:
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": TENANT, "name": "told"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "banlieue.io/provider",
        "reportingInstance": "x",
        "action": "Reconcile",
        "reason": "Created",
        "regarding": {"kind": "Secret", "name": "theirs", "namespace": TENANT},
        "note": "what happened",
        "type": "Normal",
    }
    me.create(event)
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}
    me.patch("events.events.k8s.io", "told", {"series": series}, TENANT)
    with refused("not take back"):
        me.delete("events.events.k8s.io", "told", TENANT)


# For everybody


@pytest.mark.identity("4.6")
def test_a_machine_of_cluster_api_never_changes_its_provider(walls: Walled) -> None:
    walls.machine("replaced")
    owner = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "name": "node-1",
        "uid": "u",
        "controller": True,
    }
    owned = {"metadata": {"ownerReferences": [owner]}}
    walls.kube.patch(MACHINES, "replaced", owned, TENANT)
    for change in ({"name": "theirs"}, None):
        with refused("replace the Machine"):
            walls.kube.patch(MACHINES, "replaced", {"spec": {"providerRef": change}}, TENANT)


def test_what_a_provider_of_vsphere_cannot_do_without_is_told_at_once(walls: Walled) -> None:
    where = walls.namespace
    walls.kube.apply(provider_class("vsphere", "VSphere"))

    def made(name: str, **connection: object) -> dict[str, Any]:
        spec = {"providerClassRef": {"name": "vsphere"}, "connection": connection}
        return {
            "apiVersion": "banlieue.io/v1alpha1",
            "kind": "Provider",
            "metadata": {"namespace": where, "name": name},
            "spec": spec,
        }

    clear = made("clear", endpoint="http://vc.example/sdk", credentialsRef={"name": "c"})
    nameless = made("nameless", endpoint="https://vc.example/sdk")
    right = made("right", endpoint="https://vc.example/sdk", credentialsRef={"name": "c"})

    def told() -> bool:
        try:
            walls.kube.create(clear)
        except KubeError as error:
            return "must be an https URL" in str(error)
        walls.kube.delete("providers", "clear", where)
        return False

    wait_until(told, 30, "the policy to know the class")
    with refused("credentialsRef must name a Secret"):
        walls.kube.create(nameless)
    walls.kube.create(right)
    with refused("must be an https URL"):
        worse = {"spec": {"connection": {"endpoint": "http://vc.example/sdk"}}}
        walls.kube.patch("providers", "right", worse, where)
    simulated = made("clear", endpoint="http://sim.example")
    simulated["spec"]["providerClassRef"]["name"] = "simulated"
    walls.kube.create(simulated)
    for name in ("right", "clear"):
        walls.kube.delete("providers", name, where)
    walls.kube.delete("providerclasses", "vsphere")


@pytest.mark.parametrize("backend", ["Simulated", "VSphere"])
@pytest.mark.parametrize("kind", ["Machine", "Cluster"])
def test_a_template_is_replaced_and_not_changed(walls: Walled, backend: str, kind: str) -> None:
    inner: dict[str, Any] = {"imageRef": {"name": "ubuntu"}} if kind == "Machine" else {}
    made = walls.kube.create(
        {
            "apiVersion": "infrastructure.banlieue.io/v1alpha1",
            "kind": f"{backend}{kind}Template",
            "metadata": {"namespace": TENANT, "name": "blue"},
            "spec": {"template": {"spec": inner}},
        }
    )
    plural = f"{backend}{kind}templates".lower()
    labels = {"metadata": {"labels": {"x": "y"}}}
    walls.kube.patch(plural, "blue", labels, TENANT)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": inner}
    change: dict[str, Any] = {"spec": {"template": template}}
    with refused("create another one and refer to that"):
        walls.kube.patch(plural, "blue", change, TENANT)
    with refused("create another one and refer to that"):
        walls.kube.patch(plural, "blue", change, TENANT, dry_run=True)
    change["metadata"] = {"annotations": {"topology.cluster.x-k8s.io/dry-run": ""}}
    with refused("create another one and refer to that"):
        walls.kube.patch(plural, "blue", change, TENANT)
    asked = walls.kube.patch(plural, "blue", change, TENANT, dry_run=True)
    assert asked["spec"] != made["spec"]
    walls.kube.delete(plural, "blue", TENANT)


@pytest.mark.security("1.6")
def test_the_controller_asks_for_nothing_in_a_users_name(walls: Walled) -> None:
    kube, controller = walls.kube, walls.almighty("banlieue-controller")
    made = virtual_machine(TENANT, "asked", userData={"secretRef": {"name": "mine"}})
    made["metadata"]["annotations"] = {"banlieue.io/release-previous": "true"}
    made["metadata"]["finalizers"] = ["example.com/kept"]
    kube.apply(made)
    try:
        for change in (
            {"spec": {"userData": {"secretRef": {"name": "theirs"}}}},
            {"spec": {"sshAuthorizedKeys": ["ssh-ed25519 AAAA evil"]}},
            {"metadata": {"annotations": {"banlieue.io/renew-grant": "2100-01-01T00:00:00Z"}}},
            {"metadata": {"annotations": {"banlieue.io/release-previous": "now"}}},
            {"metadata": {"labels": {"x": "y"}}},
            {"metadata": {"finalizers": ["banlieue.io/virtualmachine"]}},
            {"metadata": {"finalizers": ["example.com/kept", "example.com/more"]}},
        ):
            with refused("the controller may write finalizers of banlieue's own"):
                controller.patch("virtualmachines", "asked", change, TENANT)
        with refused("the controller may write finalizers"):
            controller.create(virtual_machine(TENANT, "made"), dry_run=True)
        with refused("of providers the controller may"):
            controller.patch("providers", "mine", {"spec": {"cordoned": True}}, walls.namespace)
        held = {
            "finalizers": ["example.com/kept", "banlieue.io/virtualmachine"],
            "annotations": {"banlieue.io/release-previous": None},
        }
        controller.patch("virtualmachines", "asked", {"metadata": held}, TENANT)
    finally:
        kube.patch("virtualmachines", "asked", {"metadata": {"finalizers": None}}, TENANT)
        kube.delete("virtualmachines", "asked", TENANT)
