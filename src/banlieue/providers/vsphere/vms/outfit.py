"""All that is looked up, and made, before the one call that makes a VM.

The inventory, the template and what hosts support are kept, so that most creates ask nothing. A
machine that wants a folder made, or a datastore cluster asked, costs a call more.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.creates import Create, Creates
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.hardware.macs import Macs
from banlieue.providers.vsphere.places import placement
from banlieue.providers.vsphere.places.folders import Folders, Home
from banlieue.providers.vsphere.places.inventory import Cluster, Inventory, InventoryCache
from banlieue.providers.vsphere.places.offers import Offers
from banlieue.providers.vsphere.places.placement import Plan, Target
from banlieue.providers.vsphere.places.recommending import recommended
from banlieue.providers.vsphere.places.templates import Template, Templates
from banlieue.providers.vsphere.vms import clone
from banlieue.providers.vsphere.vms.clone import Clone
from banlieue.providers.vsphere.vms.spreading import Spreading
from banlieue.sdk.errors import NeedsOperator


@dataclass(slots=True, kw_only=True)
class Outfit:
    """Turns plans into clone calls. Thread-safe."""

    session: Session
    creates: Creates
    places: InventoryCache
    templates: Templates
    folders: Folders
    offers: Offers
    home: Home
    spreading: Spreading
    macs: Macs

    def prepare(self, plan: Plan, now: float) -> tuple[Clone, Create]:
        """What to send for a plan; raises what is wrong with it before anything is sent.

        Args:
            plan: the machine.
            now: seconds of the monotonic clock.
        """
        policy = plan.spec.storage_policy
        places = self.places.get(*((policy,) if policy else ()))
        cluster = placement.cluster_of(places, plan)
        template = self._template(plan, places, cluster)
        self.offers.check_version(plan, cluster)
        target = placement.locate(
            places,
            plan,
            template,
            self.spreading.load(plan, self.creates.load),
            promised=self._promised(),
            home=self.home,
            able=self._able(plan, places, cluster),
        )
        self.macs.check(plan, zip(plan.nics, target.networks, strict=True))
        request = clone.build(plan, target, template, self.offers.pci(plan, cluster))
        create = Create(
            name=plan.ref.name,
            uuid=(plan.ref.uuid or "").lower(),
            template=template.moid,
            host=request.host,
            memory_mib=plan.memory_mib,
            since=now,
            sizes=request.sizes,
        )
        self.spreading.note(plan, request.host)
        return replace(request, pod_stores=_pod_stores(places, target)), create

    def place(self, request: Clone, name: str) -> Clone:
        """The request with its folder made and its datastore cluster asked, where that is due."""
        if request.missing:
            folder = self.folders.ensure(request.folder, request.missing)
            request = replace(request, folder=folder, missing=())
        if request.pod is None:
            return request
        store = recommended(
            self.session,
            request.pod,
            request.template,
            name,
            request.folder,
            lambda stub: clone.clone_spec(request, stub),
        )
        return replace(request, datastore=store) if store in request.pod_stores else request

    def throw_away(self) -> None:
        """Look everything up again, since something is not as it was."""
        self.places.throw_away()
        self.templates.throw_away()
        self.folders.forget()

    def _promised(self) -> Callable[[str], int]:
        since = self.places.read_at
        return lambda datastore: self.creates.promised(datastore, since)

    def _able(self, plan: Plan, places: Inventory, cluster: Cluster) -> frozenset[str] | None:
        """The hosts that offer a plan's PCI devices; None where the cluster knows by itself."""
        if cluster.places_vms or not plan.spec.pci_device_labels:
            return None
        return self.offers.hosts_with(plan, cluster, places.usable_hosts(cluster))

    def _template(self, plan: Plan, places: Inventory, cluster: Cluster) -> Template:
        wanted = plan.spec.template or (plan.image.handle if plan.image else None)
        if wanted is None:
            raise NeedsOperator(
                Reason.IMAGE_NOT_AVAILABLE, "the machine names no image; set imageRef or template"
            )
        stores = placement.root_stores(places, cluster, plan)
        found = self.templates.find(wanted, places, cluster, stores)
        if found is not None:
            return found
        datacenter = places.datacenters[cluster.datacenter]
        elsewhere = self.templates.elsewhere(wanted, places)
        where = f"; it is in {', '.join(elsewhere)}, and clones stay in their datacenter"
        raise NeedsOperator(
            Reason.IMAGE_NOT_AVAILABLE,
            f"datacenter {datacenter.name} has no template {wanted!r}{where if elsewhere else ''}",
        )


def _pod_stores(places: Inventory, target: Target) -> frozenset[str]:
    """The datastores that a datastore cluster may recommend for the VM."""
    pod = target.wish(0).pod
    if pod is None:
        return frozenset()
    hosts = (target.host,) if target.host else places.usable_hosts(target.cluster)
    return frozenset(
        store.id
        for store in places.datastores.values()
        if store.parent == pod.id
        and store.usable
        and any(store.id in host.datastores for host in hosts)
    )
