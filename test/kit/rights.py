"""What each of our identities may do, right by right, and the test that uses the right.

A test on a real API server compares it with what the API server says of their tokens, so that no
right is there without a line here; another sees that every line names a test that exists.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from test.kit.kube import Kube

OURS, INFRA, CAPI = "banlieue.io", "infrastructure.banlieue.io", "cluster.x-k8s.io"
RBAC, COORDINATION, EVENTS = "rbac.authorization.k8s.io", "coordination.k8s.io", "events.k8s.io"
CRDS, IPAM = "apiextensions.k8s.io", "ipam.cluster.x-k8s.io"

CLASSLESS: Final = "integration/test_readability.py::test_a_provider_of_no_class_says_so"
LIFE = (
    "integration/test_life_of_a_vm.py::test_three_vms_become_ready_and_are_deleted_without_a_trace"
)
KILLED = "integration/test_life_of_a_vm.py::"
KILLED += "test_a_controller_killed_at_any_write_leaves_one_vm_then_none"
GONE = "integration/test_provider_gone.py::"
GONE += "test_machines_of_a_lost_provider_are_kept_or_released_on_the_users_word"
RESTORED = "integration/test_restores.py::test_what_is_still_or_again_there_is_taken_up"
IMAGES = "stories/test_first_day.py::test_an_image_is_imported_verified_and_deleted_when_unused"
COUNTED = "unit/test_runtime_recorder.py::test_what_returns_is_counted_on_the_event_that_is_there"
SERVED = "integration/test_operator_live.py::test_a_provider_and_a_secret_are_enough"
DRIFT = "integration/test_operator_live.py::"
DRIFT += "test_drift_is_put_right_and_a_class_edit_is_in_force_at_once"
MOVED = (
    "integration/test_operator_live.py::test_a_workload_in_another_namespace_leaves_nothing_behind"
)
FOREIGN = "integration/test_operator_live.py::test_an_object_of_somebody_else_is_left_alone"
ENOUGH = "integration/test_operator_live.py::"
ENOUGH += "test_what_was_made_is_enough_to_serve_a_provider_in_any_namespace"
CLASSES = "integration/test_operator_live.py::test_default_classes_are_made_once"
GRANTED = "integration/test_identities.py::test_a_provider_reads_its_login_and_what_is_granted_now"
IN_USE = "integration/test_identities.py::"
IN_USE += "test_a_namespace_with_a_provider_in_use_is_not_deleted"
HOLDERS = "unit/test_runtime_elector.py::test_a_holder_whose_pod_is_gone_is_not_waited_for"
CLUSTER_API = "unit/test_operator_grants.py::test_bootstrap_data_of_cluster_api_is_granted"
INFRA_CLUSTER = "integration/test_clusters_role.py::"
INFRA_CLUSTER += "test_a_cluster_lists_its_domains_and_heeds_its_owner"
ENDPOINT = "integration/test_clusters_role.py::"
ENDPOINT += "test_an_endpoint_from_a_pool_is_kept_until_the_cluster_goes"
CAPI_STAMP = "unit/test_capi_stamp.py::"
CAPI_STAMP += "test_what_it_waits_for_is_told_in_order_and_nothing_but_status_is_written"
POOLED = "unit/test_controller_addresses.py::"
POOLED += "test_the_address_is_given_back_when_the_vm_is_gone_and_not_before"
CAPI_RESUMED = "unit/test_capi_end.py::test_6_a_paused_machine_is_not_stamped_and_says_so"
CAPI_OWNER = "unit/test_machine_of_cluster.py::test_a_machine_whose_cluster_is_paused_is_left_alone"

EVERYWHERE: Final = "*"
INSTALL: Final = "install"
TENANT: Final = "tenant"


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on resources of a group; `used` names a test that needs them."""

    verbs: str
    group: str
    resources: str
    used: str
    names: str = ""
    where: str = EVERYWHERE


CONTROLLER: Final = (
    Right("list watch", OURS, "virtualmachines vmclasses vmimages providers providerclasses", LIFE),
    Right("get", OURS, "virtualmachines", KILLED),
    Right("get", OURS, "providers", GONE),
    Right("patch", OURS, "virtualmachines virtualmachines/status", LIFE),
    Right("patch", OURS, "vmimages vmimages/status", IMAGES),
    Right("patch", OURS, "providers/status", CLASSLESS),
    Right("update", OURS, "virtualmachines/finalizers", LIFE),
    Right("get list watch", "", "namespaces", LIFE),
    Right("list", CRDS, "customresourcedefinitions", RESTORED),
    Right("create get patch", EVENTS, "events", COUNTED),
    Right("get list watch create patch delete", INFRA, "simulatedmachines vspheremachines", LIFE),
    Right("get list watch", CAPI, "clusters machines", CAPI_STAMP),
    Right("patch", INFRA, "simulatedmachines/status vspheremachines/status", CAPI_STAMP),
    Right("list watch", INFRA, "simulatedclusters vsphereclusters", INFRA_CLUSTER),
    Right("patch", INFRA, "simulatedclusters vsphereclusters", ENDPOINT),
    Right("update", INFRA, "simulatedclusters/finalizers vsphereclusters/finalizers", ENDPOINT),
    Right("update", INFRA, "simulatedmachines/finalizers vspheremachines/finalizers", POOLED),
    Right("list watch", INFRA, "simulatedmachinetemplates vspheremachinetemplates", INFRA_CLUSTER),
    Right("patch", INFRA, "simulatedclusters/status vsphereclusters/status", INFRA_CLUSTER),
    Right(
        "patch",
        INFRA,
        "simulatedmachinetemplates/status vspheremachinetemplates/status",
        INFRA_CLUSTER,
    ),
    Right("get list watch create patch delete", IPAM, "ipaddressclaims", POOLED),
    Right("get list watch", IPAM, "ipaddresses", POOLED),
    Right("create", "", "configmaps", LIFE, where=INSTALL),
    Right("get list watch patch", "", "configmaps", LIFE, "banlieue-installation", INSTALL),
    Right("create", COORDINATION, "leases", LIFE, where=INSTALL),
    Right("get patch", COORDINATION, "leases", LIFE, "banlieue-controller", INSTALL),
    Right("get", "", "pods", HOLDERS, where=INSTALL),
)

OPERATOR: Final = (
    Right("list watch", OURS, "providers providerclasses virtualmachines", SERVED),
    Right("get", OURS, "providers", MOVED),
    Right("list watch", CAPI, "machines", CLUSTER_API),
    Right("patch", OURS, "providers providers/status providerclasses/status", SERVED),
    Right("create", OURS, "providerclasses", CLASSES),
    Right("get list watch create patch delete", "apps", "deployments", DRIFT),
    Right("get list watch create patch delete", "", "serviceaccounts", MOVED),
    Right("get list watch create patch delete", "networking.k8s.io", "networkpolicies", DRIFT),
    Right("get list watch create patch delete", RBAC, "roles rolebindings", FOREIGN),
    Right("get list watch create patch delete", RBAC, "clusterrolebindings", MOVED),
    Right("escalate bind", RBAC, "roles", SERVED),
    Right("bind", RBAC, "clusterroles", SERVED, "banlieue-provider-simulated"),
    Right("bind", RBAC, "clusterroles", SERVED, "banlieue-provider-vsphere"),
    Right("list watch patch", "", "namespaces", IN_USE),
    Right("list", CRDS, "customresourcedefinitions", MOVED),
    Right("create get patch", EVENTS, "events", COUNTED),
    Right("list watch", INFRA, "simulatedmachines vspheremachines", GRANTED),
    Right("create", COORDINATION, "leases", SERVED, where=INSTALL),
    Right("get patch", COORDINATION, "leases", SERVED, "banlieue-operator", INSTALL),
    Right("get", "", "pods", HOLDERS, where=INSTALL),
)

_ANY_PROVIDER: Final = (
    Right("list watch", OURS, "providerclasses vmimages", LIFE),
    Right("patch", OURS, "vmimages/status", LIFE),
    Right("get", OURS, "virtualmachines", LIFE),
    Right("get", CAPI, "clusters machines", CAPI_OWNER),
    Right("list watch", CAPI, "clusters", CAPI_RESUMED),
    Right("get list watch", "", "namespaces", LIFE),
    Right("get", "", "configmaps", LIFE, "banlieue-installation"),
    Right("create get patch", EVENTS, "events", COUNTED),
    Right("get list watch patch", INFRA, "simulatedmachines", LIFE),
    Right("patch", INFRA, "simulatedmachines/status", LIFE),
)

STATIC: Final = (
    *_ANY_PROVIDER,
    Right("get list watch patch operate", OURS, "providers", LIFE, where=INSTALL),
    Right("patch", OURS, "providers/status", LIFE, where=INSTALL),
    Right("get patch", "", "secrets configmaps", LIFE, where=INSTALL),
    Right("create get patch", COORDINATION, "leases", LIFE, where=INSTALL),
)


def provider(name: str, uid: str, granted: Iterable[str]) -> tuple[Right, ...]:
    """What the account the operator makes for a Provider may do, with Secrets granted to it.

    The Provider names a Secret and a ConfigMap, called after it.
    """
    return (
        *_ANY_PROVIDER,
        Right("get list watch patch operate", OURS, "providers", ENOUGH, name, INSTALL),
        Right("patch", OURS, "providers/status", ENOUGH, name, INSTALL),
        Right("get patch", "", "secrets", ENOUGH, f"{name}-creds", INSTALL),
        Right("get patch", "", "configmaps", ENOUGH, f"{name}-ca", INSTALL),
        Right("create", COORDINATION, "leases", ENOUGH, where=INSTALL),
        Right("get patch", COORDINATION, "leases", ENOUGH, uid, INSTALL),
        *(Right("get", "", "secrets", GRANTED, secret, TENANT) for secret in granted),
    )


def told(rights: Iterable[Right], where: str) -> set[str]:
    """One line per verb, resource and name that are allowed in a kind of namespace."""
    return {
        _line(verb, right.group, resource, right.names)
        for right in rights
        if right.where in {EVERYWHERE, where}
        for resource in right.resources.split()
        for verb in right.verbs.split()
    }


def asked(client: Kube, namespace: str) -> set[str]:
    """The same as the API server says it of a client's token, but for what everybody may."""
    review = client.create(
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "metadata": {},
            "spec": {"namespace": namespace},
        }
    )
    status = review["status"]
    assert not status.get("incomplete"), status
    return {line for rule in status["resourceRules"] for line in _lines(rule)}


def may(kube: Kube, user: str, what: str, namespace: str) -> bool:
    """What a SubjectAccessReview says; `what` is `verb group/resource[/subresource]`."""
    verb, _, resource = what.partition(" ")
    group, plural, *sub = resource.split("/")
    attributes = {
        "verb": verb,
        "group": group,
        "resource": plural,
        "subresource": "/".join(sub),
        "namespace": namespace,
    }
    account_namespace = user.split(":")[2]
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{account_namespace}"]
    review = kube.create(
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {
                "user": user,
                "groups": [*groups, "system:authenticated"],
                "resourceAttributes": {key: value for key, value in attributes.items() if value},
            },
        }
    )
    return bool(review["status"].get("allowed"))


def can_i(page: str) -> Mapping[str, tuple[str, ...]]:
    """The answers that a page's table promises to `kubectl auth can-i`, by its further words.

    Args:
        page: the page's text; the first table whose head names that command is meant.

    Returns:
        One answer for each identity, in the order of the table.
    """
    _, _, below = page.partition("| `kubectl auth can-i` |")
    table, _, _ = below.partition("\n\n")
    rows = (line.strip().strip("|").split("|") for line in table.splitlines()[2:])
    return {words.strip(" `"): tuple(map(str.strip, answers)) for words, *answers in rows}


def matrix(lines: Iterable[str]) -> str:
    """A table for people: resources down, verbs across; a name is told beside its resource."""
    verbs = (
        *("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
        *("operate", "bind", "escalate", "impersonate", "approve"),
    )
    rows: dict[str, set[str]] = {}
    for line in lines:
        verb, _, rest = line.partition(" ")
        rows.setdefault(rest, set()).add(verb)
    width = max((len(row) for row in rows), default=0)
    head = " " * width + " " + " ".join(f"{verb[:6]:6}" for verb in verbs)
    body = [
        f"{row:{width}} " + " ".join("yes   " if verb in rows[row] else ".     " for verb in verbs)
        for row in sorted(rows)
    ]
    return "\n".join([head, *body])


def _lines(rule: Mapping[str, Any]) -> Iterator[str]:
    for group in rule.get("apiGroups") or ("",):
        if group in {"authorization.k8s.io", "authentication.k8s.io"}:
            continue  # everybody may ask who he is and what he may do
        for resource in rule["resources"]:
            for name in rule.get("resourceNames") or ("",):
                for verb in rule["verbs"]:
                    yield _line(verb, group, resource, name)


def _line(verb: str, group: str, resource: str, name: str) -> str:
    return f"{verb} {group}/{resource}{f' {name}' if name else ''}"
