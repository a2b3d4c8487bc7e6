import json
from pathlib import Path

import pytest
import yaml

from test.kit.certificates import KeyPair
from test.kit.discovery import Discovery, Resource
from test.kit.kube_http import KubeError, error_of
from test.kit.kubeconfig import Access, read_kubeconfig

IDENTITY = KeyPair(b"certificate", b"key")


class _Answers:
    """An API server that knows nothing but its kinds."""

    def __init__(self, documents: dict[str, object]) -> None:
        self.documents = documents

    def __call__(self, path: str) -> bytes:
        return json.dumps(self.documents[path]).encode()


def _kind(kind: str, plural: str, *short: str, scope: str = "Namespaced") -> dict[str, object]:
    return {
        "resource": plural,
        "singularResource": kind.lower(),
        "shortNames": list(short),
        "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": scope,
        "verbs": ["get", "list"],
    }


def _group(name: str, **versions: list[dict[str, object]]) -> dict[str, object]:
    metadata = {"name": name} if name else {}
    listed = [{"version": key, "resources": value} for key, value in versions.items()]
    return {"metadata": metadata, "versions": listed}


@pytest.fixture
def answers() -> _Answers:
    core = _group("", v1=[_kind("Event", "events", "ev"), _kind("Node", "nodes", scope="Cluster")])
    events = _group("events.k8s.io", v1=[_kind("Event", "events", "ev")])
    machines = [_kind("Machine", "machines", "ma")]
    capi = _group("cluster.x-k8s.io", v1beta2=machines, v1beta1=machines)
    return _Answers({"/api": {"items": [core]}, "/apis": {"items": [events, capi]}})


@pytest.mark.parametrize("name", ["machines", "Machine", "ma", "machine.cluster.x-k8s.io"])
def test_a_kind_goes_by_all_its_names_in_its_preferred_version(
    answers: _Answers, name: str
) -> None:
    resource = Discovery(answers).resource(name)

    assert resource.api_version == "cluster.x-k8s.io/v1beta2"
    assert resource.path("ns", "one", "status") == (
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/ns/machines/one/status"
    )


def test_the_core_group_goes_first_unless_a_group_is_named(answers: _Answers) -> None:
    discovery = Discovery(answers)

    assert discovery.resource("events").path("ns") == "/api/v1/namespaces/ns/events"
    assert discovery.resource("events.events.k8s.io").path(None) == "/apis/events.k8s.io/v1/events"


def test_an_object_has_exactly_the_version_it_names(answers: _Answers) -> None:
    discovery = Discovery(answers)

    old = discovery.resource_of({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine"})

    assert old.version == "v1beta1"
    with pytest.raises(KubeError, match=r"serves no Machine in cluster\.x-k8s\.io/v1"):
        discovery.resource_of({"apiVersion": "cluster.x-k8s.io/v1", "kind": "Machine"})


def test_a_kind_that_comes_later_is_found(answers: _Answers) -> None:
    discovery = Discovery(answers)
    with pytest.raises(KubeError, match="404 NotFound: the server serves no kind 'gadget'"):
        discovery.resource("gadget")

    gadgets = _group("kit.test", v1=[_kind("Gadget", "gadgets")])
    answers.documents["/apis"] = {"items": [gadgets]}

    assert discovery.resource("gadget").kind == "Gadget"


def test_an_object_of_a_namespaced_kind_needs_its_namespace(answers: _Answers) -> None:
    discovery = Discovery(answers)
    machines: Resource = discovery.resource("machines")

    with pytest.raises(ValueError, match="Machine 'one' needs a namespace"):
        machines.path(None, "one")
    assert discovery.resource("nodes").path(None, "one") == "/api/v1/nodes/one"


def test_errors_say_what_the_server_said() -> None:
    details = {"causes": [{"field": "spec.size"}]}
    status = {"reason": "Invalid", "message": "spec.size: too small", "details": details}

    error = error_of(422, json.dumps(status).encode())

    assert str(error) == "422 Invalid: spec.size: too small"
    assert (error.status, error.reason, error.details) == (422, "Invalid", details)
    assert str(error_of(404, b"404 page not found\n")) == "404 Not Found: 404 page not found"


def test_a_kubeconfig_is_read_as_it_was_written(tmp_path: Path) -> None:
    access = Access("https://127.0.0.1:1", b"authority", IDENTITY, "planted-token", "ns")

    path = access.write(tmp_path / "new" / "config")

    assert read_kubeconfig(path) == access
    assert path.stat().st_mode & 0o777 == 0o600
    assert "planted-token" not in repr(access)


def test_a_kubeconfig_may_name_files(tmp_path: Path) -> None:
    access = Access("https://127.0.0.1:1", b"authority", IDENTITY)
    document = yaml.safe_load(access.write(tmp_path / "config").read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    for entry, key in (
        (cluster, "certificate-authority"),
        (user, "client-certificate"),
        (user, "client-key"),
    ):
        del entry[f"{key}-data"]
        entry[key] = key
    (tmp_path / "certificate-authority").write_bytes(b"authority")
    IDENTITY.write(tmp_path, "client")
    (tmp_path / "client.crt").rename(tmp_path / "client-certificate")
    (tmp_path / "client.key").rename(tmp_path / "client-key")
    (tmp_path / "config").write_text(yaml.safe_dump(document))

    assert read_kubeconfig(tmp_path / "config") == access


@pytest.mark.parametrize("text", ["{}", "", "current-context: a\ncontexts: []"])
def test_a_kubeconfig_without_context_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)

    with pytest.raises(ValueError, match="config has no usable current context"):
        read_kubeconfig(path)
