"""VirtualMachine manifests for VMs that exist, from what a driver sees. Pure."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from banlieue.api.crd.render import to_yaml
from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.sdk.identity import valid_mark
from banlieue.sdk.kube import Key
from banlieue.sdk.powers import Candidate

MANAGED = "managed already"
TEMPLATES = "templates"
CLAIMED = "named by a VirtualMachine of the namespace already"
UNSELECTED = "not selected"

_LONGEST_NAME = 63
_SUFFIX = 8
_NOT_NAME = re.compile(r"[^a-z0-9]+")
_NOT_ID = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One VirtualMachine to apply: its name, and YAML with a comment for people."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for.

    `selectors` are shell patterns that a VM's name or path has to match, any of them; none selects
    all. `claimed` are ids that VirtualMachines of the namespace adopt, `taken` all their names.
    `domain_name` gives the published name of a failure domain's id.
    """

    provider: Key
    namespace: str
    selectors: Sequence[str] = ()
    claimed: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()
    domain_name: Callable[[str], str | None] = field(default=lambda _: None)


def propose(found: Iterable[Candidate], wanted: Wanted) -> tuple[list[Manifest], Mapping[str, int]]:
    """The manifests, by name, and how many VMs were left out for which reason."""
    left_out: Counter[str] = Counter()
    chosen: list[Candidate] = []
    for candidate in found:
        obstacle = _obstacle(candidate, wanted)
        if obstacle is None:
            chosen.append(candidate)
        else:
            left_out[obstacle] += 1
    names = _names(chosen, wanted.taken)
    made = [_manifest(candidate, names[candidate.id], wanted) for candidate in chosen]
    return sorted(made, key=lambda it: it.name), left_out


def _obstacle(candidate: Candidate, wanted: Wanted) -> str | None:
    """Why a VM gets no manifest."""
    state = candidate.state
    selected = not wanted.selectors or any(
        fnmatchcase(word, pattern)
        for pattern in wanted.selectors
        for word in (state.name, candidate.path)
    )
    obstacles = {
        UNSELECTED: not selected,
        TEMPLATES: candidate.template,
        MANAGED: state.mark is not None and valid_mark(state.mark, state.uuid),
        CLAIMED: candidate.id.lower() in wanted.claimed,
    }
    return next((obstacle for obstacle, holds in obstacles.items() if holds), None)


def _names(chosen: Sequence[Candidate], taken: frozenset[str]) -> dict[str, str]:
    """A valid name of its own for each VM, by id; the same at every run over the same VMs.

    VMs whose names come out the same, or are taken, get the beginning of their id appended.
    """
    plain = {candidate.id: _slug(candidate.state.name) for candidate in chosen}
    times = Counter(plain.values())
    used = set(taken)
    names: dict[str, str] = {}
    for candidate in sorted(chosen, key=lambda it: it.id):
        name = plain[candidate.id]
        digits, length = _NOT_ID.sub("", candidate.id.lower()), _SUFFIX
        while name in used or (times[plain[candidate.id]] > 1 and name == plain[candidate.id]):
            suffix = digits[:length]
            name = f"{plain[candidate.id][: _LONGEST_NAME - len(suffix) - 1].rstrip('-')}-{suffix}"
            length += 1
        used.add(name)
        names[candidate.id] = name
    return names


def _slug(name: str) -> str:
    return _NOT_NAME.sub("-", name.lower()).strip("-")[:_LONGEST_NAME].strip("-") or "vm"


def _manifest(candidate: Candidate, name: str, wanted: Wanted) -> Manifest:
    """Nothing but whose VM it is: what a spec leaves out stays as it is."""
    body: dict[str, Any] = {
        "apiVersion": VIRTUAL_MACHINES.api_version,
        "kind": VIRTUAL_MACHINES.kind,
        "metadata": {"name": name, "namespace": wanted.namespace},
        "spec": {
            "providerRef": {"name": wanted.provider.name, "namespace": wanted.provider.namespace},
            "adopt": {"id": candidate.id, "accepted": False},
        },
    }
    comment = "\n".join(f"# {_printable(line)}" for line in _described(candidate, wanted))
    return Manifest(name, f"{comment}\n{to_yaml(body)}")


def _described(candidate: Candidate, wanted: Wanted) -> Iterable[str]:
    state = candidate.state
    yield candidate.path or state.name
    domain = wanted.domain_name(state.failure_domain or "") or state.failure_domain
    facts = (
        state.power.value,
        f"{state.cpus} CPUs" if state.cpus else None,
        f"{state.memory_mib} MiB" if state.memory_mib else None,
        f"firmware {candidate.firmware}" if candidate.firmware else None,
        f"failure domain {domain}" if domain else None,
    )
    yield ", ".join(fact for fact in facts if fact)
    for disk in state.disks:
        size = f"{disk.size_gib} GiB" if disk.size_gib is not None else "size unknown"
        yield f"disk {disk.name or '(not its own)'}: {size}, {disk.id}"
    for nic in state.nics or ():
        yield f"interface {nic.name or '?'}: {nic.mac_address or '?'} on {nic.network or '?'}"


def _printable(line: str) -> str:
    """The line as a comment can hold it: a backend's names must not become YAML."""
    return "".join(sign if sign.isprintable() else "?" for sign in line)
