"""What an account can see no more though it is there: lost read rights are no removal."""

from collections.abc import Collection

from pyVmomi import vim, vmodl

from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import read_one
from banlieue.providers.vsphere.client.transport import Untold

_CLUSTER = "domain-c"
"""What ids of compute clusters begin with; those of resource pools begin otherwise."""


def hidden(session: Session, domains: Collection[str]) -> frozenset[str]:
    """Those of the failure domains, by id, that exist and may not be read; one call for each.

    A host group has no object of its own, so it is hidden when its cluster is.
    """
    return frozenset(domain for domain in domains if _is_hidden(session, domain))


def _is_hidden(session: Session, domain: str) -> bool:
    key = domain.partition("/")[0]
    kind = vim.ClusterComputeResource if key.startswith(_CLUSTER) else vim.ResourcePool
    try:
        found = read_one(session, key, kind, ("name",))
    except vmodl.fault.ManagedObjectNotFound:
        return False
    except vim.fault.NotAuthenticated:
        raise
    except (vim.fault.NoPermission, Untold):
        return True
    return isinstance(found.faults.get("name"), vim.fault.NoPermission)
