"""The scheduler's filters, in order: each says why a candidate cannot take a machine, or None.

A detail stays the same while only figures move, so that a condition made from it is not rewritten
whenever a backend reports its free memory; the figures stand beside it.
"""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from banlieue.api.reasons import Reason
from banlieue.api.types import Feature, Firmware
from banlieue.controller.scheduling.crowd import Crowd
from banlieue.controller.scheduling.neighbours import Neighbours
from banlieue.controller.scheduling.placement import Demand, Domain, ImageState, Place, Site
from banlieue.controller.scheduling.quantities import gib


@dataclass(frozen=True, slots=True)
class Terrain:
    """What filters and scores know beside the candidate: the others and recent refusals."""

    crowd: Crowd
    neighbours: Neighbours
    refused: Mapping[Place, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reject:
    """Reason, detail and figures of one filter's no."""

    reason: Reason
    detail: str
    figures: str = ""


_READS: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    "ignition": frozenset({"userData", "sshAuthorizedKeys"}),
}
"""What a guest reads at its first boot, by its kind of bootstrap; others read everything."""

SiteFilter = Callable[[Demand, Site], Reject | None]
DomainFilter = Callable[[Demand, Site, Domain, Terrain], Reject | None]


def site_open(demand: Demand, site: Site) -> Reject | None:
    """Ready, writable, and taking new machines."""
    del demand
    if site.ready and not (site.paused or site.read_only or site.cordoned or site.deleting):
        return None
    closed = (
        (not site.ready, Reason.PROVIDER_NOT_READY, f"not ready: {site.not_ready or 'unknown'}"),
        (site.paused, Reason.PROVIDER_PAUSED, "paused"),
        (site.read_only, Reason.PROVIDER_READ_ONLY, "read-only"),
        (site.cordoned, Reason.PROVIDER_CORDONED, "cordoned"),
        (site.deleting, Reason.PROVIDER_DELETING, "being deleted"),
    )
    return next(Reject(reason, detail) for shut, reason, detail in closed if shut)


def site_pinned(demand: Demand, site: Site) -> Reject | None:
    """The Provider the user named, if any."""
    if demand.provider_ref is None or demand.provider_ref == site.key:
        return None
    return Reject(Reason.NO_PROVIDER_MATCHED, "not the Provider of spec.providerRef")


def site_selected(demand: Demand, site: Site) -> Reject | None:
    """Labels the user asks Providers for."""
    selector = demand.provider_selector
    if selector is None or selector.matches(site.labels):
        return None
    return Reject(Reason.NO_PROVIDER_MATCHED, "does not match placement.providerSelector")


def domain_selected(demand: Demand, site: Site, domain: Domain, terrain: Terrain) -> Reject | None:
    """Labels the user asks failure domains for."""
    del site, terrain
    selector = demand.domain_selector
    if selector is None or selector.matches(domain.labels):
        return None
    return Reject(
        Reason.NO_FAILURE_DOMAIN_MATCHED, "does not match placement.failureDomainSelector"
    )


def domain_schedulable(
    demand: Demand, site: Site, domain: Domain, terrain: Terrain
) -> Reject | None:
    """Neither the admin nor maintenance keeps new machines out."""
    del demand, site, terrain
    if domain.schedulable:
        return None
    return Reject(Reason.FAILURE_DOMAIN_CORDONED, "takes no new machines")


def image_ready(demand: Demand, site: Site, domain: Domain, terrain: Terrain) -> Reject | None:
    """The Provider can make machines from the image in that failure domain."""
    del terrain
    if not demand.image:
        return None  # the backend's own field names what it is made from
    state = site.images.get(demand.image)
    if state is not None and state.usable_in(domain.name):
        return None
    return Reject(
        Reason.IMAGE_NOT_READY, f"image {demand.image} is not ready there: {_lack(state)}"
    )


def architecture_fits(
    demand: Demand, site: Site, domain: Domain, terrain: Terrain
) -> Reject | None:
    """Processors there run the image."""
    del site, terrain
    asked = demand.architecture
    if not asked or not domain.architectures or asked in domain.architectures:
        return None
    return Reject(
        Reason.ARCHITECTURE_UNSUPPORTED, f"does not run architecture {demand.architecture}"
    )


def firmware_fits(demand: Demand, site: Site, domain: Domain, terrain: Terrain) -> Reject | None:
    """The image boots with the class's firmware."""
    del site, domain, terrain
    wanted = demand.firmware
    if wanted is None or not demand.image_firmware or wanted in demand.image_firmware:
        return None
    return Reject(
        Reason.FIRMWARE_UNSUPPORTED,
        f"the class wants firmware {wanted}, image {demand.image} boots with "
        f"{', '.join(demand.image_firmware)}",
    )


def disk_fits(demand: Demand, site: Site, domain: Domain, terrain: Terrain) -> Reject | None:
    """The root disk is large enough for the image."""
    del site, domain, terrain
    need, have = demand.min_disk_gib, demand.root_disk_gib
    if need is None or have is None or have >= need:
        return None
    return Reject(
        Reason.IMAGE_TOO_LARGE,
        f"disk root has {have} GiB, image {demand.image} needs {need} GiB",
    )


def bootstrap_fits(demand: Demand, site: Site, domain: Domain, terrain: Terrain) -> Reject | None:
    """The image's guest reads what is given for its first boot."""
    del site, domain, terrain
    read = _READS.get(demand.bootstrap)
    unread = [name for name in demand.first_boot if read is not None and name not in read]
    if not unread:
        return None
    return Reject(
        Reason.USER_DATA_INVALID,
        f"image {demand.image} has bootstrap {demand.bootstrap}, which does not read "
        f"{', '.join(unread)}",
    )


def agent_fits(demand: Demand, site: Site, domain: Domain, terrain: Terrain) -> Reject | None:
    """Somebody in the guest can tell what the readiness gates ask for."""
    del site, domain, terrain
    if not demand.agent_gates:
        return None
    return Reject(
        Reason.IMAGE_AGENT_MISSING,
        f"image {demand.image} has no agent to tell of {', '.join(demand.agent_gates)}",
    )


def storage_available(
    demand: Demand, site: Site, domain: Domain, terrain: Terrain
) -> Reject | None:
    """Every storage class is reachable from there."""
    del site, terrain
    missing = sorted(set(demand.storage_classes) - domain.storage_classes)
    if not missing:
        return None
    return Reject(Reason.STORAGE_CLASS_NOT_AVAILABLE, f"has no storage class {', '.join(missing)}")


def disks_kept(demand: Demand, site: Site, domain: Domain, terrain: Terrain) -> Reject | None:
    """Every retained disk that is to be attached is kept there for the namespace."""
    del terrain
    missing = [
        disk
        for disk in demand.existing_disks
        if domain.name not in site.kept_disks.get((demand.key.namespace, disk), ())
    ]
    if not missing:
        return None
    return Reject(
        Reason.DISK_NOT_FOUND,
        f"keeps no disk {', '.join(missing)} for namespace {demand.key.namespace}",
    )


def network_available(
    demand: Demand, site: Site, domain: Domain, terrain: Terrain
) -> Reject | None:
    """Every network class is reachable from there, and allows the addresses asked for."""
    del terrain
    missing = sorted(set(demand.network_classes) - domain.network_classes)
    if missing:
        return Reject(Reason.NETWORK_NOT_AVAILABLE, f"has no network class {', '.join(missing)}")
    for wish in demand.static_addresses:
        if not _allowed(wish.address, site.allow_static.get(wish.network_class, ())):
            return Reject(
                Reason.NETWORK_NOT_AVAILABLE,
                f"network class {wish.network_class} does not allow address {wish.address}",
            )
    for pool in demand.pool_wishes:
        if pool.family not in site.pools.get(pool.network_class, ()):
            return Reject(
                Reason.NETWORK_NOT_AVAILABLE,
                f"network class {pool.network_class} has no pool of {pool.family} addresses",
            )
    return None


def features_available(
    demand: Demand, site: Site, domain: Domain, terrain: Terrain
) -> Reject | None:
    """Every feature of the class can be had there; `efi-secure` is one."""
    del site, terrain
    wanted = set(demand.features)
    if demand.firmware == Firmware.EFI_SECURE:
        wanted.add(Feature.SECURE_BOOT)
    missing = sorted(wanted - domain.features)
    if not missing:
        return None
    return Reject(Reason.FEATURE_UNSUPPORTED, f"lacks feature {', '.join(missing)}")


def memory_fits(demand: Demand, site: Site, domain: Domain, terrain: Terrain) -> Reject | None:
    """Enough memory is left, where it is the hosts and not the backend's admission that tell."""
    capacity, wanted = domain.capacity, demand.memory_mib
    if capacity is None or site.admission_by_backend:
        return None
    free = terrain.crowd.free_memory(site, domain, demand.key)
    if wanted <= free:
        return None
    whole = int(capacity.memory_mib * site.overcommit_memory)
    detail = (
        f"has only {gib(whole)} of memory in all"
        if wanted > whole
        else f"less than {gib(wanted)} of memory is free"
    )
    figures = f"memory {gib(wanted - free)} short: {gib(free)} of {gib(whole)} can be promised"
    return Reject(Reason.INSUFFICIENT_CAPACITY, detail, figures)


def not_refused(demand: Demand, site: Site, domain: Domain, terrain: Terrain) -> Reject | None:
    """The backend did not refuse this machine there a moment ago."""
    del demand
    if not terrain.refused:
        return None
    refusal = terrain.refused.get(Place(site.key, domain.name))
    if refusal is None:
        return None
    return Reject(Reason.INSUFFICIENT_CAPACITY, f"the backend refused it: {refusal}")


def apart_enough(demand: Demand, site: Site, domain: Domain, terrain: Terrain) -> Reject | None:
    """No machine is there that this one must be apart from, or that must be apart from it."""
    del demand
    neighbour = terrain.neighbours.forbidding(Place(site.key, domain.name))
    if neighbour is None:
        return None
    return Reject(
        Reason.ANTI_AFFINITY_UNSATISFIED, f"excluded by antiAffinity with {neighbour.name}"
    )


SITE_FILTERS: tuple[tuple[str, SiteFilter], ...] = (
    ("open", site_open),
    ("providerRef", site_pinned),
    ("providerSelector", site_selected),
)
"""Filters of whole Providers by name. Whether the namespace may use one is asked before them."""

DOMAIN_FILTERS: tuple[tuple[str, DomainFilter], ...] = (
    ("failureDomainSelector", domain_selected),
    ("schedulable", domain_schedulable),
    ("image", image_ready),
    ("architecture", architecture_fits),
    ("firmware", firmware_fits),
    ("minimumDisk", disk_fits),
    ("bootstrap", bootstrap_fits),
    ("agent", agent_fits),
    ("storageClasses", storage_available),
    ("existingDisks", disks_kept),
    ("networkClasses", network_available),
    ("features", features_available),
    ("memory", memory_fits),
    ("refused", not_refused),
    ("antiAffinity", apart_enough),
)
"""Filters of failure domains by name."""


def _lack(state: ImageState | None) -> str:
    """What is missing, without a progress that would change the words all the time."""
    if state is None:
        return "the Provider has not reported on it"
    if state.reason == Reason.IMPORTING:
        return "it is being imported"
    if state.ready:
        return "it is in other failure domains only"
    return state.message or state.reason or "the Provider does not say why"


def _allowed(address: str, ranges: tuple[str, ...]) -> bool:
    try:
        wanted = ipaddress.ip_address(address)
        return any(wanted in ipaddress.ip_network(cidr, strict=False) for cidr in ranges)
    except ValueError:
        return False
