"""A local Kubernetes control plane: etcd, kube-apiserver and kube-controller-manager."""

import itertools
import os
import shutil
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from test.kit import controlplane_processes as processes
from test.kit.audit import AuditEntry, AuditLog
from test.kit.kube import Kube, Object
from test.kit.kubeconfig import Access
from test.kit.ports import LOOPBACK, free_port
from test.kit.tools import tool
from test.kit.waiting import wait_until

_START_SECONDS: Final = 60.0
_TOKEN_SECONDS: Final = 12 * 3600
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class KubectlError(Exception):
    """kubectl ended with an error; the message is what it said."""


class ControlPlane:
    """One control plane in a directory of its own, on free ports, gone when the block ends.

    RBAC decides, anonymous users may ask for health only, tokens of ServiceAccounts are issued, and
    every write is in the audit log. There are no nodes and no scheduler.

    Attributes:
        url: URL of the API server.
        directory: Holds certificates, configuration, `audit.log` and `logs/`.
        kubeconfig: Kubeconfig of an administrator (group `system:masters`).
        kube: Client of that administrator.
        etcd: The store.
        etcd_address: Host and port where it listens, without TLS.
        apiserver: The API server.
        controller_manager: The built-in controllers.
    """

    def __init__(
        self, directory: Path | None = None, *, apiserver_flags: Mapping[str, str] | None = None
    ) -> None:
        """Prepare everything; `start` or a `with` block starts it.

        Args:
            directory: Where to put files; it is kept, but for the store. None means a temporary
                one that is removed in the end.
            apiserver_flags: Further flags of the API server, or other values, without dashes.

        Raises:
            ToolError: A binary is not built; the message names `make tools`.
        """
        self._cleanup = ExitStack()
        if directory is None:
            temporary = tempfile.TemporaryDirectory(prefix="banlieue-", ignore_cleanup_errors=True)
            directory = Path(self._cleanup.enter_context(temporary))
        self.directory: Final = directory
        port, etcd_port = free_port(), free_port()
        self.etcd_address: Final = f"{LOOPBACK}:{etcd_port}"
        self.url: Final = f"https://{LOOPBACK}:{port}"
        self._files = processes.Files(directory)
        self._etcd_health = f"http://{self.etcd_address}/readyz"
        self._numbers = itertools.count()
        self._audit = AuditLog(self._files.audit_log)
        self._tls = ssl.create_default_context(cafile=str(self._files.authority_file))
        self.kubeconfig: Final = self.kubeconfig_for_user("admin", ["system:masters"])
        self.kube: Final = Kube(self.kubeconfig)
        self._installed: dict[str, tuple[Object, Object]] = {}
        self.etcd: Final = processes.etcd(self._files, etcd_port)
        self.apiserver: Final = processes.apiserver(
            self._files, etcd_port, port, apiserver_flags or {}
        )
        self.controller_manager: Final = processes.controller_manager(
            self._files, self.kubeconfig_for_user("system:kube-controller-manager")
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def authority(self) -> bytes:
        """PEM certificate of the authority that signed the API server's certificate."""
        return self._files.authority.certificate

    def start(self) -> None:
        """Start everything and wait until it serves and the built-in controllers work.

        Raises:
            ProcessEndedError: A process ended; the message shows its log.
            WaitTimeoutError: It took more than a minute.
        """
        try:
            self.etcd.start(self._etcd_ready, _START_SECONDS)
            self.start_apiserver()
            self.controller_manager.start(self._controllers_ready, _START_SECONDS)
            self._await_garbage_collector()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes and remove the store; nothing is left but logs."""
        self.kube.close()
        # The store goes with them, so there is nothing to end gracefully for.
        for process in (self.controller_manager, self.apiserver, self.etcd):
            process.kill9()
        shutil.rmtree(self._files.etcd_data, ignore_errors=True)
        self._cleanup.close()

    def stop_apiserver(self) -> None:
        """End the API server at once (SIGKILL): clients see their connections break off."""
        self.apiserver.kill9()
        self._audit.mark_restart()
        self.kube.close()

    def start_apiserver(self) -> None:
        """Start the API server, also again, on the same port, and wait until it is ready."""
        self.apiserver.start(self._apiserver_ready, _START_SECONDS)

    def pause_apiserver(self) -> None:
        """Freeze the API server: connections stay open and nothing is answered."""
        self.apiserver.pause()

    def resume_apiserver(self) -> None:
        """Let a frozen API server go on, and wait until it is ready."""
        self.apiserver.resume()
        wait_until(self._apiserver_ready, _START_SECONDS, "the API server", retry_on=(OSError,))

    def install_crds(self, definitions: Iterable[Object]) -> None:
        """Apply CustomResourceDefinitions and wait until every part knows them.

        Those that stand as they were installed before are left alone: each apply costs the server
        as much as some VMs. The garbage collector looks for new kinds only every 30 s, so it is
        restarted when one is new.
        """
        wanted = {it["metadata"]["name"]: it for it in definitions}
        standing = self._standing_crds()
        changed = {
            name: it
            for name, it in wanted.items()
            if name not in standing or self._installed.get(name) != (standing[name], it)
        }
        if not changed:
            return
        known = {(kind.api_version, kind.kind) for kind in self.kube.resources()}
        self.kube.apply_crds(changed.values())
        standing = self._standing_crds()
        self._installed |= {name: (standing[name], it) for name, it in changed.items()}
        served = {(kind.api_version, kind.kind) for kind in self.kube.resources()}
        if served - known:
            self.restart_controller_manager()

    def _standing_crds(self) -> dict[str, Object]:
        """Of every definition the server has, what tells that somebody changed it."""
        accept = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
        listed = self.kube.request("GET", _CRDS, headers=accept)["items"] or ()
        found = (it["metadata"] for it in listed)
        return {
            it["name"]: {key: it.get(key) for key in ("uid", "generation", "labels", "annotations")}
            for it in found
        }

    def restart_controller_manager(self) -> None:
        """Restart the built-in controllers; the garbage collector then knows all kinds."""
        self.controller_manager.kill9()
        self.controller_manager.start(self._controllers_ready, _START_SECONDS)
        self._await_garbage_collector()

    def kubectl(
        self,
        *arguments: str,
        input: str | None = None,  # noqa: A002 - as in subprocess
        kubeconfig: Path | None = None,
    ) -> str:
        """Run kubectl.

        Args:
            arguments: As on its command line; secrets do not belong there.
            input: Its standard input, for `-f -`.
            kubeconfig: As whom; None means the administrator.

        Returns:
            Its standard output.

        Raises:
            KubectlError: It failed.
        """
        flags = [
            f"--kubeconfig={kubeconfig or self.kubeconfig}",
            f"--cache-dir={self.directory / 'cache'}",
        ]
        answer = subprocess.run(
            [str(tool("kubectl")), *flags, *arguments],
            input=input or "",
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "KUBECTL_KUBERC": "false"},
        )
        if answer.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {answer.stderr.strip()}")
        return answer.stdout

    def kubeconfig_for_user(self, user: str, groups: Iterable[str] = ()) -> Path:
        """A kubeconfig with a client certificate; RBAC knows the user by name and groups."""
        access = self._files.user_access(self.url, user, tuple(groups))
        return access.write(self._kubeconfig_path(user.replace(":", "-")))

    def kubeconfig_for_service_account(
        self, namespace: str, name: str, *, expiration_seconds: int = _TOKEN_SECONDS
    ) -> Path:
        """A kubeconfig with a fresh token of a ServiceAccount that exists.

        Args:
            namespace: Where the ServiceAccount is; it is the kubeconfig's namespace, too.
            name: Its name.
            expiration_seconds: Life of the token, at least 600.

        Raises:
            KubeError: There is no such ServiceAccount (404 NotFound).
        """
        path = self.kube.resource("serviceaccounts").path(namespace, name, "token")
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": expiration_seconds},
        }
        token = self.kube.request("POST", path, body=request)["status"]["token"]
        access = Access(self.url, self.authority, token=token, namespace=namespace)
        return access.write(self._kubeconfig_path(f"{namespace}-{name}"))

    def audit_position(self) -> int:
        """Where the audit log ends now, for `since`."""
        return self._audit.position()

    def audit_writes(self, since: int = 0, *, user: str | None = None) -> list[AuditEntry]:
        """The requests to store something that came after a position, in the order they came.

        Refused ones are among them; dry runs, reviews and token requests are not.

        Args:
            since: An `audit_position`; 0 means all.
            user: Only those of this user.
        """
        return [entry for entry in self._entries(since, user) if entry.stores]

    def audit_reads(self, since: int = 0, *, user: str | None = None) -> list[AuditEntry]:
        """The gets, lists and watches that were answered; those of the control plane are left out.

        Args:
            since: An `audit_position`; 0 means all.
            user: Only those of this user.
        """
        return [entry for entry in self._entries(since, user) if entry.reads]

    def _entries(self, since: int, user: str | None) -> list[AuditEntry]:
        return [entry for entry in self._audit.entries(since) if user in {None, entry.user}]

    def _kubeconfig_path(self, stem: str) -> Path:
        return self._files.kubeconfigs / f"{stem}-{next(self._numbers)}.yaml"

    def _etcd_ready(self) -> bool:
        return _answers(self._etcd_health)

    def _apiserver_ready(self) -> bool:
        return _answers(f"{self.url}/readyz", self._tls)

    def _controllers_ready(self) -> bool:
        return self.kube.find("serviceaccounts", "default", "default") is not None

    def _await_garbage_collector(self) -> None:
        """Wait until an owned object is collected: all kinds are watched before the first is."""
        owner = self.kube.create(_probe(None), "default")
        owned = self.kube.create(_probe(owner), "default")
        self.kube.delete("configmaps", owner["metadata"]["name"], "default")
        self.kube.wait_gone(
            "configmaps", owned["metadata"]["name"], "default", timeout=_START_SECONDS
        )


def _answers(url: str, tls: ssl.SSLContext | None = None) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5, context=tls):  # noqa: S310 - one of our own
            return True
    except urllib.error.HTTPError as error:
        # It holds the connection.
        error.close()
        return False


def _probe(owner: Object | None) -> Object:
    metadata: Object = {"generateName": "garbage-collector-probe-"}
    if owner:
        reference = {"apiVersion": "v1", "kind": "ConfigMap"}
        reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        metadata["ownerReferences"] = [reference]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
