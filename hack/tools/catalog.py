"""Which Go tools the tests need, and where their binaries are.

Each folder beside this file is a Go module that pins one upstream. A binary lives in
`<cache>/<module>-<digest>/<name>`, so fresh clones and old checkouts of one machine share it and a
changed pin or source never meets a stale binary.
"""

import hashlib
import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOOLS_DIRECTORY: Final = Path(__file__).resolve().parent
ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"

# What the binaries report of themselves, and what their requests carry as user agent.
_STAMPED_PACKAGES: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


class ToolError(Exception):
    """A tool cannot be had; the message says what to do about it."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One binary that is built from a pinned Go module.

    Attributes:
        name: File name of the binary.
        module: Folder of the Go module under `hack/tools`.
        package: What `go build` compiles, an import path or `.`.
        cold_seconds: How long a build takes on two cores with an empty Go build cache but after the
            tools listed before it; used only to say what is left.
        stamped_by: Go module whose pinned version is linked in as the Kubernetes version.
        asset: Whether a directory named by KUBEBUILDER_ASSETS `must` or `may` hold the binary, or
            `never` does.
    """

    name: str
    module: str
    package: str
    cold_seconds: int
    stamped_by: str = ""
    asset: str = "never"


def _kubernetes(name: str, cold_seconds: int, asset: str) -> Tool:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Tool(name, "kubernetes", package, cold_seconds, "k8s.io/kubernetes", asset)


# Short builds first: whoever waits sees early that everything is in order.
TOOLS: Final = (
    Tool("etcd", "etcd", "go.etcd.io/etcd/server/v3", 40, asset="must"),
    Tool("vcsim", "vcsim", ".", 32),
    _kubernetes("kube-apiserver", 240, "must"),
    _kubernetes("kube-controller-manager", 70, "may"),
    _kubernetes("kubectl", 28, "must"),
)


def tool_named(name: str) -> Tool:
    """The tool of that name; raises ToolError with the known names."""
    for tool in TOOLS:
        if tool.name == name:
            return tool
    known = ", ".join(tool.name for tool in TOOLS)
    raise ToolError(f"no tool is called {name!r}; there are {known}")


@dataclass(frozen=True, slots=True)
class Store:
    """Where the sources of the tools are and where their binaries go.

    Attributes:
        sources: Folder with one Go module per upstream.
        cache: Folder that holds one folder of binaries per module and digest.
        assets: Folder named by KUBEBUILDER_ASSETS, or None.
    """

    sources: Path
    cache: Path
    assets: Path | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Store":
        """The store of this checkout, in the user's cache directory (XDG base directories)."""
        # The specification tells to ignore a relative path here.
        root = Path(environ.get("XDG_CACHE_HOME", ""))
        if not root.is_absolute():
            root = Path(environ["HOME"]) / ".cache" if "HOME" in environ else Path.home() / ".cache"
        named = environ.get(ASSETS_VARIABLE)
        return cls(
            sources=TOOLS_DIRECTORY,
            cache=root / "banlieue" / "tools",
            assets=Path(named).absolute() if named else None,
        )

    def module_directory(self, tool: Tool) -> Path:
        """The folder of the tool's Go module; raises ToolError when it is not one."""
        directory = self.sources / tool.module
        if not (directory / "go.mod").is_file():
            raise ToolError(f"{directory} holds no go.mod, so {tool.name} cannot be built from it")
        return directory

    def link_flags(self, tool: Tool) -> str:
        """What the linker is told: no symbol tables, and the version the binary reports."""
        flags = ["-s", "-w"]
        if tool.stamped_by:
            version = pinned_version(self.module_directory(tool) / "go.mod", tool.stamped_by)
            major, minor = version.removeprefix("v").split(".")[:2]
            stamps = {
                "gitVersion": version,
                "gitMajor": major,
                "gitMinor": minor,
                # A module zip names no commit; upstream says "archive" of trees without git.
                "gitCommit": "unknown",
                "gitTreeState": "archive",
            }
            flags += [
                f"-X {package}.{name}={value}"
                for package in _STAMPED_PACKAGES
                for name, value in stamps.items()
            ]
        return " ".join(flags)

    def digest(self, tool: Tool) -> str:
        """Hex SHA-256 over everything that decides what the module's binaries are."""
        directory = self.module_directory(tool)
        total = hashlib.sha256()
        for path in _sources_of(directory):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{path.relative_to(directory).as_posix()} {content}\n".encode())
        total.update(f"{platform.system()} {platform.machine()}\n".encode())
        for sibling in TOOLS:
            if sibling.module == tool.module:
                total.update(f"{sibling.package} {self.link_flags(sibling)}\n".encode())
        return total.hexdigest()

    def build_path(self, tool: Tool) -> Path:
        """Where a build of the tool puts the binary, whether or not it is there."""
        return self.cache / f"{tool.module}-{self.digest(tool)}" / tool.name

    def supplied_path(self, tool: Tool) -> Path | None:
        """The binary that KUBEBUILDER_ASSETS supplies, or None when the tool must be built.

        Raises:
            ToolError: The folder lacks a binary that it has to supply.
        """
        if self.assets is None or tool.asset == "never":
            return None
        path = self.assets / tool.name
        if os.access(path, os.X_OK) and path.is_file():
            return path
        if tool.asset == "may":
            return None
        raise ToolError(
            f"{ASSETS_VARIABLE} is set to {self.assets}, which holds no executable {tool.name}; "
            f"put it there, or unset {ASSETS_VARIABLE} to build the pinned one"
        )

    def find(self, tool: Tool) -> Path | None:
        """The binary if it can be run now, else None; raises ToolError as `supplied_path` does."""
        supplied = self.supplied_path(tool)
        if supplied is not None:
            return supplied
        path = self.build_path(tool)
        if not path.is_file():
            return None
        # The age of the folder says when it was last of use: old ones are thrown away.
        os.utime(path.parent)
        return path


def find_tool(name: str, store: Store | None = None) -> Path:
    """The binary of that name, ready to run.

    Raises:
        ToolError: It is unknown, or not built yet (the message names `make tools`).
    """
    path = (store or Store.from_environment()).find(tool_named(name))
    if path is None:
        raise ToolError(f"{name} is not built yet; run: make tools")
    return path


def pinned_version(go_mod: Path, module: str) -> str:
    """The version of `module` that a go.mod file requires; raises ToolError when there is none."""
    pattern = rf"^\s*(?:require\s+)?{re.escape(module)}\s+(v\d+\.\d+\.\d+\S*)"
    found = re.search(pattern, go_mod.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ToolError(f"{go_mod} requires no version of {module}")
    return found[1]


def _sources_of(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(directory).parts)
        # Tests and prose never reach the binary.
        if path.is_file() and not hidden and not path.name.endswith(("_test.go", ".md")):
            yield path
