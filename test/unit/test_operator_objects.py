"""What is made for a Provider, object by object."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from banlieue.api import names
from banlieue.api.resources import DEPLOYMENTS, NETWORK_POLICIES, ROLES
from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.providerclass import ProviderClassSpec
from banlieue.cli import roles
from banlieue.operator import compare
from banlieue.operator.objects import Surroundings, Wanted, Workload, role_rules
from banlieue.sdk.kube import Key

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
MACHINE = {"apiGroup": "a.io", "version": "v1", "kind": "VSphereMachine"}


def a_provider(name: str = "prod", namespace: str = "banlieue-system", **to: Any) -> Provider:  # noqa: ANN401 - JSON
    connection = {"endpoint": "https://vcenter.example.com/sdk", **to}
    return Provider.from_api(
        {
            "metadata": {"name": name, "namespace": namespace, "uid": "u-1"},
            "spec": {"providerClassRef": {"name": "vsphere"}, "connection": connection},
        }
    )


def a_workload(provider: Provider | None = None, **spec: object) -> Workload:
    of_class = ProviderClassSpec.from_api({"backend": "vsphere", "machine": MACHINE, **spec})
    return Workload(provider or a_provider(), of_class, Surroundings(image="r/b:v1"))


def one(workload: Workload, resource: object) -> Wanted:
    (found,) = [it for it in workload.wanted() if it.resource == resource]
    return found


def pod_of(workload: Workload) -> dict[str, Any]:
    pod: dict[str, Any] = one(workload, DEPLOYMENTS).parts["spec"]["template"]["spec"]
    return pod


# Names


def test_a_workload_is_called_after_backend_and_provider() -> None:
    found = names.provider_workload_name("vsphere", "prod-vc", "banlieue-system", "banlieue-system")
    assert found == "banlieue-provider-vsphere-prod-vc"
    away = names.provider_workload_name("vsphere", "prod-vc", "infra", "banlieue-system")
    assert re.fullmatch(r"banlieue-provider-vsphere-prod-vc-[0-9a-f]{8}", away)


LABELS = st.from_regex(r"\A[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?\Z")
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join).filter(lambda it: len(it) <= 253)


@given(backend=st.sampled_from(["vsphere", "x" * 40]), provider=NAMES, namespace=LABELS)
def test_a_name_is_valid_everywhere_it_is_put(backend: str, provider: str, namespace: str) -> None:
    for install in (namespace, "banlieue-system"):
        found = names.provider_workload_name(backend, provider, namespace, install)
        assert len(found) <= 63
        assert NAME.fullmatch(found)
        assert found.startswith("banlieue-provider-")


# Rights


def test_a_role_names_what_the_provider_names_and_nothing_more() -> None:
    provider = a_provider(
        credentialsRef={"name": "creds"}, caBundle={"configMapRef": {"name": "ca", "key": "k"}}
    )
    rules = {tuple(rule["resources"]): rule for rule in role_rules(provider)}
    assert rules[("secrets",)]["resourceNames"] == ["creds"]
    assert rules[("configmaps",)]["resourceNames"] == ["ca"]
    in_secret = a_provider(
        credentialsRef={"name": "creds"}, caBundle={"secretRef": {"name": "ca", "key": "k"}}
    )
    rules = {tuple(rule["resources"]): rule for rule in role_rules(in_secret)}
    assert rules[("secrets",)]["resourceNames"] == ["ca", "creds"]
    assert ("configmaps",) not in rules


def test_a_role_without_names_would_be_one_on_everything() -> None:
    for provider in (a_provider(), a_provider(credentialsRef={"name": "creds"})):
        for rule in role_rules(provider):
            assert rule.get("resourceNames") or rule["verbs"] == ["create"]
    kinds = [it["resources"] for it in role_rules(a_provider())]
    assert ["secrets"] not in kinds


def test_no_right_of_a_role_is_unbounded() -> None:
    for rule in one(a_workload(), ROLES).parts["rules"]:
        assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])


# The pod


def test_a_pod_is_shaped_like_that_of_a_provider_without_an_operator() -> None:
    path = ROOT / "config" / "providers" / "base" / "deployment.yaml"
    shipped = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
    made = one(a_workload(), DEPLOYMENTS).parts["spec"]
    ours, theirs = made["template"]["spec"], shipped["template"]["spec"]
    (container,), (base,) = ours["containers"], theirs["containers"]
    differs = {"containers", "serviceAccountName"}
    assert compare.same({k: v for k, v in theirs.items() if k not in differs}, ours)
    said = {"args", "image", "imagePullPolicy"}
    assert compare.same({k: v for k, v in base.items() if k not in said}, container)
    assert (made["strategy"], made["replicas"]) == (shipped["strategy"], shipped["replicas"])
    key = "kubectl.kubernetes.io/default-container"
    assert made["template"]["metadata"]["annotations"][key] == "manager"


def test_the_arguments_are_what_the_command_line_knows() -> None:
    workload = a_workload(a_provider("far.away", "infra"), logLevel="debug")
    (container,) = pod_of(workload)["containers"]
    role, *arguments = container["args"]
    (command,) = [it for it in roles.COMMANDS if it.name == role]
    options = command.make_context(role, arguments).params
    assert options["only"] == Key("infra", "far.away")
    assert options["backend"] == "vsphere"
    assert options["system_namespace"] == "banlieue-system"
    assert options["log_level"] == "debug"
    assert options["http_host"] == "0.0.0.0"  # noqa: S104 - in a pod


def test_the_class_shapes_the_pod() -> None:
    node = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
            ]
        }
    }
    away = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 5,
                "podAffinityTerm": {
                    "labelSelector": {"matchLabels": {"app": "x"}},
                    "topologyKey": "kubernetes.io/hostname",
                },
            }
        ]
    }
    affinity = {"nodeAffinity": node, "podAntiAffinity": away}
    workload = a_workload(
        affinity=affinity,
        nodeSelector={"disk": "ssd"},
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        resources={"requests": {"cpu": 1, "memory": "1Gi"}},
        priorityClassName="high",
        imagePullSecrets=[{"name": "pull"}],
        podLabels={"team": "a", "app.kubernetes.io/instance": "mine"},
        podAnnotations={"note": "n"},
        image={"pullPolicy": "Always"},
    )
    pod = pod_of(workload)
    assert pod["affinity"] == affinity
    assert pod["nodeSelector"] == {"disk": "ssd", "kubernetes.io/os": "linux"}
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert pod["priorityClassName"] == "high"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    (container,) = pod["containers"]
    assert container["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}}
    assert container["imagePullPolicy"] == "Always"
    made = one(workload, DEPLOYMENTS).parts["spec"]
    labels = made["template"]["metadata"]["labels"]
    assert labels["team"] == "a"
    assert made["selector"]["matchLabels"].items() <= labels.items(), "a class cannot take them"


def test_two_providers_never_take_each_others_pods() -> None:
    first = one(a_workload(a_provider("a", "one")), DEPLOYMENTS).parts["spec"]
    second = one(a_workload(a_provider("a", "two")), DEPLOYMENTS).parts["spec"]
    assert first["selector"] != second["selector"]


# The network


def egress(*, access: dict[str, Any], **to: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON
    workload = a_workload(a_provider(**to), networkPolicy=access)
    rules: list[dict[str, Any]] = one(workload, NETWORK_POLICIES).parts["spec"]["egress"]
    return rules[1:]


def tcp(*ports: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port} for port in ports]


def test_a_name_is_any_address_at_its_port() -> None:
    api, backend = egress(access={})
    assert api == {"ports": tcp(443, 6443)}
    assert backend == {"ports": tcp(443)}


@pytest.mark.parametrize(
    ("endpoint", "cidr", "port"),
    [
        ("https://10.0.0.7/sdk", "10.0.0.7/32", 443),
        ("https://10.0.0.7:8443/sdk", "10.0.0.7/32", 8443),
        ("https://[2001:db8::7]/sdk", "2001:db8::7/128", 443),
        ("http://10.0.0.7", "10.0.0.7/32", 80),
        ("qemu+tls://10.0.0.7/system", "10.0.0.7/32", 16514),
    ],
)
def test_an_address_is_that_address(endpoint: str, cidr: str, port: int) -> None:
    _, backend = egress(access={}, endpoint=endpoint)
    assert backend == {"to": [{"ipBlock": {"cidr": cidr}}], "ports": tcp(port)}


def test_the_admin_knows_better() -> None:
    api, backend = egress(
        access={
            "backendAddresses": ["10.1.0.0/16"],
            "backendPorts": [902],
            "apiServerAddresses": ["10.2.0.1/32"],
            "apiServerPorts": [8443],
        }
    )
    assert api == {"to": [{"ipBlock": {"cidr": "10.2.0.1/32"}}], "ports": tcp(8443)}
    assert backend == {"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": tcp(443, 902)}


def test_several_endpoints_are_all_reached() -> None:
    found = egress(
        access={},
        endpoint=None,
        endpoints=[
            "https://10.0.0.1:8006",
            "https://10.0.0.2:8006",
            "https://pve.example.com:8006",
        ],
    )
    assert [it.get("to") for it in found[1:]] == [
        [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
        [{"ipBlock": {"cidr": "10.0.0.2/32"}}],
        None,
    ]


def test_an_endpoint_that_makes_no_sense_opens_nothing() -> None:
    for endpoint in ("https://[::1", "https://host:port"):
        _, backend = egress(access={}, endpoint=endpoint)
        assert backend == {"ports": tcp(9)}


# Comparing


@pytest.mark.parametrize(
    ("one", "other"),
    [("1000m", "1"), ("0.5", "500m"), ("1024Mi", "1Gi"), ("1k", "1000"), ("1.5", "1500m")],
)
def test_a_quantity_is_what_it_is_worth(one: str, other: str) -> None:
    assert compare.same({"limits": {"cpu": one}}, {"limits": {"cpu": other}})
    assert not compare.same({"limits": {"cpu": one}}, {"limits": {"cpu": f"{other}0"}})


JSON = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
)


@given(JSON)
def test_everything_is_like_itself(value: Any) -> None:  # noqa: ANN401 - JSON
    assert compare.same(value, value)


@given(st.dictionaries(st.text(min_size=1, max_size=3), JSON, max_size=4))
def test_what_others_add_to_a_map_does_no_harm(value: dict[str, Any]) -> None:
    assert compare.same(value, {**value, "added-by-others": "x"})


@given(st.lists(JSON, max_size=4))
def test_what_others_add_to_a_list_is_seen(value: list[Any]) -> None:
    assert not compare.same(value, [*value, {"name": "x"}])
