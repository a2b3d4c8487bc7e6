"""Cluster API's own managers as processes beside a control plane, with the rights they ship with.

For what needs core, bootstrap and control plane but no pods: webhooks and conversion are served by
the processes themselves, on loopback.
"""

import base64
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from hack.cluster.clusterapi.install import kept_repository
from test.kit.certificates import Authority
from test.kit.controlplane import ControlPlane
from test.kit.kube import Kube, KubeError
from test.kit.ports import LOOPBACK, free_port
from test.kit.process import Process
from test.kit.tools import tool
from test.kit.waiting import wait_until
from test.kit.yaml_text import yaml_documents

Object = dict[str, Any]

_READY_SECONDS: Final = 180.0
_DEFAULTED: Final = re.compile(r"\$\{(\w+):=([^}]*)\}")
_FIRST: Final = ("Namespace", "ServiceAccount", "Role", "RoleBinding")
_ALSO: Final = ("ClusterRole", "ClusterRoleBinding")
_HOOKS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


@dataclass(frozen=True, slots=True)
class _Part:
    folder: str
    file: str
    binary: str


PARTS: Final = (
    _Part("cluster-api", "core-components.yaml", "cluster-api-core"),
    _Part("bootstrap-kubeadm", "bootstrap-components.yaml", "cluster-api-bootstrap-kubeadm"),
    _Part(
        "control-plane-kubeadm",
        "control-plane-components.yaml",
        "cluster-api-control-plane-kubeadm",
    ),
)


class CapiManagers:
    """Core, kubeadm bootstrap and kubeadm control plane of one management API.

    Attributes:
        users: What the API server calls each, by the name of its program.
        metrics: The URL of the metrics of each, by the name of its program.
    """

    def __init__(
        self, plane: ControlPlane, directory: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        """Describe them; the `with` block installs, starts and ends them.

        Args:
            plane: A control plane that is started.
            directory: Where logs and certificates go.
            variables: What `clusterctl init` would find in its environment, such as feature gates.

        Raises:
            ToolError: A program is not built.
            RepositoryError: The components cannot be rendered.
        """
        self.users: dict[str, str] = {}
        self.metrics: dict[str, str] = {}
        self._variables = variables or {}
        self._plane, self._directory = plane, directory
        self._authority = Authority("webhooks of Cluster API")
        self._processes: list[tuple[Process, int]] = []
        self._repository = kept_repository()

    def __enter__(self) -> Self:
        self._authority.issue("webhooks", hosts=[LOOPBACK]).write(self._certificates, "tls")
        found = [(part, self._components(part), free_port()) for part in PARTS]
        definitions = [
            _converted(it, port, self._bundle)
            for _, objects, port in found
            for it in objects
            if it["kind"] == "CustomResourceDefinition"
        ]

        def served() -> bool:
            self._plane.install_crds(definitions)
            return True

        what = "the API server to serve Cluster API's kinds, which are large"
        wait_until(served, _READY_SECONDS, what, retry_on=(KubeError,))
        for part, objects, port in found:
            self._install(part, objects, port)
        for process, _ in self._processes:
            process.start()
        for process, port in self._processes:
            wait_until(partial(_listens, port), _READY_SECONDS, f"{process.name} to serve")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process, _ in self._processes:
            process.kill9()

    @property
    def kube(self) -> Kube:
        """An administrator."""
        return self._plane.kube

    @property
    def _certificates(self) -> Path:
        folder = self._directory / "webhooks"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def _bundle(self) -> str:
        return base64.b64encode(self._authority.certificate).decode()

    def _components(self, part: _Part) -> list[Object]:
        (path,) = (self._repository / part.folder).glob(f"*/{part.file}")
        text = _DEFAULTED.sub(
            lambda it: self._variables.get(it[1], it[2]), path.read_text(encoding="utf-8")
        )
        return [it for it in yaml_documents(text) if it]

    def _install(self, part: _Part, objects: Iterable[Object], port: int) -> None:
        by_kind: dict[str, list[Object]] = {}
        for obj in objects:
            by_kind.setdefault(obj["kind"], []).append(obj)
        for kind in (*_FIRST, *_ALSO):
            for obj in by_kind.get(kind, ()):
                self.kube.apply(obj)
        for kind in _HOOKS:
            for obj in by_kind.get(kind, ()):
                self.kube.apply(_hooked(obj, port, self._bundle))
        (deployment,) = by_kind["Deployment"]
        self._describe(part, deployment, port)

    def _describe(self, part: _Part, deployment: Object, port: int) -> None:
        namespace = deployment["metadata"]["namespace"]
        spec = deployment["spec"]["template"]["spec"]
        account = spec["serviceAccountName"]
        given = (it for it in spec["containers"][0]["args"] if it.startswith("--feature-gates"))
        diagnostics = f"{LOOPBACK}:{free_port()}"
        self.metrics[part.binary] = f"http://{diagnostics}/metrics"
        process = Process(
            part.binary,
            [
                tool(part.binary),
                *given,
                f"--kubeconfig={self._plane.kubeconfig_for_service_account(namespace, account)}",
                f"--webhook-port={port}",
                f"--webhook-cert-dir={self._certificates}",
                f"--health-addr={LOOPBACK}:{free_port()}",
                f"--diagnostics-address={diagnostics}",
                "--insecure-diagnostics=true",
                "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields",
            ],
            log_file=self._directory / f"{part.binary}.log",
            grace=1.0,
        )
        self.users[part.binary] = f"system:serviceaccount:{namespace}:{account}"
        self._processes.append((process, port))


def _converted(definition: Object, port: int, bundle: str) -> Object:
    webhook = (definition["spec"].get("conversion") or {}).get("webhook")
    if webhook:
        webhook["clientConfig"] = {"url": f"https://{LOOPBACK}:{port}/convert", "caBundle": bundle}
    return definition


def _hooked(configuration: Object, port: int, bundle: str) -> Object:
    for hook in configuration["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        hook["clientConfig"] = {"url": f"https://{LOOPBACK}:{port}{path}", "caBundle": bundle}
    return configuration


def _listens(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1.0):
            return True
    except OSError:
        return False
