"""The two ways people install banlieue, for tests on a cluster with a node.

`E2E_INSTALL` chooses what the suite stands on: `gitops`, a stream that kubectl applies, or
`bootstrap`, the command itself.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

InstallPath = Literal["gitops", "bootstrap"]
VARIABLE: Final = "E2E_INSTALL"
PATHS: Final[tuple[InstallPath, ...]] = ("gitops", "bootstrap")
IMAGE: Final = "localhost/banlieue:dev"

_RELEASE: Final = ("--version", "dev", "--registry", "localhost")
_SECONDS: Final = 300


def chosen_path() -> InstallPath:
    """The path of this run.

    Raises:
        ValueError: the environment names another one.
    """
    found = os.environ.get(VARIABLE) or PATHS[0]
    if found not in PATHS:
        raise ValueError(f"{VARIABLE} is {found!r}; it may be {' or '.join(PATHS)}")
    return found


def bootstrap(
    kubeconfig: Path | None, *arguments: str, check: bool = True
) -> "subprocess.CompletedProcess[str]":
    """Run `banlieue bootstrap` as an administrator; without a kubeconfig there is no cluster."""
    environment = {key: it for key, it in os.environ.items() if not key.startswith("KUBE")}
    environment["KUBECONFIG"] = str(kubeconfig or "/nonexistent")
    answer = subprocess.run(
        [sys.executable, "-m", "banlieue", "bootstrap", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    assert not check or answer.returncode == 0, f"{answer.stdout}\n{answer.stderr}"
    return answer


def stream(*arguments: str) -> str:
    """What `--dry-run` prints for the image of this tree, with no cluster to ask."""
    return bootstrap(None, *arguments, *_RELEASE, "--dry-run").stdout


def install(kubeconfig: Path, kubectl: Callable[..., str], path: InstallPath) -> str:
    """Install the operator's path and wait until it serves; gives the stream of its objects."""
    text = stream("operator")
    if path == "bootstrap":
        bootstrap(kubeconfig, "operator", *_RELEASE)
    else:
        kubectl("apply", "-f", "-", stdin=text)
        wait = ("--for=condition=Available", f"--timeout={_SECONDS}s")
        kubectl("wait", "deployment", "--all", "-n", "banlieue-system", *wait, timeout=_SECONDS)
    return text
