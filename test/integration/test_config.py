"""What `config` and `templates` build, on a real API server."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import banlieue
from hack import release
from hack.components import COMPONENTS, backends, build, semantic_version, write_components
from test.kit.controlplane import ControlPlane
from test.kit.envsubst import substitute
from test.kit.kube import Kube, KubeError
from test.kit.namespaces import create_namespace, discard_namespace
from test.kit.stack import provider
from test.kit.waiting import wait_until
from test.kit.yaml_text import yaml_documents

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
VERSION = semantic_version(banlieue.__version__)
IMAGE = "registry.example/banlieue:v9"
INSTALLED_AS = "banlieue-system"
VALUES = {
    "CLUSTER_NAME": "prod",
    "KUBERNETES_VERSION": "v1.36.3",
    "CONTROL_PLANE_ENDPOINT_HOST": "10.20.0.10",
    "BANLIEUE_IMAGE": "ubuntu-24.04-kube",
    "BANLIEUE_NETWORK_CLASS": "prod",
    "BANLIEUE_STORAGE_CLASS": "gold",
    "BANLIEUE_PROVIDER_1": "vc-1",
    "BANLIEUE_PROVIDER_2": "vc-2",
    "BANLIEUE_FAILURE_DOMAIN_1": "vc-1-dc0-c0",
    "BANLIEUE_FAILURE_DOMAIN_2": "vc-2-dc0-c0",
}

Object = dict[str, Any]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The manifests of a release, by name."""
    directory = tmp_path_factory.mktemp("release")
    texts = {"components": write_components(directory, VERSION, IMAGE).read_text()}
    for backend, folder in backends().items():
        texts[backend] = build(folder, VERSION, IMAGE)
    return texts


def objects(text: str) -> list[Object]:
    return [it for it in yaml_documents(text) if it]


def read(kube: Kube, obj: Object) -> Object | None:
    meta = obj["metadata"]
    return kube.find(obj["kind"], meta["name"], meta.get("namespace"))


@pytest.fixture
def install(
    control_plane: ControlPlane, namespace: str, built: dict[str, str]
) -> Iterator[Callable[[], list[Object]]]:
    """Applies everything as a user does, under a namespace of the test's own."""
    text = "---\n".join(built.values()).replace(INSTALLED_AS, namespace)
    found = objects(text)

    def apply() -> list[Object]:
        control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text)
        return found

    yield apply
    for obj in found:
        if obj["kind"] not in {"CustomResourceDefinition", "Namespace"}:
            meta = obj["metadata"]
            control_plane.kube.delete(
                obj["kind"], meta["name"], meta.get("namespace"), missing_ok=True
            )


def test_an_install_is_accepted_and_a_second_one_changes_nothing(
    install: Callable[[], list[Object]], kube: Kube
) -> None:
    # Controllers of the cluster write into these by themselves.
    moving = {"CustomResourceDefinition", "Namespace", "ValidatingAdmissionPolicy", "Deployment"}

    def versions() -> dict[tuple[str, str], tuple[object, ...]]:
        found: dict[tuple[str, str], tuple[object, ...]] = {}
        for obj in install():
            there = read(kube, obj)
            assert there is not None, obj["metadata"]["name"]
            meta, kind = there["metadata"], obj["kind"]
            aggregated = "aggregationRule" in obj
            version = "" if kind in moving or aggregated else meta["resourceVersion"]
            found[(kind, meta["name"])] = (meta["uid"], meta.get("generation"), version)
        return found

    first = versions()
    assert versions() == first
    assert {"Deployment", "ClusterRoleBinding", "ValidatingAdmissionPolicy"} <= {
        it[0] for it in first
    }


@pytest.mark.security("1.4")
def test_every_pod_passes_the_namespaces_pod_security(
    install: Callable[[], list[Object]], kube: Kube, namespace: str
) -> None:
    found = install()
    deployments = [it for it in found if it["kind"] == "Deployment"]
    assert {it["metadata"]["name"] for it in deployments} == {
        "banlieue-controller",
        "banlieue-operator",
        *(f"banlieue-provider-{backend}" for backend in backends()),
    }
    for deployment in deployments:
        template = deployment["spec"]["template"]
        name = deployment["metadata"]["name"]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": name, "namespace": namespace},
            "spec": template["spec"],
        }
        made = kube.create(pod, dry_run=True)
        assert made["spec"]["serviceAccountName"] == name
        (container,) = template["spec"]["containers"]
        container["securityContext"]["readOnlyRootFilesystem"] = False
        container["securityContext"]["allowPrivilegeEscalation"] = True
        with pytest.raises(KubeError, match="violates PodSecurity"):
            kube.create(pod, dry_run=True)


def test_everything_is_labelled_and_runs_the_released_image(built: dict[str, str]) -> None:
    for name, text in built.items():
        for obj in objects(text):
            labels = obj["metadata"]["labels"]
            assert labels["app.kubernetes.io/name"] == "banlieue"
            assert labels["app.kubernetes.io/version"] == VERSION
            whose = labels.get("cluster.x-k8s.io/provider")
            # What clusterctl did not install it must not scale down or count in.
            assert whose == ("infrastructure-banlieue" if name == "components" else None)
            if obj["kind"] == "Deployment":
                (container,) = obj["spec"]["template"]["spec"]["containers"]
                assert container["image"] == IMAGE


def test_the_providers_differ_by_their_backend_only(built: dict[str, str]) -> None:
    every = backends()
    texts = {built[backend].replace(backend, "BACKEND") for backend in every}
    assert len(texts) == 1, "and none takes the pods, the account or the rights of another"
    for backend in every:
        (deployment,) = [it for it in objects(built[backend]) if it["kind"] == "Deployment"]
        selector = deployment["spec"]["selector"]["matchLabels"]
        assert selector["app.kubernetes.io/component"] == f"provider-{backend}"
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["args"][:2] == ["provider", backend]


def test_a_release_is_the_same_every_time(built: dict[str, str], tmp_path: Path) -> None:
    outs = [tmp_path / name for name in ("first", "second")]
    for out in outs:
        assert release.main(["--no-image", "--image", IMAGE, "--out", str(out)]) == 0
    first, second = ({path.name: path.read_bytes() for path in out.iterdir()} for out in outs)
    assert first == second
    assert first[COMPONENTS].decode() == built["components"]
    assert first["provider-vsphere.yaml"].decode() == built["vsphere"]
    templates = {path.name for path in (ROOT / "templates").iterdir()}
    assert first.keys() == templates | {
        COMPONENTS,
        "checksums.txt",
        "crds.yaml",
        "metadata.yaml",
        "node-patcher.yaml",
        *(f"provider-{backend}.yaml" for backend in backends()),
        f"banlieue-{banlieue.__version__}-py3-none-any.whl",
    }


def test_cluster_api_gets_its_rights(
    install: Callable[[], list[Object]], control_plane: ControlPlane, namespace: str
) -> None:
    install()
    kube = control_plane.kube
    label = "kubeadm.controlplane.cluster.x-k8s.io/aggregate-to-manager"
    name = f"{namespace}-kubeadm-manager"
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]},
    }
    kube.create(role)
    try:
        kube.wait_for(
            "clusterroles",
            name,
            until=lambda it: "infrastructure.banlieue.io" in str(it.get("rules")),
            what="aggregated",
        )
    finally:
        kube.delete("clusterroles", name)


def let_in(kube: Kube, namespace: str, role: str, user: str) -> None:
    """Give somebody a built-in role in a namespace."""
    group = "rbac.authorization.k8s.io"
    kube.create(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"namespace": namespace, "name": user},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }
    )


@pytest.mark.usefixtures("definitions")
@pytest.mark.security("1.5")
def test_who_may_edit_a_namespace_may_have_vms_there_and_no_more(
    install: Callable[[], list[Object]], control_plane: ControlPlane, namespace: str
) -> None:
    install()
    let_in(control_plane.kube, namespace, "edit", "tenant")
    with closing(Kube(control_plane.kubeconfig_for_user("tenant"))) as tenant:

        def allowed(verb: str, group: str, resource: str, where: str = namespace) -> bool:
            asked = {"namespace": where, "verb": verb, "group": group, "resource": resource}
            review = tenant.create(
                {
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": "SelfSubjectAccessReview",
                    "metadata": {},
                    "spec": {"resourceAttributes": asked},
                }
            )
            return bool(review["status"]["allowed"])

        ours, infrastructure = "banlieue.io", "infrastructure.banlieue.io"
        wait_until(
            lambda: allowed("create", ours, "virtualmachines"), 30, "the roles to be taken in"
        )
        wait_until(lambda: allowed("list", infrastructure, "vspheremachines"), 30, "view likewise")
        assert allowed("create", infrastructure, "vsphereclusters")
        assert not allowed("create", infrastructure, "vspheremachines")
        assert not allowed("patch", infrastructure, "vspheremachines")
        assert not allowed("get", ours, "providers")
        assert not allowed("create", ours, "virtualmachines", "default")


@pytest.mark.usefixtures("definitions")
@pytest.mark.security("4.2")
def test_who_runs_a_namespace_offers_its_providers_to_nobody_else(
    install: Callable[[], list[Object]], control_plane: ControlPlane, namespace: str
) -> None:
    install()
    kube, words = control_plane.kube, "by who may share providers.banlieue.io in the whole cluster"
    let_in(kube, namespace, "admin", "landlord")
    own = provider(
        namespace,
        "own",
        backend="simulated",
        connection={"endpoint": "http://vcenter.invalid"},
        storage={"pool": "x"},
        network={"network": "x"},
    )
    by_label = {"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}
    offers: list[Object] = [{"from": "All"}, by_label]
    with closing(Kube(control_plane.kubeconfig_for_user("landlord"))) as landlord:

        def offered(to: Object) -> Object:
            return {**own, "spec": {**own["spec"], "allowedNamespaces": to}}

        def refused() -> bool:
            try:
                landlord.create(offered({"from": "All"}), dry_run=True)
            except KubeError as error:
                return words in error.message
            return False

        wait_until(refused, 30, "his rights, and their end")
        landlord.create(offered({"from": "Same"}))
        for offer in offers:
            for name in ("own", "another"):
                obj = {**offered(offer), "metadata": {"namespace": namespace, "name": name}}
                with pytest.raises(KubeError, match=words):
                    landlord.apply(obj, force=True)
            spec = {"spec": {"allowedNamespaces": offer}}
            with pytest.raises(KubeError, match=words):
                landlord.patch("providers", "own", spec, namespace)
        kube.patch("providers", "own", {"spec": {"allowedNamespaces": {"from": "All"}}}, namespace)
        landlord.patch("providers", "own", {"spec": {"cordoned": True}}, namespace)
        with pytest.raises(KubeError, match=words):
            landlord.patch("providers", "own", {"spec": {"allowedNamespaces": by_label}}, namespace)
        landlord.patch("providers", "own", {"spec": {"allowedNamespaces": None}}, namespace)
        landlord.delete("providers", "own", namespace)


@pytest.fixture
def definitions(control_plane: ControlPlane) -> None:
    """Our kinds are served."""
    found = sorted((ROOT / "config" / "crd" / "bases").glob("*.yaml"))
    control_plane.install_crds(it for path in found for it in objects(path.read_text()))


@pytest.fixture
def tenant(kube: Kube) -> Iterator[str]:
    """A namespace of a user's."""
    name = create_namespace(kube, "tenant")
    yield name
    discard_namespace(kube, name)


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("path", sorted(ROOT.glob("templates/*.yaml")), ids=lambda path: path.stem)
def test_the_server_takes_our_kinds_of_a_template(path: Path, kube: Kube, tenant: str) -> None:
    values = {**VALUES, "NAMESPACE": tenant, "CLUSTER_CLASS_NAMESPACE": tenant}
    found = objects(substitute(path.read_text(encoding="utf-8"), values))
    ours = [it for it in found if it["apiVersion"].startswith("infrastructure.banlieue.io/")]
    assert ours or "topology" in path.stem
    for obj in ours:
        made = kube.create(obj, tenant, dry_run=True)
        assert made["spec"] == obj["spec"], "the server adds nothing and drops nothing"
