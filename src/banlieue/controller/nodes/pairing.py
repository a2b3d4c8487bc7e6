"""Which Node is which machine, by the UUID the firmware tells the guest. Pure.

vSphere shows a guest the UUID with the first three groups in the other byte order, by hardware
version, so both orders count. What could be two ways is not settled.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from banlieue.sdk.workload import Node

_PROVIDER_ID = re.compile(
    r"[a-z][a-z0-9+.-]*://([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})"
)


@dataclass(frozen=True, slots=True)
class Member:
    """A Machine that has its provider ID and, unless `waits` is false, no Node yet."""

    name: str
    provider_id: str
    waits: bool = True


@dataclass(frozen=True, slots=True)
class Pairing:
    """What is to be done for the Machines that wait.

    Attributes:
        settled: Nodes to be given a Machine's provider ID.
        ambiguous: Machines of which the UUID does not tell one Node from another.
        taken: Machines whose Node has another provider ID already, and that Node.
        unseen: Machines without a Node of their UUID.
    """

    settled: Sequence[tuple[Member, Node]] = ()
    ambiguous: Sequence[Member] = ()
    taken: Sequence[tuple[Member, Node]] = ()
    unseen: Sequence[Member] = ()


def uuid_of(provider_id: str) -> UUID | None:
    """The machine's UUID in a provider ID such as `vsphere://<uuid>`, None without one."""
    match = _PROVIDER_ID.fullmatch(provider_id)
    return UUID(match[1]) if match else None


def pair(members: Iterable[Member], nodes: Sequence[Node]) -> Pairing:
    """Find the Nodes of Machines.

    Args:
        members: every Machine of the cluster that has a provider ID, those with a Node included:
            a UUID they share with another must not count for that one.
        nodes: every Node of the cluster.
    """
    known = {member: uuid for member in members if (uuid := uuid_of(member.provider_id))}
    orders = {node: _orders(node.system_uuid) for node in nodes}
    named = {node.provider_id for node in nodes}
    settled: list[tuple[Member, Node]] = []
    ambiguous: list[Member] = []
    taken: list[tuple[Member, Node]] = []
    unseen: list[Member] = []
    for member, uuid in known.items():
        if not member.waits or member.provider_id in named:
            continue
        candidates = [node for node in nodes if uuid in orders[node]]
        if not candidates:
            unseen.append(member)
            continue
        node = candidates[0]
        claims = sum(other in orders[node] for other in known.values())
        if len(candidates) > 1 or claims > 1:
            ambiguous.append(member)
        elif node.provider_id:
            taken.append((member, node))
        else:
            settled.append((member, node))
    return Pairing(settled, ambiguous, taken, unseen)


def _orders(system_uuid: str) -> frozenset[UUID]:
    """A UUID as it is told, and in the other byte order; empty when it is none."""
    try:
        told = UUID(system_uuid.strip())
    except ValueError:
        return frozenset()
    return frozenset({told, UUID(bytes_le=told.bytes)})
