"""Which rights the account needs, and which of them it lacks where."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyVmomi import vim

from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.providers.vsphere.client import soap
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.places import networks, policies, stores
from banlieue.providers.vsphere.places.inventory import Datastore, Inventory, Network, Place
from banlieue.providers.vsphere.places.stores import NotReachable
from banlieue.sdk.driver import MissingPrivilege

READ = ("System.View", "System.Read")
"""What is needed at the root, and everywhere, to know that something is not there."""

_ON_VMS = (
    "VirtualMachine.Inventory.CreateFromExisting",
    "VirtualMachine.Inventory.Delete",
    "VirtualMachine.Provisioning.DeployTemplate",
    "VirtualMachine.Interact.PowerOn",
    "VirtualMachine.Interact.PowerOff",
    "VirtualMachine.Interact.Reset",
    "VirtualMachine.Interact.Suspend",
    "VirtualMachine.Config.AddExistingDisk",
    "VirtualMachine.Config.AddNewDisk",
    "VirtualMachine.Config.AddRemoveDevice",
    "VirtualMachine.Config.AdvancedConfig",
    "VirtualMachine.Config.Annotation",
    "VirtualMachine.Config.CPUCount",
    "VirtualMachine.Config.DiskExtend",
    "VirtualMachine.Config.EditDevice",
    "VirtualMachine.Config.Memory",
    "VirtualMachine.Config.RemoveDisk",
    "VirtualMachine.Config.Settings",
)
_ON_POOLS = ("Resource.AssignVMToPool",)
_ON_DATASTORES = ("Datastore.AllocateSpace", "Datastore.Browse", "Datastore.FileManagement")
_ON_NETWORKS = ("Network.Assign",)
_ON_POLICIES = ("StorageProfile.View",)
"""Needed only where a storage class names a policy."""

ROLE: Mapping[str, tuple[str, ...]] = {
    "root": READ,
    "virtualMachineFolders": _ON_VMS,
    "resourcePools": _ON_POOLS,
    "datastores": _ON_DATASTORES,
    "networks": _ON_NETWORKS,
}
"""The least an account needs, by the kind of place; `config/vsphere/role.yaml` says the same."""

_MOST_FOLDERS = 256


@dataclass(frozen=True, slots=True)
class _Need:
    """Privileges needed on places of one kind: on each of them, or on any one of a group."""

    privileges: tuple[str, ...]
    places: tuple[Place, ...]
    kind: type[Any]
    where: str


def missing(
    session: Session, inventory: Inventory, declared: Capabilities
) -> tuple[MissingPrivilege, ...]:
    """Every right the account lacks, with the object it is lacking on; one call.

    Rights on VM folders and resource pools count as given in a datacenter or cluster when any of
    its folders or pools gives them, since machines may be made there only.
    """
    needs = tuple(_needs(inventory, declared))
    entities = {place.id: need.kind for need in needs for place in need.places}
    asked = tuple(dict.fromkeys(privilege for need in needs for privilege in need.privileges))
    held = soap.granted(session, entities, asked)
    return tuple(
        MissingPrivilege(privilege, need.where)
        for need in needs
        for privilege in need.privileges
        if not any(privilege in held.get(place.id, ()) for place in need.places)
    )


def can_see_everything(session: Session) -> bool:
    """Whether the session is alive and may read from the root down; one call."""
    root = session.login.content.root_folder
    held = soap.granted(session, {root: vim.Folder}, READ)
    return held.get(root, frozenset()) >= frozenset(READ)


def _needs(inventory: Inventory, declared: Capabilities) -> Iterator[_Need]:
    root = Place(inventory.root, "root", None)
    yield _Need(READ, (root,), vim.Folder, "the root folder")
    if policies.declared(declared):
        yield _Need(_ON_POLICIES, (root,), vim.Folder, "the root folder")
    for datacenter in inventory.datacenters.values():
        folders = tuple(_vm_folders(inventory, datacenter.vm_folder))[:_MOST_FOLDERS]
        where = f"the VM folders of datacenter {datacenter.name}"
        yield _Need(_ON_VMS, folders, vim.Folder, where)
    for cluster in inventory.clusters.values():
        pools = tuple(pool for pool in inventory.pools.values() if pool.owner == cluster.id)
        where = f"the resource pools of cluster {cluster.name}"
        yield _Need(_ON_POOLS, pools, vim.ResourcePool, where)
    for store in _stores(inventory, declared):
        yield _Need(_ON_DATASTORES, (store,), vim.Datastore, f"datastore {store.name}")
    for network in _networks(inventory, declared):
        kind = vim.dvs.DistributedVirtualPortgroup if network.port_group else vim.Network
        kind = vim.OpaqueNetwork if network.opaque else kind
        yield _Need(_ON_NETWORKS, (network,), kind, f"port group {network.name}")


def _vm_folders(inventory: Inventory, top: str) -> Iterator[Place]:
    yield inventory.folders.get(top) or Place(top, "vm", None)
    for folder in inventory.folders.values():
        if folder.parent == top:
            yield from _vm_folders(inventory, folder.id)


def _stores(inventory: Inventory, declared: Capabilities) -> list[Datastore]:
    """Every datastore that a storage class means anywhere."""
    found: dict[str, Datastore] = {}
    for cluster in inventory.clusters.values():
        for storage in declared.storage_classes:
            with contextlib.suppress(NotReachable):
                options = stores.candidates(inventory, cluster, storage.target)
                found |= {store.id: store for store in options}
    return list(found.values())


def _networks(inventory: Inventory, declared: Capabilities) -> list[Network]:
    """Every network that a network class means anywhere."""
    found: dict[str, Network] = {}
    for cluster in inventory.clusters.values():
        for declaration in declared.network_classes:
            with contextlib.suppress(NotReachable):
                network = networks.find(inventory, cluster, declaration.target)
                found[network.id] = network
    return list(found.values())
