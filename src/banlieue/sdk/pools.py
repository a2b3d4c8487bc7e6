"""Which pool an address comes from, and what its claim is called. Pure.

The controller makes the claims; a provider that waits for an address can name its claim.
"""

import hashlib
import ipaddress
import json
import re
from collections.abc import Iterable

from banlieue.api.infrastructure.machine import Machine
from banlieue.api.types import IPFamily
from banlieue.api.v1alpha1.provider import PoolRef, Subnet

_VERSIONS = {IPFamily.IPV4: 4, IPFamily.IPV6: 6}
_NO_NAME = re.compile(r"[^a-z0-9]+")
_LONGEST = 253
_HASH_LENGTH = 8


def is_of(family: IPFamily, text: str) -> bool:
    """Whether a text is one IP address, of that family."""
    try:
        return ipaddress.ip_address(text).version == _VERSIONS[family]
    except ValueError:
        return False


def pool_of(subnets: Iterable[Subnet], family: IPFamily) -> PoolRef | None:
    """The pool of a network class's addresses of a family: of its first subnet that has one."""
    return next((it.pool for it in subnets if it.pool and _family(it) is family), None)


def claim_of(machine: Machine, nic: str, family: IPFamily, pool: PoolRef) -> str:
    """Name of the claim that a machine uses for one address.

    It is its VirtualMachine's, so that a machine made anew finds it again. One of Cluster API has
    claims of its own.
    """
    made_for = machine.spec.virtual_machine_ref
    if made_for is not None:
        return claim_name(made_for.name, nic, family, pool)
    return claim_name(machine.metadata.name, nic, family, pool, of_cluster=True)


def claim_name(
    claimant: str, nic: str, family: IPFamily, pool: PoolRef, *, of_cluster: bool = False
) -> str:
    """Name the claim of one address.

    Args:
        claimant: name of the VirtualMachine, or of Cluster API's machine object.
        nic: name of the interface.
        family: of the address.
        pool: where it comes from; another pool means another claim.
        of_cluster: which of the two the claimant is; both may have one name.

    Returns:
        ``web-eth0-ipv4-5e1c2f90`` and the like, the same for the same arguments.
    """
    identity = [claimant, nic, family.value, pool.api_group, pool.kind, pool.name]
    identity += ["Machine"] if of_cluster else []
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:_HASH_LENGTH]
    tail = f"-{_slug(nic)}-{family.value.lower()}-{digest}"
    return claimant[: _LONGEST - len(tail)].rstrip("-.") + tail


def _slug(text: str) -> str:
    return _NO_NAME.sub("-", text.lower()).strip("-") or "nic"


def _family(subnet: Subnet) -> IPFamily | None:
    try:
        version = ipaddress.ip_network(subnet.cidr, strict=False).version
    except ValueError:
        return None
    return next(family for family, number in _VERSIONS.items() if number == version)
