"""The cluster of the tests over kind, for hosts with Docker or Podman."""

import ipaddress
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.cluster.interface import ClusterError, Leave, is_name, require_name
from hack.user_cache import user_cache

_NAMES_BEGIN: Final = "banlieue-"
_FOLDERS_BEGIN: Final = "kind-"
_WAIT: Final = "180s"
_NETWORK: Final = "kind"
_TIMEOUT: Final = 900.0


@dataclass(frozen=True, slots=True)
class KindCluster:
    """One kind cluster, named so that it never meets one of the user's own.

    Its commands and what they print are those of kind 0.27 and Docker 27. Its tests run against a
    stand-in (test_cluster_kind): hosts without a container engine run them too.

    It needs `kind` and one of `docker` and `podman` on the PATH. Which Kubernetes it runs is what
    that kind brings, unless the environment variable KIND_IMAGE names another node image.

    Attributes:
        name: What the caller calls it; kind knows it as `banlieue-<name>`.
        directory: Holds the kubeconfig, which also says that this cluster was made here.
        say: Is told every step.
        environ: Environment of the programs that are run.
    """

    name: str
    directory: Path
    say: Callable[[str], None]
    environ: Mapping[str, str]

    @classmethod
    def named(
        cls,
        name: str,
        say: Callable[[str], None] = lambda _: None,
        environ: Mapping[str, str] = os.environ,
    ) -> "KindCluster":
        """The cluster of that name, up or not; its files are in the user's cache directory.

        Raises:
            ClusterError: The name is unfit.
        """
        require_name(name)
        return cls(name, _folder(environ) / f"{_FOLDERS_BEGIN}{name}", say, environ)

    @staticmethod
    def names(environ: Mapping[str, str] = os.environ) -> list[str]:
        """Names of all that were made here and not ended."""
        folders = sorted(_folder(environ).glob(f"{_FOLDERS_BEGIN}*/kubeconfig"))
        names = [path.parent.name.removeprefix(_FOLDERS_BEGIN) for path in folders]
        return [name for name in names if is_name(name)]

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of an administrator; there once the cluster is up."""
        return self.directory / "kubeconfig"

    @property
    def host_address(self) -> str:
        """The gateway of kind's network, at which containers reach this host.

        Raises:
            ClusterError: There is no such network, so no kind cluster is up.
        """
        said = self._run(self._engine(), "network", "inspect", _NETWORK)
        try:
            addresses = _addresses(json.loads(said))
        except (ValueError, TypeError, AttributeError) as error:
            raise ClusterError(f"cannot understand what is said of network {_NETWORK}") from error
        for address in addresses:
            if address.version == 4:  # noqa: PLR2004 - the IP version
                return str(address)
        raise ClusterError(f"network {_NETWORK} has no IPv4 gateway; give it one or use local")

    def up(self) -> None:
        """Start it and wait until its node is ready; nothing happens when it is up already.

        Raises:
            ClusterError: kind or an engine is missing, or kind failed; what it began is removed.
        """
        if self._exists():
            self._claim()
            if not self._running():
                self.say("starting the node that was kept")
                self._run(self._engine(), "start", self._node)
            self._kind("export", "kubeconfig", "--kubeconfig", str(self.kubeconfig))
            self._await_ready()
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        arguments = ["--kubeconfig", str(self.kubeconfig), "--wait", _WAIT]
        image = self.environ.get("KIND_IMAGE")
        if image:
            arguments += ["--image", image]
        self.say(f"creating kind cluster {self._kind_name}")
        # From here on it is ours, whatever is there of it, also when this ends half-way.
        self.kubeconfig.touch()
        try:
            self._kind("create", "cluster", *arguments)
        except BaseException:
            self.down(Leave.NOTHING)
            raise

    def down(self, leave: Leave = Leave.IMAGES) -> None:
        """End it; nothing happens when it is not there.

        kind keeps images in the node, so they stay only with `Leave.EVERYTHING`.

        Raises:
            ClusterError: It was not made here, or kind failed.
        """
        if self._exists():
            self._claim()
            if leave is Leave.EVERYTHING:
                self.say("stopping the node")
                self._run(self._engine(), "stop", self._node)
                return
            self.say(f"deleting kind cluster {self._kind_name}")
            self._kind("delete", "cluster", "--kubeconfig", str(self.kubeconfig))
        shutil.rmtree(self.directory, ignore_errors=True)

    def load(self, *archives: Path) -> None:
        """Give the node images, so that pods run them without pulling.

        Raises:
            ClusterError: The cluster is not up, or an archive is not readable.
        """
        for archive in archives:
            self.say(f"loading {archive.name}")
            self._kind("load", "image-archive", str(archive))

    def save_logs(self, directory: Path) -> None:
        """Copy what the node's daemons and pods said into a directory.

        Raises:
            ClusterError: There is no such cluster, or kind failed.
        """
        if not self._exists():
            raise ClusterError(f"there is no kind cluster {self._kind_name}, so it has no logs")
        self._kind("export", "logs", str(directory))

    def is_up(self) -> bool:
        """Whether its node runs; raises ClusterError when kind or an engine is missing."""
        return self._exists() and self._running()

    def status(self) -> str:
        """How it is, for people, in one line."""
        if not self._exists():
            return f"{self.name}: not there"
        if not self._running():
            return f"{self.name}: down, kept: everything"
        return f"{self.name}: up, kind cluster {self._kind_name}, {self.kubeconfig}"

    @property
    def _kind_name(self) -> str:
        return f"{_NAMES_BEGIN}{self.name}"

    @property
    def _node(self) -> str:
        return f"{self._kind_name}-control-plane"

    def _exists(self) -> bool:
        known = self._run(self._program("kind"), "get", "clusters").split()
        return self._kind_name in known

    def _claim(self) -> None:
        if not self.kubeconfig.exists():
            raise ClusterError(
                f"a kind cluster {self._kind_name} exists that was not made here (no "
                f"{self.kubeconfig}); choose another name, or delete it yourself: "
                f"kind delete cluster --name {self._kind_name}"
            )

    def _running(self) -> bool:
        state = ("inspect", "--format", "{{.State.Running}}", self._node)
        return self._run(self._engine(), *state).strip() == "true"

    def _await_ready(self) -> None:
        inside = [self._engine(), "exec", self._node, "kubectl"]
        inside += ["--kubeconfig", "/etc/kubernetes/admin.conf"]
        self._run(*inside, "wait", "--for=condition=Ready", f"--timeout={_WAIT}", "node", "--all")

    def _kind(self, *arguments: str) -> str:
        return self._run(self._program("kind"), *arguments, "--name", self._kind_name)

    def _engine(self) -> str:
        # The order in which kind itself looks for them.
        for engine in ("docker", "podman"):
            if shutil.which(engine, path=self.environ.get("PATH")):
                return self._program(engine)
        raise ClusterError(
            "kind needs Docker or Podman; install one, or leave E2E_CLUSTER out to use the "
            "cluster that needs neither"
        )

    def _program(self, name: str) -> str:
        found = shutil.which(name, path=self.environ.get("PATH"))
        if found is None:
            raise ClusterError(
                f"{name} is not on the PATH; install it (go install sigs.k8s.io/kind@latest), or "
                "leave E2E_CLUSTER out to use the cluster that does without it"
            )
        return found

    def _run(self, *command: str) -> str:
        try:
            done = subprocess.run(
                command,
                env=dict(self.environ),
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"{_said(command)} did not end in {_TIMEOUT:.0f} s") from error
        if done.returncode:
            raise ClusterError(f"{_said(command)} failed: {done.stderr.strip()[-2000:]}")
        return done.stdout


def _folder(environ: Mapping[str, str]) -> Path:
    return user_cache(environ) / "clusters"


def _said(command: Sequence[str]) -> str:
    return " ".join([Path(command[0]).name, *command[1:]])


def _addresses(
    networks: Sequence[Mapping[str, object]],
) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The gateways in what Docker (IPAM.Config[].Gateway) or Podman (subnets[].gateway) says."""
    found = []
    for network in networks:
        ipam = network.get("IPAM")
        entries = ipam.get("Config") if isinstance(ipam, dict) else None
        podman = network.get("subnets")
        for entry in [*(entries or []), *(podman if isinstance(podman, list) else [])]:
            gateway = entry.get("Gateway") or entry.get("gateway")
            if gateway:
                found.append(ipaddress.ip_address(gateway))
    return found
