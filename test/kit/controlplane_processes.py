"""How the processes of the local control plane are configured."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from test.kit import audit
from test.kit.certificates import Authority, signing_key, write_private
from test.kit.kubeconfig import Access
from test.kit.ports import LOOPBACK, free_port
from test.kit.process import Process
from test.kit.tools import tool

CONTROLLERS: Final = (
    "clusterrole-aggregation-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "validatingadmissionpolicy-status-controller",
)

_SERVICE_RANGE: Final = "10.0.0.0/24"
_SERVICE_ADDRESS: Final = "10.0.0.1"
_HEALTH_PATHS: Final = ("/healthz", "/livez", "/readyz")


class Files:
    """Certificates, keys and configuration of one control plane, below one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory
        self.etcd_data: Final = directory / "etcd"
        self.audit_log: Final = directory / "audit.log"
        self.logs: Final = directory / "logs"
        self.kubeconfigs: Final = directory / "kubeconfigs"
        self.authority: Final = Authority()
        for folder in (self.pki, self.logs, self.kubeconfigs):
            folder.mkdir(parents=True, exist_ok=True)
        self.authority_file.write_bytes(self.authority.certificate)
        private, public = signing_key()
        write_private(self.pki / "service-account.key", private)
        (self.pki / "service-account.pub").write_bytes(public)
        serving = self.authority.issue(
            "kube-apiserver",
            hosts=["localhost", LOOPBACK, _SERVICE_ADDRESS, "kubernetes.default.svc"],
        )
        serving.write(self.pki, "apiserver")
        self.audit_policy = self._configuration("audit-policy", audit.POLICY)
        self.authentication = self._configuration("authentication", _anonymous_health_checks())

    @property
    def pki(self) -> Path:
        """Where certificates and keys are."""
        return self.directory / "pki"

    @property
    def authority_file(self) -> Path:
        """Certificate of the authority, PEM."""
        return self.pki / "ca.crt"

    def user_access(self, server: str, user: str, groups: tuple[str, ...]) -> Access:
        """Access by a client certificate of its own."""
        identity = self.authority.issue(user, organizations=groups)
        return Access(server, self.authority.certificate, identity)

    def _configuration(self, name: str, content: object) -> Path:
        path = self.directory / f"{name}.json"
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")
        return path


def etcd(files: Files, client_port: int) -> Process:
    """The store. It never syncs to disk: a test does not outlive a power cut."""
    client, peer = f"http://{LOOPBACK}:{client_port}", f"http://{LOOPBACK}:{free_port()}"
    flags = {
        "data-dir": str(files.etcd_data),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
        # A single member elects itself, so waiting the usual second for others is idle.
        "heartbeat-interval": "20",
        "election-timeout": "200",
        "log-level": "warn",
        "unsafe-no-fsync": "true",
    }
    return _process(files, "etcd", flags)


def apiserver(files: Files, etcd_port: int, port: int, extra: Mapping[str, str]) -> Process:
    """The API server, on the loopback address only."""
    flags = {
        "etcd-servers": f"http://{LOOPBACK}:{etcd_port}",
        "bind-address": LOOPBACK,
        "advertise-address": LOOPBACK,
        "secure-port": str(port),
        "tls-cert-file": str(files.pki / "apiserver.crt"),
        "tls-private-key-file": str(files.pki / "apiserver.key"),
        "client-ca-file": str(files.authority_file),
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": str(files.pki / "service-account.pub"),
        "service-account-signing-key-file": str(files.pki / "service-account.key"),
        "service-cluster-ip-range": _SERVICE_RANGE,
        "authorization-mode": "RBAC",
        "authentication-config": str(files.authentication),
        "allow-privileged": "true",
        # The loopback address is no valid endpoint of the service `kubernetes`.
        "endpoint-reconciler-type": "none",
        "audit-policy-file": str(files.audit_policy),
        "audit-log-path": str(files.audit_log),
        "audit-log-mode": "blocking",
        # The log is read by position, so it must not be rotated.
        "audit-log-maxsize": "0",
        # Long enough for two busy cores, short enough that a hung request fails its test.
        "request-timeout": "30s",
        "shutdown-delay-duration": "0s",
        "delete-collection-workers": "4",
        "profiling": "false",
    }
    return _process(files, "kube-apiserver", {**flags, **extra})


def controller_manager(files: Files, kubeconfig: Path) -> Process:
    """The built-in controllers that what we test relies on; there are no pods."""
    flags = {
        "kubeconfig": str(kubeconfig),
        "authentication-kubeconfig": str(kubeconfig),
        "authorization-kubeconfig": str(kubeconfig),
        "controllers": ",".join(CONTROLLERS),
        "use-service-account-credentials": "true",
        "service-account-private-key-file": str(files.pki / "service-account.key"),
        "root-ca-file": str(files.authority_file),
        "leader-elect": "false",
        "secure-port": "0",
        "kube-api-qps": "200",
        "kube-api-burst": "400",
        "concurrent-gc-syncs": "5",
        "profiling": "false",
    }
    return _process(files, "kube-controller-manager", flags)


def _process(files: Files, name: str, flags: Mapping[str, str]) -> Process:
    arguments = [f"--{flag}={value}" for flag, value in flags.items()]
    return Process(
        name,
        [tool(name), *arguments],
        log_file=files.logs / f"{name}.log",
        # A fifth of its CPU goes into collecting garbage otherwise; memory is there.
        env={**os.environ, "GOGC": "400"},
        grace=5,
    )


def _anonymous_health_checks() -> Mapping[str, object]:
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "anonymous": {"enabled": True, "conditions": [{"path": path} for path in _HEALTH_PATHS]},
    }
