"""What a local cluster could leave on its host, to be compared before and after."""

import subprocess
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Self

from hack.cluster.local import cgroups
from hack.cluster.local.paths import Place

_FOLDERS: Final = ("/etc", "/opt", "/run", "/usr/libexec", "/var/lib", "/var/log", "/var/run")
_TUNABLES: Final = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
_NODE: Final = "hack.cluster.local.node"


@dataclass(frozen=True)
class HostState:
    """One look at the host, without what belongs to other clusters.

    Attributes:
        namespaces: Named network namespaces.
        links: Network links.
        routes: Routes of all tables.
        mounts: Mounts as the host sees them.
        rules: The lines of the nftables rule set.
        groups: Control groups at the top of their hierarchies.
        processes: What a node started, and whatever is told of its state directory.
        files: What is in the folders that daemons like to write to, and in the clusters' folder.
        tunables: Kernel parameters that a kubelet changes.
    """

    namespaces: frozenset[str]
    links: frozenset[str]
    routes: frozenset[str]
    mounts: frozenset[str]
    rules: frozenset[str]
    groups: frozenset[str]
    processes: frozenset[str]
    files: frozenset[str]
    tunables: frozenset[str]

    @classmethod
    def seen(cls, *places: Place) -> Self:
        """Look now; `places` are those of the clusters that matter."""
        links = {place.link for place in places}
        names = {place.name for place in places}

        def matters(text: str) -> bool:
            words = text.replace("@", " ").replace(":", " ").split()
            return not any(word.startswith("blc-") and word not in links for word in words)

        clusters = places[0].clusters
        return cls(
            namespaces=_lines("ip", "netns", "list"),
            links=frozenset(filter(matters, _link_names())),
            routes=frozenset(filter(matters, _lines("ip", "route", "show", "table", "all"))),
            mounts=frozenset(_mount(line) for line in _read("/proc/self/mountinfo").splitlines()),
            rules=_lines("nft", "list", "ruleset"),
            groups=frozenset(_groups({place.cgroup for place in places})),
            processes=frozenset(_processes(places)),
            files=frozenset(
                [
                    *(str(entry) for folder in _FOLDERS for entry in _entries(folder)),
                    *(str(entry) for entry in _entries(clusters) if _name(entry) in names),
                ]
            ),
            tunables=frozenset(f"{name} = {_read(f'/proc/sys/{name}')}" for name in _TUNABLES),
        )

    def new_since(self, before: Self) -> dict[str, list[str]]:
        """What is there now and was not before, by kind; kinds with nothing new are left out."""
        found = {
            field.name: sorted(getattr(self, field.name) - getattr(before, field.name))
            for field in fields(self)
        }
        return {kind: entries for kind, entries in found.items() if entries}


def _lines(*command: str) -> frozenset[str]:
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return frozenset(line.strip() for line in output.splitlines())


def _link_names() -> list[str]:
    return [entry.name for entry in Path("/sys/class/net").iterdir()]


def _mount(line: str) -> str:
    fields, _, rest = line.partition(" - ")
    return f"{fields.split()[4]} {rest.split()[0]}"


def _groups(ours: set[str]) -> list[str]:
    return [
        str(group)
        for tree in cgroups.hierarchies()
        for group in tree.root.iterdir()
        if group.is_dir() and (group.name in ours or not group.name.startswith("banlieue-"))
    ]


def _processes(places: tuple[Place, ...]) -> list[str]:
    states = {str(place.state) for place in places}
    parents: dict[int, int] = {}
    commands: dict[int, list[str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            pid = int(folder.name)
            commands[pid] = _read(folder / "cmdline").split("\0")
            parents[pid] = int(_read(folder / "stat").rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = []
    for pid, command in commands.items():
        node: int | None = pid
        while node and _NODE not in commands.get(node, []):
            node = parents.get(node)
        started = node and states & set(commands[node])
        if started or any(f"{state}/" in f"{word}/" for word in command for state in states):
            found.append(f"{pid} {' '.join(command)[:200]}")
    return found


def _entries(folder: str | Path) -> list[Path]:
    path = Path(folder)
    return list(path.iterdir()) if path.is_dir() else []


def _name(entry: Path) -> str:
    return entry.name.removeprefix(".").removesuffix(".lock")


def _read(path: str | Path) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")
