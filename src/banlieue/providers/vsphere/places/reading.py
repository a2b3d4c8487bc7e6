"""How the places of a vCenter are read: all of them in one call."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import unquote

from pyVmomi import vim

from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.soap import Found, moid, property_spec, step, walk
from banlieue.providers.vsphere.places.inventory import (
    Cluster,
    Datacenter,
    Datastore,
    Host,
    Inventory,
    Network,
    Place,
    Pod,
    Pool,
    ZoneKind,
)

_MIB = 1024 * 1024
_GIB = 1024 * _MIB
_FULL = "fullyAutomated"
_POD_ENABLED = "podStorageDrsEntry.storageDrsConfig.podConfig.enabled"
_GROUPS = "configurationEx.group"

_OF_CLUSTERS = (
    "name",
    "parent",
    "host",
    "resourcePool",
    "environmentBrowser",
    "configurationEx.drsConfig.enabled",
    "configurationEx.drsConfig.defaultVmBehavior",
)
_WANTED = (
    property_spec(vim.Folder, ("name", "parent")),
    property_spec(vim.Datacenter, ("name", "parent", "vmFolder")),
    property_spec(
        vim.HostSystem,
        (
            "name",
            "parent",
            "datastore",
            "network",
            "runtime.connectionState",
            "runtime.inMaintenanceMode",
            "runtime.inQuarantineMode",
            "summary.hardware.numCpuCores",
            "summary.hardware.memorySize",
            "summary.quickStats.overallMemoryUsage",
        ),
    ),
    property_spec(vim.ResourcePool, ("name", "parent", "owner")),
    property_spec(
        vim.Datastore,
        (
            "name",
            "parent",
            "summary.accessible",
            "summary.maintenanceMode",
            "summary.freeSpace",
        ),
    ),
    property_spec(vim.StoragePod, ("name", "parent", _POD_ENABLED)),
    property_spec(vim.Network, ("name", "parent")),
    property_spec(vim.OpaqueNetwork, ("name", "parent", "summary")),
    property_spec(
        vim.dvs.DistributedVirtualPortgroup,
        (
            "name",
            "parent",
            "key",
            "config.distributedVirtualSwitch",
            "config.uplink",
            "config.segmentId",
            "config.logicalSwitchUuid",
        ),
    ),
    property_spec(vim.DistributedVirtualSwitch, ("name", "uuid")),
)

_STEPS = (
    step(
        vim.Folder,
        "childEntity",
        "Folder.childEntity",
        "Datacenter.vmFolder",
        "Datacenter.hostFolder",
        "Datacenter.datastoreFolder",
        "Datacenter.networkFolder",
        "ComputeResource.host",
        "ComputeResource.resourcePool",
    ),
    step(vim.Datacenter, "vmFolder", "Folder.childEntity"),
    step(vim.Datacenter, "hostFolder", "Folder.childEntity"),
    step(vim.Datacenter, "datastoreFolder", "Folder.childEntity"),
    step(vim.Datacenter, "networkFolder", "Folder.childEntity"),
    step(vim.ComputeResource, "host"),
    step(vim.ComputeResource, "resourcePool", "ResourcePool.resourcePool"),
    step(vim.ResourcePool, "resourcePool", "ResourcePool.resourcePool"),
)


def read_inventory(session: Session, kind: ZoneKind = ZoneKind.CLUSTER) -> Inventory:
    """Read all places in one call; raises what the vendor library raises.

    The groups of clusters name all their VMs, so they are read only where they are failure domains.
    """
    root = session.login.content.root_folder
    groups = (_GROUPS,) if kind is ZoneKind.GROUP else ()
    clusters = property_spec(vim.ClusterComputeResource, (*_OF_CLUSTERS, *groups))
    found = walk(session, root, vim.Folder, _STEPS, (*_WANTED, clusters))
    return replace(parse(root, found), kind=kind)


def parse(root: str, found: list[Found]) -> Inventory:
    """The inventory from the objects of a reply; what cannot be read is not there."""
    by_kind: dict[str, dict[str, Found]] = {}
    for item in found:
        if "name" in item.values:
            by_kind.setdefault(item.kind, {})[item.moid] = item
    folders = {**by_kind.get("Folder", {}), **by_kind.get("StoragePod", {})}
    switches = {
        key: (item.get("uuid"), _name(item))
        for kind, items in by_kind.items()
        if kind.endswith("DistributedVirtualSwitch")
        for key, item in items.items()
    }
    partial = Inventory(
        root=root,
        folders={key: Place(key, _name(item), item.ref("parent")) for key, item in folders.items()},
        datacenters={
            key: Datacenter(key, _name(item), item.ref("parent"), item.ref("vmFolder") or "")
            for key, item in by_kind.get("Datacenter", {}).items()
        },
    )
    return Inventory(
        root=root,
        folders=partial.folders,
        datacenters=partial.datacenters,
        clusters=dict(_clusters(by_kind.get("ClusterComputeResource", {}), partial)),
        hosts={key: _host(item) for key, item in by_kind.get("HostSystem", {}).items()},
        pools={
            key: Pool(key, _name(item), item.ref("parent"), item.ref("owner"))
            for key, item in by_kind.get("ResourcePool", {}).items()
        },
        datastores={key: _datastore(item) for key, item in by_kind.get("Datastore", {}).items()},
        networks={
            **{
                key: Network(key, _name(item), item.ref("parent"))
                for key, item in by_kind.get("Network", {}).items()
            },
            **dict(_opaque_networks(by_kind.get("OpaqueNetwork", {}))),
            **dict(_port_groups(by_kind.get("DistributedVirtualPortgroup", {}), switches)),
        },
        pods={
            key: Pod(key, _name(item), item.ref("parent"), bool(item.get(_POD_ENABLED)))
            for key, item in by_kind.get("StoragePod", {}).items()
        },
    )


def _name(item: Found) -> str:
    return unquote(item.get("name"))


def _clusters(found: Mapping[str, Found], places: Inventory) -> Iterator[tuple[str, Cluster]]:
    for key, item in found.items():
        datacenter = places.datacenter_of(item.ref("parent"))
        pool = item.ref("resourcePool")
        if datacenter is None or pool is None:
            continue
        yield (
            key,
            Cluster(
                id=key,
                name=_name(item),
                parent=item.ref("parent"),
                datacenter=datacenter.id,
                pool=pool,
                hosts=item.refs("host"),
                places_vms=bool(item.get("configurationEx.drsConfig.enabled"))
                and item.get("configurationEx.drsConfig.defaultVmBehavior") == _FULL,
                browser=item.ref("environmentBrowser"),
                groups={
                    group.name: tuple(moid(host) for host in group.host)
                    for group in item.get(_GROUPS) or ()
                    if isinstance(group, vim.cluster.HostGroup)
                },
            ),
        )


def _host(item: Found) -> Host:
    return Host(
        id=item.moid,
        name=_name(item),
        parent=item.ref("parent"),
        usable=item.get("runtime.connectionState") == "connected"
        and not item.get("runtime.inMaintenanceMode", False)
        and not item.get("runtime.inQuarantineMode", False),
        cpus=int(item.get("summary.hardware.numCpuCores", 0)),
        memory_mib=int(item.get("summary.hardware.memorySize", 0)) // _MIB,
        used_mib=int(item.get("summary.quickStats.overallMemoryUsage", 0)),
        datastores=frozenset(item.refs("datastore")),
        networks=frozenset(item.refs("network")),
    )


def _datastore(item: Found) -> Datastore:
    return Datastore(
        id=item.moid,
        name=_name(item),
        parent=item.ref("parent"),
        usable=bool(item.get("summary.accessible"))
        and item.get("summary.maintenanceMode", "normal") == "normal",
        free_gib=int(item.get("summary.freeSpace", 0)) // _GIB,
    )


def _opaque_networks(found: Mapping[str, Found]) -> Iterator[tuple[str, Network]]:
    for key, item in found.items():
        told = item.get("summary")
        known = getattr(told, "opaqueNetworkId", None), getattr(told, "opaqueNetworkType", None)
        if known[0] and known[1]:
            opaque = (str(known[0]), str(known[1]))
            yield key, Network(key, _name(item), item.ref("parent"), opaque=opaque)


def _port_groups(
    found: Mapping[str, Found], switches: Mapping[str, tuple[str | None, str]]
) -> Iterator[tuple[str, Network]]:
    for key, item in found.items():
        uuid, name = switches.get(item.ref("config.distributedVirtualSwitch") or "", (None, ""))
        if item.get("config.uplink") or uuid is None:
            continue
        yield (
            key,
            Network(
                id=key,
                name=_name(item),
                parent=item.ref("parent"),
                port_group=item.get("key"),
                switch_uuid=uuid,
                switch=name,
                segment=item.get("config.segmentId"),
                logical_switch=item.get("config.logicalSwitchUuid"),
            ),
        )
