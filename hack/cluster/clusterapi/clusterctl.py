"""clusterctl over the local repository: the way users install, without the network."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from hack.cluster.clusterapi.kubectl import kubectl
from hack.cluster.clusterapi.repository import CONFIGURATION
from hack.tools.catalog import find_tool

CORE: Final = "cluster-api"
KUBEADM: Final = "kubeadm"
BANLIEUE: Final = "banlieue"

_LONGEST_SECONDS: Final = 900
_WAIT_SECONDS: Final = 300
# Nothing listens there, so that a request that leaves this machine fails at once and by name.
_NO_WAY_OUT: Final = "http://127.0.0.1:9"
_PASSED_ON: Final = ("PATH", "HOME", "TMPDIR")


class ClusterctlError(Exception):
    """clusterctl ended with an error; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What clusterctl printed.

    Attributes:
        output: What was asked for: YAML, a table, a list.
        messages: What it did.
    """

    output: str
    messages: str


@dataclass(frozen=True, slots=True)
class Clusterctl:
    """One repository and, for most commands, one management cluster.

    Attributes:
        repository: Folder with the components, absolute.
        kubeconfig: Administrator of the management cluster; None for commands that need none.
        configuration: The clusterctl.yaml; `${REPO}` in it is the repository.
        variables: Further environment variables, for templates and components.
    """

    repository: Path
    kubeconfig: Path | None = None
    configuration: Path = CONFIGURATION
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, timeout: float = _LONGEST_SECONDS) -> Answer:
        """Run clusterctl; it sees neither this machine's configuration nor the network.

        Args:
            arguments: As on its command line; configuration and kubeconfig are added.
            timeout: Seconds until it is killed.

        Raises:
            ToolError: It is not built.
            ClusterctlError: It failed, or did not end in time.
        """
        command = [str(find_tool("clusterctl")), *arguments, f"--config={self.configuration}"]
        if self.kubeconfig:
            command.append(f"--kubeconfig={self.kubeconfig}")
        try:
            answer = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout,
                env=self.environment(),
            )
        except subprocess.TimeoutExpired as error:
            told = _text(error.stderr)
            message = f"clusterctl {' '.join(arguments)}: no end after {timeout:g} s; {told}"
            raise ClusterctlError(message) from error
        if answer.returncode:
            raise ClusterctlError(f"clusterctl {' '.join(arguments)}: {answer.stderr.strip()}")
        return Answer(answer.stdout, answer.stderr)

    def environment(self) -> dict[str, str]:
        """The whole environment clusterctl runs in."""
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return {
            **passed_on,
            "CLUSTERCTL_DISABLE_VERSIONCHECK": "true",
            "GOPROXY": "off",
            "HTTPS_PROXY": _NO_WAY_OUT,
            "HTTP_PROXY": _NO_WAY_OUT,
            "NO_PROXY": ",".join(self._hosts()),
            "REPO": str(self.repository),
            # The user's own overrides of components would be read from there.
            "XDG_CONFIG_HOME": str(self.repository / "no-configuration"),
            **self.variables,
        }

    def init(self, *, infrastructure: Sequence[str] = (BANLIEUE,)) -> Answer:
        """Install cert-manager, core, the kubeadm providers and ours, and wait until they run.

        What is there already, in the same version, is left as it is. Webhooks may need some more
        seconds: `await_webhooks`.

        Args:
            infrastructure: Infrastructure providers, `name` or `name:version`; empty for none.

        Raises:
            ClusterctlError: clusterctl failed, or a provider was not available in time.
            KubectlError: The cluster cannot be asked.
        """
        self.await_check_over()
        return self.run(
            "init",
            f"--core={CORE}",
            f"--bootstrap={KUBEADM}",
            f"--control-plane={KUBEADM}",
            f"--infrastructure={','.join(infrastructure) or '-'}",
            "--wait-providers",
            f"--wait-provider-timeout={_WAIT_SECONDS}",
        )

    def await_check_over(self) -> None:
        """Wait until the namespace of clusterctl's check of cert-manager is gone.

        An `init` that meets it still terminating takes cert-manager for absent, reinstalls it and
        hangs until its timeout.

        Raises:
            KubectlError: It is not gone after a minute.
        """
        if self.kubeconfig:
            namespace = "namespace/cert-manager-test"
            kubectl(self.kubeconfig, "wait", "--for=delete", namespace, "--timeout=60s")

    def _hosts(self) -> list[str]:
        if self.kubeconfig is None:
            return []
        content: Any = yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))
        servers = [urlsplit(entry["cluster"]["server"]) for entry in content["clusters"]]
        return [server.hostname for server in servers if server.hostname]


def _text(output: object) -> str:
    # What was read before a timeout is bytes, whatever the mode.
    return output.decode(errors="replace") if isinstance(output, bytes) else str(output or "")
