"""`banlieue bootstrap` on a real API server that nothing was installed on before."""

import copy
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from banlieue.api import names
from banlieue.api.kinds import KINDS
from banlieue.api.meta import ResourceObject
from banlieue.bootstrap import leftovers
from banlieue.bootstrap.kinds import lost_fields
from banlieue.bootstrap.objects import key_of, title
from banlieue.bootstrap.plan import Target, definitions, operator_plan, provider_plan
from banlieue.bootstrap.release import Release
from banlieue.cli import main
from banlieue.sdk.simulated.models import KINDS as SIMULATED_KINDS
from hack import release
from hack.components import CONFIG, ROOT, backends, build
from test.kit.controlplane import ControlPlane
from test.kit.filled import variants
from test.kit.kube import Kube, Object
from test.kit.stack import Role, credentials, is_ready, provider, provider_class
from test.kit.waiting import wait_until
from test.kit.yaml_text import yaml_documents

pytestmark = pytest.mark.slow

SYSTEM = "banlieue-system"
RELEASE = Release.of("v9", "registry.example")
OLDER = ROOT / "test" / "kit" / "older_kinds.yaml"


class Place:
    """One cluster, and whether banlieue is installed in it; each command is run as by its admin."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.control_plane = control_plane
        self.kube = control_plane.kube
        self.kubectl = control_plane.kubectl
        self.installed = False

    def run(self, *arguments: str, kubeconfig: Path | None = None) -> Result:
        if not main.cli.commands:
            main._register()
        environment = {"KUBECONFIG": str(kubeconfig or self.control_plane.kubeconfig)}
        return CliRunner().invoke(main.cli, ["bootstrap", *arguments], env=environment)

    def succeed(self, *arguments: str) -> Result:
        told = self.run(*arguments)
        assert told.exit_code == 0, told.output
        return told

    def install(self) -> None:
        if not self.installed:
            self.succeed("operator", "--no-wait")
        self.installed = True
        self.kube.resources()

    def uninstall(self, namespace: str = SYSTEM) -> None:
        self.succeed("uninstall", "--include-namespace", "--namespace", namespace)
        self.installed = False
        assert ours(self.kube) == []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A cluster of these tests' own."""
    with ControlPlane(tmp_path_factory.mktemp("own")) as control_plane:
        yield Place(control_plane)


@pytest.fixture
def empty(place: Place) -> Place:
    """Nothing of ours is there, not even a kind."""
    if place.installed:
        place.uninstall()
    return place


@pytest.fixture
def installed(place: Place) -> Place:
    """The operator's path is there, as this version has it."""
    place.install()
    return place


def printed(*arguments: str) -> str:
    """What --dry-run prints to somebody who has no cluster at all."""
    told = subprocess.run(
        [sys.executable, "-m", "banlieue", "bootstrap", *arguments, "--dry-run"],
        env={"PATH": "/nonexistent", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    assert told.stderr == ""
    return told.stdout


def ours(kube: Kube) -> list[str]:
    """Everything with our label, and our kinds."""
    kinds = [str(it.kind) for it in leftovers.KINDS]
    selector = "app.kubernetes.io/part-of=banlieue"
    found = [it for kind in kinds for it in kube.list(kind, label_selector=selector)]
    definitions = kube.list("CustomResourceDefinition")
    return [title(it) for it in (*found, *definitions) if "banlieue" in it["metadata"]["name"]]


def in_cluster(kube: Kube, obj: Object) -> Object | None:
    meta = obj["metadata"]
    return kube.find(obj["kind"], meta["name"], meta.get("namespace"))


# The same objects by every path


def by_title(objects: Any) -> dict[str, Object]:  # noqa: ANN401 - any iterable of YAML documents
    return {title(obj): obj for obj in objects}


def test_config_builds_the_very_objects_that_bootstrap_installs() -> None:
    """`infrastructure-components.yaml` of a release is this build, too."""
    built = yaml_documents(build(CONFIG / "default", RELEASE.version, RELEASE.image))
    planned = operator_plan(Target(release=RELEASE))
    assert by_title(built) == by_title(planned)


@pytest.mark.parametrize("backend", sorted(backends()))
def test_config_builds_the_very_static_provider_that_bootstrap_installs(backend: str) -> None:
    built = by_title(yaml_documents(build(backends()[backend], RELEASE.version, RELEASE.image)))
    planned = by_title(provider_plan(backend, Target(release=RELEASE)))
    beside = {it: planned.pop(it) for it in sorted(planned.keys() - built.keys())}
    assert built == planned
    assert {it["kind"] for it in beside.values()} == {"ClusterRole", "Namespace"}
    default = by_title(operator_plan(Target(release=RELEASE)))
    for name, obj in beside.items():
        obj["metadata"]["labels"].pop(names.LABEL_IN_USE, None)
        assert obj == default[name], "roles are those of every install"


def test_the_wheel_installs_the_same_as_the_tree(tmp_path: Path) -> None:
    release.write_wheel(tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    environment = {"PYTHONPATH": str(tmp_path / "installed"), "HOME": str(tmp_path)}
    code = (
        "import banlieue.cli.bootstrap as command, banlieue; "
        f"assert banlieue.__file__.startswith({str(tmp_path)!r}); command.bootstrap()"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, "operator", "--dry-run"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == printed("operator")


# Into an empty cluster


def test_the_stream_of_gitops_and_then_the_command(empty: Place) -> None:
    """Elsewhere than by default. What kubectl set stays kubectl's until it is taken over."""
    where = ("--namespace", "elsewhere")
    stream, beside = printed("operator", *where), printed("provider", "simulated", *where)
    for text in (stream, beside):
        empty.kubectl("apply", "-f", "-", input=text)
        for obj in yaml_documents(text):
            assert in_cluster(empty.kube, obj), title(obj)
    second = empty.run("operator", "--no-wait")
    assert second.exit_code == 1
    assert "installed in namespace elsewhere already" in second.output

    refused = empty.run("operator", "--no-wait", "--version", "v8", *where)
    assert refused.exit_code == 1
    for part in ("kubectl-client-side-apply", "--force-conflicts", "nothing was changed"):
        assert part in refused.output
    deployment = empty.kube.get("deployments", "banlieue-controller", "elsewhere")
    assert deployment["metadata"]["generation"] == 1, "and nothing was"
    empty.succeed("operator", "--no-wait", "--force-conflicts", *where)
    managers = "jsonpath={.items[*].metadata.managedFields[*].manager}"
    deployments = empty.kubectl("get", "deployments", "-n", "elsewhere", "-o", managers)
    assert deployments.split().count("kubectl-client-side-apply") == 1, "the static provider's"
    empty.uninstall("elsewhere")


def test_an_upgrade_keeps_stored_objects_and_what_others_set(empty: Place) -> None:
    """From kinds of an older version, with objects that have everything in them."""
    kube = empty.kube
    older = yaml_documents(OLDER.read_text(encoding="utf-8"))
    kube.apply_crds(older)
    kube.resources()
    stored = [it for kind in _kinds(older) for it in _store(kube, kind)]
    assert {it["kind"] for it in stored} == {it["spec"]["names"]["kind"] for it in older}
    before = [_find(kube, it) for it in stored]
    empty.succeed("operator", "--no-wait", "--force-conflicts")
    empty.installed = True
    kube.resources()
    try:
        assert [_find(kube, it) for it in stored] == before, "not even a resourceVersion"
        assert [_touch(kube, it) for it in stored] == [_parts(it) for it in before]
    finally:
        for obj in stored:
            kube.delete(obj["kind"], obj["metadata"]["name"], obj["metadata"].get("namespace"))

    plan = operator_plan(Target())
    assert empty.succeed("operator", "--no-wait").output == f"{len(plan)} unchanged\n"
    newer = ("--version", "v9", "--registry", "registry.example")
    shown = empty.run("operator", "--diff", *newer)
    assert shown.exit_code == 1
    assert "+        image: registry.example/banlieue:v9" in shown.output
    deployment = ("deployment", "banlieue-controller", "-n", SYSTEM)
    assert "v9" not in empty.kubectl("get", *deployment, "-o", "yaml"), "it was only shown"

    empty.kubectl("scale", *deployment, "--replicas=3")
    refused = empty.run("operator", "--no-wait", *newer)
    assert refused.exit_code == 1
    for part in (f"Deployment {SYSTEM}/banlieue-controller", 'with "kubectl"', ".spec.replicas"):
        assert part in refused.output
    assert len(refused.output.splitlines()) == 3
    forced = empty.succeed("operator", "--no-wait", "--force-conflicts", *newer)
    assert forced.output.splitlines()[-1] == f"{len(plan)} changed"
    assert kube.get("deployments", deployment[1], SYSTEM)["spec"]["replicas"] == 1


def test_what_the_server_never_changes_is_made_anew_by_an_upgrade(installed: Place) -> None:
    """An earlier version bound another role, or told its pods by other labels."""
    kube = installed.kube
    installed.succeed("operator", "--no-wait", "--force-conflicts")
    binding = kube.get("clusterrolebindings", "banlieue-system-controller")
    deployment = kube.get("deployments", "banlieue-controller", SYSTEM)
    older = [
        {**binding, "roleRef": {**binding["roleRef"], "name": "banlieue-older"}},
        copy.deepcopy(deployment),
    ]
    told = {"banlieue": "older"}
    older[1]["spec"]["selector"] = {"matchLabels": told}
    older[1]["spec"]["template"]["metadata"]["labels"] = told
    for obj in older:
        meta = obj["metadata"]
        kept = {name: meta[name] for name in ("name", "namespace", "labels") if name in meta}
        kube.delete(obj["kind"], meta["name"], meta.get("namespace"))
        kube.create({key: it for key, it in obj.items() if key != "status"} | {"metadata": kept})
    shown = installed.run("operator", "--diff")
    assert "-  name: banlieue-older" in shown.output
    said = installed.succeed("operator", "--no-wait", "--force-conflicts").output
    assert said.splitlines()[-1].startswith("2 changed"), said
    again = kube.get("clusterrolebindings", "banlieue-system-controller")
    assert again["roleRef"] == binding["roleRef"]
    now = kube.get("deployments", "banlieue-controller", SYSTEM)
    assert now["spec"]["selector"] == deployment["spec"]["selector"]

    meta = {"name": again["metadata"]["name"]}
    kube.delete("clusterrolebindings", meta["name"])
    foreign = {**again, "metadata": meta, "roleRef": {**binding["roleRef"], "name": "theirs"}}
    kube.create(foreign)
    refused = installed.run("operator", "--no-wait", "--force-conflicts")
    assert refused.exit_code == 1
    kept = kube.get("clusterrolebindings", meta["name"])["roleRef"]["name"]
    assert kept == "theirs", "what is somebody else's is not deleted"
    kube.delete("clusterrolebindings", meta["name"])
    installed.succeed("operator", "--no-wait")


def test_nobody_without_the_rights_changes_anything(installed: Place) -> None:
    nobody = installed.control_plane.kubeconfig_for_user("nobody")
    before = ours(installed.kube)
    for arguments in (("operator", "--no-wait"), ("uninstall",)):
        told = installed.run(*arguments, kubeconfig=nobody)
        assert told.exit_code == 1
        assert 'User "nobody" cannot' in told.output
        assert len(told.output.splitlines()) == 1
    assert ours(installed.kube) == before


# Without the operator


def allowed(kube: Kube, verb: str, resource: str, namespace: str, group: str = "") -> bool:
    asked = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
    review = kube.create(
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": asked},
        }
    )
    return bool(review["status"]["allowed"])


def test_a_grant_opens_one_namespace_for_reading(installed: Place) -> None:
    installed.succeed("provider", "simulated", "--no-wait")
    account = installed.control_plane.kubeconfig_for_service_account(
        SYSTEM, "banlieue-provider-simulated"
    )
    with closing(Kube(account)) as provider:
        assert not allowed(provider, "get", "secrets", "default")
        installed.succeed("grant", "-n", "default")
        wait_until(lambda: allowed(provider, "get", "secrets", "default"), 10, "the grant")
        for verb in ("list", "watch", "patch", "create", "delete"):
            assert not allowed(provider, verb, "secrets", "default"), verb
        assert not allowed(provider, "get", "secrets", "kube-system")
        assert not allowed(provider, "patch", "providers", "default", names.GROUP)
        installed.succeed("grant", "-n", "default", "--secret", "one")
        wait_until(lambda: not allowed(provider, "get", "secrets", "default"), 10, "one only")


def test_a_static_provider_serves_its_namespace_and_none_elsewhere(
    installed: Place, tmp_path: Path
) -> None:
    """With the account, the rights and the arguments it is installed with."""
    kube = installed.kube
    installed.succeed("provider", "simulated", "--no-wait")
    namespace = kube.get("namespaces", SYSTEM)
    assert namespace["metadata"]["labels"][names.LABEL_IN_USE] == "true"
    deployment = kube.get("deployments", "banlieue-provider-simulated", SYSTEM)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    arguments = [
        it.replace("$(POD_NAMESPACE)", SYSTEM) for it in container["args"] if "--http" not in it
    ]
    account = installed.control_plane.kubeconfig_for_service_account(
        SYSTEM, deployment["spec"]["template"]["spec"]["serviceAccountName"]
    )
    kube.apply(provider_class("simulated", "Simulated"))
    for where in (SYSTEM, "default"):
        kube.apply(credentials(where, "one-creds", "simulated", "simulated"))
        endpoint = {"endpoint": "simulated://memory/one"}
        places: dict[str, Any] = {"storage": {"pool": "fast"}, "network": {"network": "lan"}}
        made = provider(where, "one", backend="simulated", connection=endpoint, **places)
        kube.apply(made)
    role = Role("static", arguments, kubeconfig=account, directory=tmp_path)
    try:
        role.start(ready=False)
        kube.wait_for("providers", "one", SYSTEM, until=is_ready, timeout=60, what="Ready")
        assert "status" not in kube.get("providers", "one", "default")
        for where in (SYSTEM, "default"):
            kube.delete("providers", "one", where)
            kube.wait_gone("providers", "one", where, timeout=60)
    finally:
        role.kill9()
        kube.delete("providerclasses", "simulated")


def test_a_missing_namespace_of_a_tenant_is_told(installed: Place) -> None:
    told = installed.run("grant", "-n", "nowhere")
    assert told.exit_code == 1
    assert 'namespaces "nowhere" not found' in told.output


# Uninstall


def test_uninstall_refuses_while_somebody_would_lose_something(installed: Place) -> None:
    kube = installed.kube
    vm: Object = {"apiVersion": "banlieue.io/v1alpha1", "kind": "VirtualMachine"}
    vm["metadata"] = {"namespace": "default", "name": "db-1"}
    kube.create({**vm, "spec": {"classRef": {"name": "c"}, "imageRef": {"name": "i"}}})
    held = provider_class("simulated", "Simulated")
    held["metadata"] = {"name": "held", "finalizers": ["example.com/held"]}
    kube.create(held)
    before = ours(kube)
    told = installed.run("uninstall")
    assert told.exit_code == 1
    assert "VirtualMachine default/db-1" in told.output
    kube.delete("virtualmachines", "db-1", "default")
    told = installed.run("uninstall")
    assert told.exit_code == 1
    assert "ProviderClass held" in told.output
    left = ours(kube)
    kube.patch("providerclasses", "held", {"metadata": {"finalizers": None}})
    kube.delete("providerclasses", "held")
    assert left == before


# Kinds of an older version with stored objects


def test_no_version_forgets_a_field_of_an_older_one() -> None:
    now = {it["metadata"]["name"]: it for it in definitions()}
    for older in yaml_documents(OLDER.read_text(encoding="utf-8")):
        assert lost_fields(older, now[older["metadata"]["name"]]) == []


def _kinds(older: list[Object]) -> list[type[ResourceObject]]:
    named = {it["spec"]["names"]["kind"] for it in older}
    return [kind for kind in (*KINDS, *SIMULATED_KINDS) if kind.__name__ in named]


def _store(kube: Kube, kind: type[ResourceObject]) -> Iterator[Object]:
    """Objects with everything in them that the server's version of the kind knows."""
    for number, filled in enumerate(variants(kind)):
        obj = filled.to_api()
        obj["metadata"] = {"name": f"stored-{number}"}
        if "deletionProtection" in obj["spec"]:
            obj["spec"]["deletionProtection"] = False  # it has to go in the end
        namespace = "default" if kind.resource.namespaced else None
        path = kube.resource(kind.resource.plural).path(namespace)
        ignoring = {"fieldValidation": "Ignore", "fieldManager": "somebody"}
        created = kube.request("POST", path, query=ignoring, body=obj)
        assert created["spec"]
        if "status" in obj:
            where = f"{path}/{created['metadata']['name']}/status"
            body = {**created, "status": obj["status"]}
            created = kube.request("PUT", where, query=ignoring, body=body)
        yield created


def _touch(kube: Kube, obj: Object) -> Object:
    """Whatever rules are new, a stored object can be written, or nobody could let it go."""
    meta = obj["metadata"]
    finalizer = {"metadata": {"finalizers": ["example.com/looked-at"]}}
    found = kube.patch(obj["kind"], meta["name"], finalizer, meta.get("namespace"))
    kube.patch(obj["kind"], meta["name"], {"metadata": {"finalizers": None}}, meta.get("namespace"))
    return _parts(found)


def _parts(obj: Object) -> Object:
    return {part: obj.get(part) for part in ("spec", "status")}


def _find(kube: Kube, obj: Object) -> Object:
    return kube.get(obj["kind"], obj["metadata"]["name"], key_of(obj).namespace or None)
