"""Which Go tools tests and the local cluster need, and where their binaries are.

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
from enum import StrEnum
from pathlib import Path
from typing import Final

from hack.tools.clusterapis import PATH, cluster_api
from hack.user_cache import user_cache

TOOLS_DIRECTORY: Final = Path(__file__).resolve().parent
ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"


class ToolError(Exception):
    """A tool cannot be had; the message says what to do about it."""


class Group(StrEnum):
    """What a tool is for: a machine that only runs the tests does not build a whole cluster."""

    TEST = "test"
    CLUSTER = "cluster"
    PEER = "peer"
    """Other projects, to be measured beside ours; nothing else needs them."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The version that the linker writes into a binary.

    Attributes:
        module: Go module whose pinned version it is.
        values: What goes into which variable, each a linker name, `=`, and a value that may use
            `{version}`, `{major}` and `{minor}`.
    """

    module: str
    values: tuple[str, ...]

    def link_flags(self, version: str) -> list[str]:
        """The linker's options, for a version such as `v1.36.3`."""
        major, minor = version.removeprefix("v").split(".")[:2]
        filled = (value.format(version=version, major=major, minor=minor) for value in self.values)
        return [f"-X {value}" for value in filled]


@dataclass(frozen=True, slots=True)
class Tool:
    """One binary that is built from a pinned Go module.

    Attributes:
        name: File name of the binary.
        module: Folder of the Go module under `hack/tools`.
        package: What `go build` compiles, an import path or `.`.
        cold_seconds: How long a build takes on two cores with an empty Go build cache but after the
            tools listed before it; used only to say what is left.
        group: What it is built for.
        stamp: Where the version goes that the binary reports, or None.
        asset: Whether a directory named by KUBEBUILDER_ASSETS `must` or `may` hold the binary, or
            `never` does.
    """

    name: str
    module: str
    package: str
    cold_seconds: int
    group: Group = Group.TEST
    stamp: Stamp | None = None
    asset: str = "never"


def _kubernetes_stamp(module: str, *packages: str) -> Stamp:
    values = (
        "gitVersion={version}",
        "gitMajor={major}",
        "gitMinor={minor}",
        # A module zip names no commit; upstream says "archive" of trees without git.
        "gitCommit=unknown",
        "gitTreeState=archive",
    )
    return Stamp(module, tuple(f"{package}.{value}" for package in packages for value in values))


# What the binaries report of themselves, and what their requests carry as user agent.
_KUBERNETES: Final = _kubernetes_stamp(
    "k8s.io/kubernetes", "k8s.io/component-base/version", "k8s.io/client-go/pkg/version"
)
_CLUSTER_API: Final = _kubernetes_stamp(PATH, f"{PATH}/version")
_CHOSEN: Final = cluster_api()
_CONTAINERD: Final = Stamp(
    "github.com/containerd/containerd/v2",
    ("github.com/containerd/containerd/v2/version.Version={version}",),
)
_CERT_MANAGER: Final = Stamp(
    "github.com/cert-manager/cert-manager",
    ("github.com/cert-manager/cert-manager/pkg/util.AppVersion={version}",),
)


def _kubernetes(name: str, seconds: int, group: Group, asset: str = "never") -> Tool:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Tool(name, "kubernetes", package, seconds, group, _KUBERNETES, asset)


def _containerd(name: str, seconds: int) -> Tool:
    package = f"github.com/containerd/containerd/v2/cmd/{name}"
    return Tool(name, "containerd", package, seconds, Group.CLUSTER, _CONTAINERD)


def _cluster_api(name: str, package: str, seconds: int) -> Tool:
    return Tool(name, _CHOSEN.module, package, seconds, Group.CLUSTER, _CLUSTER_API)


def _peer(name: str, module: str, seconds: int) -> Tool:
    return Tool(name, "cluster-api-vsphere", module, seconds, Group.PEER)


# Short builds first: whoever waits sees early that everything is in order. The seconds of the
# cluster's tools were taken on a machine with other work, so an idle one is about twice as fast.
TOOLS: Final = (
    Tool("etcd", "etcd", "go.etcd.io/etcd/server/v3", 40, asset="must"),
    Tool("vcsim", "vcsim", ".", 32),
    _kubernetes("kube-apiserver", 240, Group.TEST, "must"),
    _kubernetes("kube-controller-manager", 70, Group.TEST, "may"),
    _kubernetes("kubectl", 28, Group.TEST, "must"),
    Tool("pause", "pause", ".", 2, Group.CLUSTER),
    _kubernetes("kube-scheduler", 28, Group.CLUSTER),
    _kubernetes("kube-proxy", 41, Group.CLUSTER),
    _kubernetes("kubelet", 115, Group.CLUSTER),
    _containerd("containerd", 174),
    _containerd("containerd-shim-runc-v2", 8),
    _containerd("ctr", 20),
    _cluster_api("cluster-api-core", _CHOSEN.package, 200),
    _cluster_api("cluster-api-bootstrap-kubeadm", f"{PATH}/bootstrap/kubeadm", 20),
    _cluster_api("cluster-api-control-plane-kubeadm", f"{PATH}/controlplane/kubeadm", 25),
    _cluster_api("clusterctl", f"{PATH}/cmd/clusterctl", 25),
    Tool("workload-api", "workload-api", ".", 110, Group.CLUSTER),
    Tool("cert-manager", "cert-manager", ".", 240, Group.CLUSTER, _CERT_MANAGER),
    _peer("peer-cluster-api-vsphere", "sigs.k8s.io/cluster-api-provider-vsphere", 300),
)


_HOW_TO_BUILD: Final = {
    Group.TEST: "make tools",
    Group.CLUSTER: "python3 hack/tools/build.py --group cluster",
    Group.PEER: "python3 hack/tools/build.py --group peer",
}


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
        named = environ.get(ASSETS_VARIABLE)
        return cls(
            sources=TOOLS_DIRECTORY,
            cache=user_cache(environ) / "tools",
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
        if tool.stamp:
            go_mod = self.module_directory(tool) / "go.mod"
            flags += tool.stamp.link_flags(pinned_version(go_mod, tool.stamp.module))
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
        ToolError: It is unknown, or not built yet (the message says how to build it).
    """
    tool = tool_named(name)
    path = (store or Store.from_environment()).find(tool)
    if path is None:
        raise ToolError(f"{name} is not built yet; run: {_HOW_TO_BUILD[tool.group]}")
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
