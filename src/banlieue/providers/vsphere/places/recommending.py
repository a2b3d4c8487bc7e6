"""Which datastore of a datastore cluster a new VM goes to, by the cluster's own word.

The cluster only recommends; the clone then names the datastore. Where it recommends nothing, the
choice by free space stands.
"""

from collections.abc import Callable
from typing import Any

from pyVmomi import vim, vmodl

from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.soap import moid

_LEASE_SECONDS = 60
"""How long the cluster keeps for us what it recommended; the clone follows at once."""


def recommended(  # noqa: PLR0917 - what a vCenter wants to know
    session: Session,
    pod: str,
    template: str,
    name: str,
    folder: str,
    spec: Callable[[Any], Any],
) -> str | None:
    """The id of the datastore that the cluster recommends; None when it has no advice. One call.

    Args:
        session: the session to ask in.
        pod: id of the datastore cluster.
        template: id of what is cloned.
        name: name of the VM to make.
        folder: id of its folder.
        spec: builds the `CloneSpec` for a stub.
    """

    def ask(login: Login) -> Any:  # noqa: ANN401 - a StoragePlacementResult
        stub = login.ops
        manager = vim.StorageResourceManager(login.content.storage_resource_manager, stub)
        clone = spec(stub)
        clone.location.datastore, clone.location.disk = None, []
        # Only the disks matter; first-boot data is no business of the storage manager.
        disks = [
            change
            for change in clone.config.deviceChange
            if isinstance(
                change.device, vim.vm.device.VirtualDisk | vim.vm.device.VirtualController
            )
        ]
        clone.config = vim.vm.ConfigSpec(deviceChange=disks)
        where = vim.storageDrs.PodSelectionSpec(storagePod=vim.StoragePod(pod, stub))
        where.initialVmConfig = [
            vim.storageDrs.PodSelectionSpec.VmPodConfig(storagePod=vim.StoragePod(pod, stub))
        ]
        return manager.RecommendDatastores(
            storageSpec=vim.storageDrs.StoragePlacementSpec(
                type="clone",
                vm=vim.VirtualMachine(template, stub),
                podSelectionSpec=where,
                cloneSpec=clone,
                cloneName=name,
                folder=vim.Folder(folder, stub),
                resourceLeaseDurationSec=_LEASE_SECONDS,
            )
        )

    try:
        told = session.run(ask)
    except vim.fault.NotAuthenticated:
        raise
    except vmodl.MethodFault:
        return None  # the clone itself tells what is really wrong
    for recommendation in sorted(told.recommendations or (), key=lambda it: -(it.rating or 0)):
        for action in recommendation.action or ():
            if isinstance(action, vim.storageDrs.StoragePlacementAction):
                return moid(action.destination)
    return None
