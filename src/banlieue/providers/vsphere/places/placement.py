"""From a plan to the objects of a vCenter it is made of: where, on which host, on what networks.

Pure over the inventory. Everything is checked here, before the clone is sent, because a vCenter
says little about what was wrong with one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.models import CloneMode, VSphereMachineSpec
from banlieue.providers.vsphere.places import domains, linking, networks, pools, stores
from banlieue.providers.vsphere.places.folders import Home, home_of
from banlieue.providers.vsphere.places.inventory import (
    Cluster,
    Datacenter,
    Datastore,
    Host,
    Inventory,
    Network,
    Place,
    below,
)
from banlieue.providers.vsphere.places.networks import Adapter
from banlieue.providers.vsphere.places.stores import NotReachable, Promised, Wish
from banlieue.providers.vsphere.places.templates import Template
from banlieue.providers.vsphere.places.zones import zone
from banlieue.sdk.driver import DiskPlan, MachinePlan
from banlieue.sdk.driver import Target as Meaning
from banlieue.sdk.errors import InvalidSpec, NeedsOperator, Refused

Plan = MachinePlan[VSphereMachineSpec]
Load = Callable[[str], int]
"""MiB that VMs being made on a host will take."""

MOST_NICS = 10
"""Network cards a virtual machine can have."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a VM is made and how.

    `datastores` and `wishes` are those of the plan's disks in their order, `networks` and
    `adapters` those of its interfaces. `host` is None where the cluster picks it. `linkable` tells
    that a linked clone can read its template's disks there. `missing` are the folders to make
    below `folder`, the outermost first.
    """

    datacenter: Datacenter
    cluster: Cluster
    folder: str
    pool: str
    datastores: tuple[Datastore, ...]
    networks: tuple[Network, ...]
    host: Host | None
    wishes: tuple[Wish, ...] = ()
    adapters: tuple[Adapter, ...] = ()
    linkable: bool = True
    missing: tuple[str, ...] = ()

    def wish(self, number: int) -> Wish:
        """How a disk of the plan is to be made."""
        return self.wishes[number] if number < len(self.wishes) else Wish()

    def adapter(self, number: int) -> Adapter:
        """The kind of card of an interface of the plan."""
        return self.adapters[number] if number < len(self.adapters) else Adapter.VMXNET3


def cluster_of(places: Inventory, plan: Plan) -> Cluster:
    """The part of a cluster that a plan names by its failure domain.

    Raises:
        NeedsOperator: it is not there.
        InvalidSpec: the machine's own `cluster` or `datacenter` is another one.
    """
    cluster = zone(places, plan.failure_domain.id)
    if cluster is None:
        raise NeedsOperator(
            Reason.FAILURE_DOMAIN_NOT_FOUND,
            f"the place of failure domain {'-'.join(plan.failure_domain.path)} is gone",
        )
    datacenter = places.datacenters[cluster.datacenter]
    _same(places, plan.spec.cluster, "cluster", cluster, (datacenter.name, "host"))
    _same(places, plan.spec.datacenter, "datacenter", datacenter, ())
    return cluster


def _same(
    places: Inventory,
    wanted: str | None,
    field: str,
    place: Cluster | Datacenter,
    above: tuple[str, ...],
) -> None:
    if wanted is None or wanted in {place.name, place.id}:
        return
    is_datacenter = isinstance(place, Datacenter)
    full = (*_folders(places, place), place.name) if is_datacenter else places.path(place.id)
    if "/" in wanted and below(wanted, *above) == full:
        return
    raise InvalidSpec(
        Reason.INVALID_CONFIGURATION,
        f"{field} {wanted!r} is not that of the failure domain ({place.name}); "
        f"leave it out, or choose a failure domain in it",
    )


def _folders(places: Inventory, datacenter: Place) -> tuple[str, ...]:
    """Names of the folders above a datacenter, but for the root."""
    names: list[str] = []
    folder = places.folders.get(datacenter.parent or "")
    while folder is not None and folder.parent is not None and folder.id != places.root:
        names.append(folder.name)
        folder = places.folders.get(folder.parent)
    return tuple(reversed(names))


def locate(
    places: Inventory,
    plan: Plan,
    template: Template,
    load: Load,
    *,
    promised: Promised = lambda _: 0,
    home: Home | None = None,
    able: frozenset[str] | None = None,
) -> Target:
    """Resolve all a plan names.

    Args:
        places: the inventory.
        plan: the machine.
        template: what it is cloned from.
        load: what is being made on a host.
        promised: what is on its way to a datastore.
        home: what the Provider says about folders.
        able: the hosts that have what else the VM needs; None where that is not to be looked at.

    Raises:
        InvalidSpec, NeedsOperator: something it names is not there; the message says what.
        Refused: no host of the cluster can take the VM.
    """
    cluster = cluster_of(places, plan)
    datacenter = places.datacenters[cluster.datacenter]
    if len(plan.nics) > MOST_NICS:
        raise InvalidSpec(
            Reason.INVALID_CONFIGURATION,
            f"networkInterfaces: there are {len(plan.nics)}, and a VM has at most {MOST_NICS}; "
            "use fewer",
        )
    nets = tuple(network(places, cluster, nic.network, nic.name) for nic in plan.nics)
    options = [_options(places, cluster, plan, template, disk) for disk in plan.disks or (_ROOT,)]
    hosts, linkable = _fitting(places, cluster, plan, template, nets, options)
    if able is not None:
        hosts = tuple(host for host in hosts if host.id in able)
    chosen, hosts = _spread(plan, options, hosts, promised)
    folder, missing = home_of(places, datacenter, plan.spec, home or Home())
    return Target(
        datacenter=datacenter,
        cluster=cluster,
        folder=folder,
        missing=missing,
        pool=pools.find(places, cluster, plan.spec.resource_pool),
        datastores=chosen,
        networks=nets,
        host=_host(cluster, hosts, load),
        wishes=tuple(option.wish for option in options),
        adapters=tuple(_adapter(nic.network, nic.name) for nic in plan.nics),
        linkable=linkable,
    )


_ROOT = DiskPlan("root", None, {})


@dataclass(frozen=True, slots=True)
class _Option:
    """Where a disk may be put and how it is made."""

    disk: DiskPlan
    stores: tuple[Datastore, ...]
    wish: Wish


def root_stores(places: Inventory, cluster: Cluster, plan: Plan) -> tuple[Datastore, ...]:
    """The datastores the boot disk may be put on; none where nothing is said about it."""
    disk = plan.disks[0] if plan.disks else _ROOT
    wanted = _meaning(places, cluster, plan, disk)
    if not any(key in wanted for key in stores.CHOOSING):
        return ()
    return _candidates(places, cluster, plan, disk, wanted)


def _options(
    places: Inventory, cluster: Cluster, plan: Plan, template: Template, disk: DiskPlan
) -> _Option:
    wanted = _meaning(places, cluster, plan, disk)
    if any(key in wanted for key in stores.CHOOSING):
        found = _candidates(places, cluster, plan, disk, wanted)
        return _Option(disk, found, stores.wish(places, cluster, wanted))
    anywhere = stores.anywhere(places, cluster)
    beside = template.root.datastore if template.root else None
    is_root = not plan.disks or disk is plan.disks[0]
    near = tuple(store for store in anywhere if is_root and store.id == beside)
    return _Option(disk, near or anywhere, Wish())


def _meaning(places: Inventory, cluster: Cluster, plan: Plan, disk: DiskPlan) -> Meaning:
    """What the storage of a disk is: its class's, and what the machine itself says over it."""
    wanted: dict[str, str | int] = dict(disk.storage)
    is_root = not plan.disks or disk is plan.disks[0]
    if is_root and plan.spec.datastore:
        # The policy of the class holds on: data may have to be encrypted or mirrored.
        other = set(stores.CHOOSING) - {stores.POLICY_KEY}
        wanted = {key: value for key, value in wanted.items() if key not in other}
        pod = stores.pod_named(places, cluster, plan.spec.datastore)
        wanted[stores.POD_KEY if pod else stores.STORAGE_KEY] = plan.spec.datastore
    if plan.spec.storage_policy:
        wanted[stores.POLICY_KEY] = plan.spec.storage_policy
    return wanted


def _candidates(
    places: Inventory, cluster: Cluster, plan: Plan, disk: DiskPlan, wanted: Meaning
) -> tuple[Datastore, ...]:
    try:
        return stores.candidates(places, cluster, wanted)
    except NotReachable as problem:
        is_root = not plan.disks or disk is plan.disks[0]
        own = [name for name in _own_fields(plan, is_root=is_root) if name]
        remedy = f"{' and '.join(own)} of the machine" if own else "the storage class"
        raise NeedsOperator(
            Reason.STORAGE_CLASS_NOT_AVAILABLE,
            f"disk {disk.name}: {problem}; correct {remedy}, or choose another one",
        ) from None


def _own_fields(plan: Plan, *, is_root: bool) -> tuple[str, str]:
    return (
        "datastore" if is_root and plan.spec.datastore else "",
        "storagePolicy" if plan.spec.storage_policy else "",
    )


def _fitting(  # noqa: PLR0917 - all that a host has to see
    places: Inventory,
    cluster: Cluster,
    plan: Plan,
    template: Template,
    nets: Iterable[Network],
    options: list[_Option],
) -> tuple[tuple[Host, ...], bool]:
    """The hosts that see all networks, and whether they see the template's disks, too.

    A linked clone reads its template's disks, so only hosts that see them can run it; where none
    does, the clone is a full one unless a linked one was asked for.
    """
    needed = {network.id for network in nets}
    hosts = tuple(host for host in places.usable_hosts(cluster) if needed <= host.networks)
    spec, provisioning = plan.spec, options[0].wish.provisioning
    if not linking.snapshot_to_link(
        spec.clone_mode, spec.snapshot, plan.disks, template, provisioning
    ):
        return hosts, True
    backing = {disk.datastore for disk in template.disks if disk.datastore}
    near = tuple(
        host
        for host in hosts
        if backing <= host.datastores
        and all(any(store.id in host.datastores for store in it.stores) for it in options)
    )
    if not near and spec.clone_mode is CloneMode.LINKED:
        raise NeedsOperator(
            Reason.IMAGE_NOT_AVAILABLE,
            f"no host of cluster {cluster.name} that the VM can run on sees the disks of template "
            f"{template.name}, which a linked clone needs; use cloneMode Full, or have a copy of "
            "the template there",
        )
    return (near, True) if near else (hosts, False)


def _spread(
    plan: Plan, options: list[_Option], hosts: tuple[Host, ...], promised: Promised
) -> tuple[tuple[Datastore, ...], tuple[Host, ...]]:
    """A datastore for each disk, and the hosts that see them all.

    Disks without a choice come first. A disk that may lie beside the boot disk does.
    """
    order = sorted(range(len(options)), key=lambda number: (len(options[number].stores), number))
    chosen: dict[int, Datastore] = {}
    taken: dict[str, int] = {}
    left = hosts
    for number in order:
        option = options[number]
        fitting = _beside(option, chosen.get(0))
        size = option.disk.size_gib or 0
        store = stores.choose(fitting, left, size, lambda key: promised(key) + taken.get(key, 0))
        if store is None:
            raise _no_host(plan)
        chosen[number] = store
        taken[store.id] = taken.get(store.id, 0) + size
        left = tuple(host for host in left if store.id in host.datastores)
    return tuple(chosen[number] for number in range(len(options))), left


def _beside(option: _Option, root: Datastore | None) -> tuple[Datastore, ...]:
    """The boot disk's datastore where a disk says nothing about its own."""
    anywhere = option.wish == Wish() and not option.disk.storage
    return (root,) if anywhere and root in option.stores else option.stores


def _no_host(plan: Plan) -> Refused:
    where = "-".join(plan.failure_domain.path)
    return Refused(
        Reason.INSUFFICIENT_CAPACITY,
        f"no connected host of failure domain {where} has all the networks and datastores the "
        "VM needs; connect one, or choose another failure domain",
    )


def storage(
    where: tuple[Inventory, Cluster],
    plan: Plan,
    disk: DiskPlan,
    beside: str | None,
    host: str | None,
) -> tuple[Datastore, Wish]:
    """Where a disk is added to a VM that exists, and how it is made.

    Args:
        where: the inventory, and the cluster the VM is in.
        plan: the machine.
        disk: what is added.
        beside: the datastore of its boot disk, where a disk goes whose class says nothing.
        host: where the VM is, which has to see the disk.

    Raises:
        NeedsOperator: its storage class cannot be used there.
    """
    places, cluster = where
    wanted = dict(disk.storage)
    if plan.spec.storage_policy:
        wanted[stores.POLICY_KEY] = plan.spec.storage_policy
    if beside is not None and not any(key in wanted for key in stores.CHOOSING):
        wanted[stores.STORAGE_KEY] = beside
    own = places.hosts.get(host or "")
    hosts = (own,) if own else places.usable_hosts(cluster)
    problem = "the VM's host does not see its datastore"
    try:
        options = stores.candidates(places, cluster, wanted)
        chosen = stores.choose(options, hosts, disk.size_gib or 0, lambda _: 0)
        wish = stores.wish(places, cluster, wanted)
    except NotReachable as found:
        chosen, wish, problem = None, Wish(), str(found)
    if chosen is None:
        raise NeedsOperator(
            Reason.STORAGE_CLASS_NOT_AVAILABLE,
            f"disk {disk.name}: {problem}; correct the storage class, or choose another one",
        )
    return chosen, wish


def _adapter(target: Meaning, nic: str) -> Adapter:
    try:
        return networks.adapter(target)
    except NotReachable as problem:
        raise NeedsOperator(
            Reason.NETWORK_NOT_AVAILABLE, f"interface {nic}: {problem}; correct the network class"
        ) from None


def network(places: Inventory, cluster: Cluster, target: Meaning, nic: str) -> Network:
    """The network an interface is plugged into; raises `NeedsOperator` when it is not there."""
    try:
        return domains.network(places, cluster, target)
    except domains.NotReachable as problem:
        raise NeedsOperator(
            Reason.NETWORK_NOT_AVAILABLE,
            f"interface {nic}: {problem}; correct the network class, or choose another one",
        ) from None


def _host(cluster: Cluster, fitting: tuple[Host, ...], load: Load) -> Host | None:
    """The host to make the VM on, the one with the most memory left; None where DRS picks it."""
    if cluster.places_vms:
        return None
    return min(fitting, key=lambda host: (host.used_mib + load(host.id) - host.memory_mib, host.id))
