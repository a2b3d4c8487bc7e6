"""A command that answers like Go, and a folder of pinned modules, for tests of `hack/tools`."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from hack.tools.catalog import TOOLS, Store

InstallGo = Callable[..., Path]

PINS: Final = {
    "k8s.io/kubernetes": "v1.36.3",
    "github.com/containerd/containerd/v2": "v2.2.0",
    "sigs.k8s.io/cluster-api": "v1.14.2",
    "github.com/cert-manager/cert-manager": "v1.21.1",
}
GO_MOD: Final = "module x\n\ngo 1.26.0\n" + "".join(
    f"\nrequire {module} {version}\n" for module, version in PINS.items()
)


def pinned_store(folder: Path) -> Store:
    """A store in `folder` with one module per upstream, each pinning every upstream."""
    for module in {tool.module for tool in TOOLS}:
        sources = folder / "sources" / module
        sources.mkdir(parents=True)
        (sources / "go.mod").write_text(GO_MOD)
        (sources / "go.sum").write_text("k8s.io/kubernetes v1.36.3 h1:abc=\n")
    return Store(folder / "sources", folder / "cache")


class FakeGo:
    """Puts a `go` into a folder; whoever has it first on PATH talks to it."""

    def __init__(self, folder: Path) -> None:
        """Take an existing folder; `install` fills it."""
        self._path = folder / "go"

    def install(
        self,
        on_build: str = 'echo binary > "$output"',
        *,
        on_list: str = "echo true; echo false",
        on_mod: str = "exit 0",
        version: str = "go1.26.8",
        toolchain: str = "local",
    ) -> Path:
        """Write the command anew.

        Args:
            on_build: Shell line of `go build`; `$output` is the binary to make.
            on_list: Shell line of `go list`.
            on_mod: Shell line of `go mod`.
            version: What it says to be.
            toolchain: What GOTOOLCHAIN is set to.

        Returns:
            The command.
        """
        return executable(
            self._path,
            f"""
            case "$1" in
            env) echo {version}; echo {toolchain};;
            list) {on_list};;
            mod) {on_mod};;
            build)
                while [ "$1" != -o ]; do shift; done
                output=$2
                {on_build};;
            esac""",
        )


def executable(path: Path, script: str) -> Path:
    """Write a shell script that can be run."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
