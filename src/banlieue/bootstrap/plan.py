"""Which objects an install is made of, in the order they have to come. Pure: no cluster is asked.

`config` builds the same objects with kustomize.
"""

import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from banlieue.api import names
from banlieue.api.crd.render import crd
from banlieue.api.kinds import KINDS
from banlieue.bootstrap import packed
from banlieue.bootstrap.objects import in_order
from banlieue.bootstrap.release import DEVELOPMENT_IMAGE, LABEL_VERSION, Release
from banlieue.sdk.kube import Obj
from banlieue.sdk.registry import load_backend, own_backend_names

COMPONENT: Final = "app.kubernetes.io/component"
SKIP_CLASSES: Final = "--skip-provider-classes"

_OPERATOR: Final = "banlieue-operator"
_SYSTEM: Final = re.compile(rf"(?<![a-z0-9-]){names.SYSTEM_NAMESPACE}(?![a-z0-9])")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_BACKEND: Final = "BACKEND"
_BACKEND_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,38}[a-z0-9]")


class PlanError(ValueError):
    """Something cannot be installed as asked for; the message says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where what is installed.

    Attributes:
        namespace: namespace of everything that is in one.
        release: version and image.
    """

    namespace: str = names.SYSTEM_NAMESPACE
    release: Release = field(default_factory=Release.of)

    def __post_init__(self) -> None:
        check_namespace(self.namespace)
        if self.namespace == "default" or self.namespace.startswith("kube-"):
            raise PlanError(
                f"namespace {self.namespace} is the cluster's: pods of the namespace installed "
                "into are held to the restricted Pod Security Standard; choose another"
            )


def check_namespace(name: str) -> None:
    """Refuse what is no name of a namespace; raises `PlanError`."""
    if not _NAMESPACE.fullmatch(name):
        raise PlanError(
            f"{name!r} is no name of a namespace: lower case letters, digits and dashes, at most 63"
        )


def operator_plan(target: Target, *, default_classes: bool = True) -> list[Obj]:
    """Namespace, kinds, rights, admission policies, controller and operator.

    Args:
        target: where and what.
        default_classes: whether the operator makes a ProviderClass per backend when it starts.
    """
    placed = _placed(_everything(), target)
    if not default_classes:
        _skip_classes(placed)
    return placed


def controller_plan(target: Target) -> list[Obj]:
    """What `operator_plan` has without the operator: nobody makes workloads or hands out rights."""
    return _placed((it for it in _everything() if not _is_operators(it)), target)


def _everything() -> list[Obj]:
    pairs = packed.pairs_of(packed.DEFAULT)
    found = [packed.labelled(definition, pairs) for definition in definitions()]
    return found + packed.read(packed.DEFAULT)


def _is_operators(obj: Obj) -> bool:
    return "operator" in obj["metadata"]["name"].split("-")


def definitions() -> list[Obj]:
    """The CustomResourceDefinitions of this version, without those of third parties' backends."""
    return copy.deepcopy(_definitions())


@cache
def _definitions() -> list[Obj]:
    kinds = [*KINDS]
    for name in own_backend_names():
        kinds.extend(load_backend(name).kinds)
    return [crd(kind) for kind in kinds]


def provider_plan(backend: str, target: Target, *, system_namespace: str = "") -> list[Obj]:
    """A static provider: it serves every Provider of its backend in its namespace, no other.

    The ClusterRoles it needs come along when the backend is one of ours; a third party's come by
    that party's own manifests. The namespace is marked as in use: without an operator nobody else
    does, and deleting it would take the Providers' credentials away from VMs that are still there.

    Args:
        backend: backend to serve.
        target: where and what.
        system_namespace: where the controller is, when that is elsewhere.

    Raises:
        PlanError: the backend cannot be a name's part.
    """
    if not _BACKEND_NAME.fullmatch(backend):
        raise PlanError(f"{backend!r} is no name of a backend, such as vsphere")
    found = [_of_backend(obj, backend) for obj in _base(backend)]
    (namespace,) = (it for it in packed.read(packed.DEFAULT) if it["kind"] == "Namespace")
    namespace["metadata"].setdefault("labels", {})[names.LABEL_IN_USE] = "true"
    placed = _placed([namespace, *found], target)
    system = Target(system_namespace or target.namespace, target.release)
    if system.namespace != target.namespace:
        placed += _reach(backend, placed, target, system.namespace)
    # They are the installation's, whoever brings them, and called like it.
    return in_order([*placed, *_placed(_roles_of(backend), system)])


def grant_plan(
    namespace: str,
    backends: Iterable[str],
    *,
    secrets: Iterable[str] = (),
    system_namespace: str = names.SYSTEM_NAMESPACE,
) -> list[Obj]:
    """What lets static providers read the user data of VMs in a tenant's namespace.

    Args:
        namespace: the tenant's namespace.
        backends: whose static providers.
        secrets: only these Secrets; none means all Secrets there, now and later.
        system_namespace: where the static providers are.

    Raises:
        PlanError: a name cannot be one.
    """
    check_namespace(namespace)
    check_namespace(system_namespace)
    chosen = sorted(set(backends))
    for backend in chosen:
        if not _BACKEND_NAME.fullmatch(backend):
            raise PlanError(f"{backend!r} is no name of a backend, such as vsphere")
    if not chosen:
        raise PlanError("name at least one backend whose provider gets the right")
    return [
        it for backend in chosen for it in _grant(namespace, backend, secrets, system_namespace)
    ]


def grant_name(backend: str) -> str:
    """Name of the Role and RoleBinding that let a backend's static provider read user data."""
    return f"banlieue-provider-{backend}-user-data"


def _grant(
    namespace: str, backend: str, secrets: Iterable[str], system_namespace: str
) -> list[Obj]:
    """One for each backend: what is granted to one takes nothing from another."""
    rule: dict[str, Any] = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    if named := sorted(set(secrets)):
        rule["resourceNames"] = named
    labels = {**packed.pairs_of(packed.PROVIDER_BASE), COMPONENT: f"provider-{backend}"}
    account = f"banlieue-provider-{backend}"
    metadata = {"name": grant_name(backend), "namespace": namespace, "labels": labels}
    return _role(metadata, rule, account=account, account_namespace=system_namespace)


def _role(
    metadata: dict[str, Any], rule: dict[str, Any], *, account: str, account_namespace: str
) -> list[Obj]:
    """A Role of one rule, and the RoleBinding that gives it to an account."""
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": account, "namespace": account_namespace}
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": copy.deepcopy(metadata),
            "roleRef": {"apiGroup": group, "kind": "Role", "name": metadata["name"]},
            "subjects": [subject],
        },
    ]


def _base(backend: str) -> list[Obj]:
    pairs = {COMPONENT: f"provider-{backend}"}
    found = packed.read(packed.PROVIDER_BASE)
    return [packed.labelled(obj, pairs, selectors=True) for obj in found]


def _of_backend(obj: Obj, backend: str) -> Obj:
    """An object of the base for one backend: kustomize's nameSuffix and the overlay's patches."""
    own = {(it["kind"], it["metadata"]["name"]) for it in packed.read(packed.PROVIDER_BASE)}
    made: Obj = _replaced(obj, lambda text: text.replace(_BACKEND, backend))
    made["metadata"]["name"] += f"-{backend}"
    for reference in (*made.get("subjects", ()), made.get("roleRef") or {}):
        if (reference.get("kind"), reference.get("name")) in own:
            reference["name"] += f"-{backend}"
    if made["kind"] == "Deployment":
        pod = made["spec"]["template"]["spec"]
        if ("ServiceAccount", pod["serviceAccountName"]) in own:
            pod["serviceAccountName"] += f"-{backend}"
    return made


def _roles_of(backend: str) -> list[Obj]:
    """What a provider may do, from the rights that every install has."""
    if backend not in own_backend_names():
        return []
    wanted = {"any", backend}
    return [
        obj
        for obj in packed.read(packed.DEFAULT)
        if obj["kind"] == "ClusterRole"
        and (
            obj["metadata"]["name"] == f"banlieue-provider-{backend}"
            or obj["metadata"]["labels"].get(names.LABEL_AGGREGATE_TO_PROVIDER) in wanted
        )
    ]


def _reach(backend: str, placed: list[Obj], target: Target, system_namespace: str) -> list[Obj]:
    """What a provider beside another namespace than the controller's needs: which installation."""
    (account,) = (it for it in placed if it["kind"] == "ServiceAccount")
    for obj in placed:
        if obj["kind"] == "Deployment":
            arguments = obj["spec"]["template"]["spec"]["containers"][0]["args"]
            kept = [it for it in arguments if not it.startswith("--system-namespace")]
            arguments[:] = [*kept, f"--system-namespace={system_namespace}"]
    metadata = {
        "name": f"banlieue-provider-{backend}-{target.namespace}",
        "namespace": system_namespace,
        "labels": dict(account["metadata"]["labels"]),
    }
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [names.INSTALLATION_CONFIG_MAP],
        "verbs": ["get"],
    }
    name = account["metadata"]["name"]
    return _role(metadata, rule, account=name, account_namespace=target.namespace)


def _placed(objects: Iterable[Obj], target: Target) -> list[Obj]:
    """Objects with the image, the version and the namespace of an install, in order."""

    def text_of(text: str) -> str:
        if text == DEVELOPMENT_IMAGE:
            return target.release.image
        return _SYSTEM.sub(target.namespace, text)

    made = []
    for obj in objects:
        # Kinds are the same wherever banlieue is; what their texts say of a namespace is a default.
        moved = obj if obj["kind"] == "CustomResourceDefinition" else _replaced(obj, text_of)
        moved["metadata"].setdefault("labels", {})[LABEL_VERSION] = target.release.version
        made.append(moved)
    return in_order(made)


def _replaced(value: Any, text_of: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, dict):
        return {key: _replaced(it, text_of) for key, it in value.items()}
    if isinstance(value, list):
        return [_replaced(it, text_of) for it in value]
    return value


def _skip_classes(objects: Iterable[Obj]) -> None:
    for obj in objects:
        if obj["kind"] == "Deployment" and obj["metadata"]["name"] == _OPERATOR:
            obj["spec"]["template"]["spec"]["containers"][0]["args"].append(SKIP_CLASSES)
