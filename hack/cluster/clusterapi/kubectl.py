"""kubectl, as an administrator of the management cluster."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from hack.tools.catalog import find_tool
from hack.user_cache import user_cache

_REQUEST_SECONDS: Final = 30


class KubectlError(Exception):
    """kubectl ended with an error; the message is what it said."""


def kubectl(
    kubeconfig: Path,
    *arguments: str,
    input: dict[str, Any] | None = None,  # noqa: A002 - as in subprocess
    request_seconds: int = _REQUEST_SECONDS,
) -> str:
    """Run kubectl and return what it printed.

    Args:
        kubeconfig: Whose cluster, and as whom.
        arguments: As on its command line.
        input: An object for `-f -`.
        request_seconds: How long one request may take, but for those that wait.

    Raises:
        ToolError: It is not built.
        KubectlError: It failed.
    """
    flags = [
        f"--kubeconfig={kubeconfig}",
        f"--cache-dir={user_cache() / 'kubectl'}",
    ]
    # One that waits has a limit of its own, and its watch may last as long.
    if arguments[0] != "wait" and arguments[:2] != ("rollout", "status"):
        flags.append(f"--request-timeout={request_seconds}s")
    answer = subprocess.run(
        [str(find_tool("kubectl")), *flags, *arguments],
        input=json.dumps(input) if input else "",
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KUBECTL_KUBERC": "false"},
    )
    if answer.returncode:
        raise KubectlError(f"kubectl {' '.join(arguments)}: {answer.stderr.strip()}")
    return answer.stdout
