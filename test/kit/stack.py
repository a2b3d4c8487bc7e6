"""Our roles as separate processes against a control plane, each with the rights it ships with.

    with Stack(control_plane, tmp_path) as stack:
        stack.install()
        stack.controller().start()
        stack.provider("simulated").start()

A role that is killed and started again comes back under the same identity, as a restarted
container does, so its Leases are its own at once.
"""

import contextlib
import functools
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import yaml

from test.kit.apiproxy import ApiProxy
from test.kit.controlplane import ControlPlane
from test.kit.kube_http import KubeError
from test.kit.namespaces import remove_policies, unprotect
from test.kit.ports import free_port
from test.kit.process import Process
from test.kit.tools import tool
from test.kit.yaml_text import yaml_documents

Object = dict[str, Any]

LOOPBACK: Final = "127.0.0.1"
ROOT: Final = Path(__file__).resolve().parents[2]
_INSTALLED_AS: Final = "banlieue-system"
_READY_SECONDS: Final = 60.0
_EVENTS: Final = "events.events.k8s.io"
_GRANTS: Final = ("rolebindings", "roles")


class Role:
    """One of our processes; its logs stay in one file over restarts."""

    def __init__(
        self,
        name: str,
        arguments: list[str],
        *,
        kubeconfig: Path,
        directory: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.port = free_port()
        self.user = ""
        self.kubeconfig = kubeconfig
        self.command = [
            *(sys.executable, "-m", "banlieue", *arguments),
            *("--http-port", str(self.port)),
            *("--kubeconfig", str(kubeconfig)),
        ]
        self.process = Process(
            name,
            self.command,
            log_file=directory / f"{name}.log",
            env={**_environment(name, directory), **(environment or {})},
            grace=30.0,
            # What its environment adds may decide what there is to import.
            warm=not environment,
        )

    def start(self, *, ready: bool = True) -> Self:
        """Start it, also again; waits until it says it is ready, unless told otherwise."""
        self.process.start(self.ready if ready else None, _READY_SECONDS)
        return self

    def ready(self) -> bool:
        """Whether its readiness probe passes now."""
        return self.probe("readyz")[0] == 200

    def probe(self, path: str) -> tuple[int, str]:
        """Status and text of one of its HTTP endpoints; status 0 when nobody answers."""
        try:
            with urllib.request.urlopen(
                f"http://{LOOPBACK}:{self.port}/{path}", timeout=5
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def kill9(self) -> None:
        """End it as a crash would."""
        self.process.kill9()

    def stop(self) -> int | None:
        """End it in order; its exit code."""
        return self.process.stop()

    def logs(self) -> str:
        """Everything it logged so far."""
        return self.process.logs()


def _environment(name: str, directory: Path) -> Mapping[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
    return {**kept, "POD_NAME": name, "POD_UID": f"{name}-uid", "TMPDIR": str(directory)}


class Stack:
    """An installation of banlieue in a namespace of its own."""

    def __init__(
        self, control_plane: ControlPlane, directory: Path, namespace: str = _INSTALLED_AS
    ) -> None:
        self.control_plane = control_plane
        self.kube = control_plane.kube
        self.directory = directory
        self.namespace = namespace
        self.roles: list[Role] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for role in reversed(self.roles):
            role.process.kill9()

    def install(self) -> None:
        """CRDs, admission policies, accounts and rights, as shipped in `config`."""
        self.control_plane.install_crds(shipped_kinds())
        self.kube.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        )
        for text in shipped_rights():
            self.kube.apply_yaml(text.replace(_INSTALLED_AS, self.namespace))

    def purge(self) -> None:
        """Take every object of ours away, finalizers or not, so that the next test finds none.

        Call it when no role runs any more.
        """
        for role in self.roles:
            role.process.kill9()
        remove_policies(self.kube, self.namespace)
        kinds = [it.plural for it in self.kube.resources() if it.group.endswith("banlieue.io")]
        told = self.kube.list(_EVENTS)
        for namespace in sorted({event["metadata"]["namespace"] for event in told}):
            self.kube.delete_all(_EVENTS, namespace)
        # What tenants were granted goes, too: it would serve the next test. Our own rights stay.
        for kind in (*kinds, *_GRANTS, "leases", "secrets", "configmaps"):
            for obj in self.kube.list(kind):
                meta = obj["metadata"]
                shipped = kind in _GRANTS and meta["namespace"] == self.namespace
                if shipped or _is_of_kubernetes(meta):
                    continue
                if kind == "virtualmachines":
                    unprotect(self.kube, kind, obj)
                if meta.get("finalizers"):
                    self._strip(kind, meta)
                self._delete(kind, meta)

    def _strip(self, kind: str, meta: Mapping[str, Any]) -> None:
        with contextlib.suppress(KubeError):
            self.kube.patch(
                kind,
                meta["name"],
                {"metadata": {"finalizers": None}},
                meta.get("namespace"),
            )

    def _delete(self, kind: str, meta: Mapping[str, Any]) -> None:
        with contextlib.suppress(KubeError):
            self.kube.delete(kind, meta["name"], meta.get("namespace"))

    def controller(self, *arguments: str, via: ApiProxy | None = None) -> Role:
        """The controller, not started yet; `via` puts a proxy between it and the API server."""
        return self._role(
            "controller",
            ["controller", "--system-namespace", self.namespace, *arguments],
            account="banlieue-controller",
            via=via,
        )

    def operator(self, *arguments: str, via: ApiProxy | None = None) -> Role:
        """The operator, not started yet. Nothing runs what it makes: there is no node."""
        return self._role(
            "operator",
            ["operator", "--system-namespace", self.namespace, *arguments],
            account="banlieue-operator",
            via=via,
        )

    def node_patcher(self) -> Role:
        """The node patcher, not started yet; `install` brings nothing of it."""
        return self._role(
            "node-patcher",
            ["node-patcher", "--system-namespace", self.namespace],
            account="banlieue-node-patcher",
            via=None,
        )

    def served(self, backend: str, provider: str, namespace: str, workload: str) -> Role:
        """What the operator's Deployment would run for one Provider, by the account it made.

        Args:
            backend: The backend.
            provider: Name of the Provider.
            namespace: Its namespace, which the account is in, too.
            workload: Name of the account.
        """
        options = ["--system-namespace", self.namespace, "--provider", f"{namespace}/{provider}"]
        return self._role(
            workload,
            ["provider", backend, *options],
            account=workload,
            via=None,
            lives_in=namespace,
        )

    def provider(
        self,
        backend: str,
        *arguments: str,
        name: str = "",
        via: ApiProxy | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Role:
        """A provider for all Providers of a backend in the install namespace, not started yet.

        `environment` is added to that of the process.
        """
        options = ["--system-namespace", self.namespace, "--namespace", self.namespace]
        return self._role(
            name or f"provider-{backend}",
            ["provider", backend, *options, *arguments],
            account=f"banlieue-provider-{backend}",
            via=via,
            environment=environment,
        )

    def outside(self, name: str, *arguments: str) -> Role:
        """One of our processes with the rights of an administrator, who runs it; not started yet.

        Args:
            name: What to call it.
            arguments: Its command.
        """
        role = Role(
            name,
            list(arguments),
            kubeconfig=self.control_plane.kubeconfig,
            directory=self.directory,
        )
        self.roles.append(role)
        return role

    def user(self, role: Role) -> str:
        """The name the API server knows a role by, as the audit log shows it."""
        return role.user

    def logs(self) -> str:
        """Everything all roles logged."""
        return "\n".join(role.logs() for role in self.roles)

    def _role(
        self,
        name: str,
        arguments: list[str],
        *,
        account: str,
        via: ApiProxy | None,
        environment: Mapping[str, str] | None = None,
        lives_in: str = "",
    ) -> Role:
        namespace = lives_in or self.namespace
        kubeconfig = self.control_plane.kubeconfig_for_service_account(namespace, account)
        if via is not None:
            kubeconfig = via.kubeconfig(kubeconfig)
        role = Role(
            name,
            arguments,
            kubeconfig=kubeconfig,
            directory=self.directory,
            environment=environment,
        )
        role.user = f"system:serviceaccount:{namespace}:{account}"
        self.roles.append(role)
        return role


def _is_of_kubernetes(meta: Mapping[str, Any]) -> bool:
    theirs: bool = meta.get("namespace", "").startswith("kube-")
    return theirs or meta["name"] == "kube-root-ca.crt"


@functools.cache
def shipped_kinds() -> tuple[Object, ...]:
    """The CustomResourceDefinitions as shipped."""
    return tuple(
        document
        for path in sorted((ROOT / "config" / "crd" / "bases").glob("*.yaml"))
        for document in yaml_documents(path.read_text(encoding="utf-8"))
    )


@functools.cache
def shipped_rights() -> tuple[str, ...]:
    """Policies, accounts and rights of an installation with every static provider, as YAML texts.

    The Deployments are left out: roles run as processes here.
    """
    config = ROOT / "config"
    folders = [config / "admission", config / "rbac"]
    folders += sorted(path.parent for path in config.glob("providers/*/kustomization.yaml"))
    built = [
        subprocess.run(
            [str(tool("kubectl")), "kustomize", str(folder)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for folder in folders
        if folder.name != "base"
    ]
    return tuple(
        yaml.safe_dump_all(obj for obj in yaml_documents(text) if obj["kind"] != "Deployment")
        for text in built
    )


def vm_class(name: str = "small", **hardware: object) -> Object:
    """A class any backend of the kit can honour."""
    return {
        "apiVersion": "banlieue.io/v1alpha1",
        "kind": "VMClass",
        "metadata": {"name": name},
        "spec": {
            "hardware": {
                "cpus": 1,
                "memoryMiB": 512,
                "disks": [{"name": "root", "storageClass": "standard"}],
                **hardware,
            },
            "network": {"interfaces": [{"name": "eth0", "networkClass": "lan"}]},
        },
    }


def vm_image(sources: Mapping[str, str], name: str = "ubuntu") -> Object:
    """An image; `sources` maps backends to the name of their template."""
    return {
        "apiVersion": "banlieue.io/v1alpha1",
        "kind": "VMImage",
        "metadata": {"name": name},
        "spec": {
            "osDistribution": "ubuntu",
            "osVersion": "24.04",
            "agent": "present",
            "sources": [
                {"providerClass": backend, "kind": "Template", "ref": ref}
                for backend, ref in sources.items()
            ],
        },
    }


def provider_class(backend: str, kind: str) -> Object:
    """The class of one of our own backends."""
    return {
        "apiVersion": "banlieue.io/v1alpha1",
        "kind": "ProviderClass",
        "metadata": {"name": backend},
        "spec": {
            "backend": backend,
            "machine": {
                "apiGroup": "infrastructure.banlieue.io",
                "version": "v1alpha1",
                "kind": f"{kind}Machine",
            },
            "cluster": {
                "apiGroup": "infrastructure.banlieue.io",
                "version": "v1alpha1",
                "kind": f"{kind}Cluster",
            },
        },
    }


def credentials(namespace: str, name: str, username: str, password: str) -> Object:
    """A Secret with a login."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": namespace, "name": name},
        "stringData": {"username": username, "password": password},
    }


def provider(
    namespace: str,
    name: str,
    *,
    backend: str,
    connection: Mapping[str, object],
    storage: Mapping[str, str],
    network: Mapping[str, str],
) -> Object:
    """A Provider every namespace may use, with a storage class and a network class."""
    return {
        "apiVersion": "banlieue.io/v1alpha1",
        "kind": "Provider",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "providerClassRef": {"name": backend},
            "connection": {"credentialsRef": {"name": f"{name}-creds"}, **connection},
            "allowedNamespaces": {"from": "All"},
            "capabilities": {
                "storageClasses": [{"name": "standard", "target": dict(storage)}],
                "networkClasses": [{"name": "lan", "target": dict(network)}],
            },
        },
    }


def virtual_machine(namespace: str, name: str, **spec: object) -> Object:
    """A VirtualMachine of the kit's class and image."""
    return {
        "apiVersion": "banlieue.io/v1alpha1",
        "kind": "VirtualMachine",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"classRef": {"name": "small"}, "imageRef": {"name": "ubuntu"}, **spec},
    }


def condition(obj: Mapping[str, Any], kind: str) -> tuple[str, str]:
    """Status and reason of a condition; empty strings when it is not there."""
    for item in (obj.get("status") or {}).get("conditions") or []:
        if item["type"] == kind:
            return item["status"], item["reason"]
    return "", ""


def is_ready(obj: Mapping[str, Any]) -> bool:
    """Whether condition Ready is True for the object as it is now."""
    status = obj.get("status") or {}
    return condition(obj, "Ready")[0] == "True" and status.get("observedGeneration") == obj[
        "metadata"
    ].get("generation")
