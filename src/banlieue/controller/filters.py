"""The scheduler's filters, in order: each says why a candidate cannot take a machine, or None.

The rank of a rejection is the filter's position, so a candidate that failed late came close.
"""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from banlieue.api.reasons import Reason
from banlieue.api.types import Feature, Firmware
from banlieue.controller.crowd import Crowd
from banlieue.controller.placement import Demand, Domain, Place, Site


@dataclass(frozen=True, slots=True)
class Terrain:
    """What filters and scores know beside the candidate: neighbours and recent refusals."""

    crowd: Crowd
    refused: Mapping[Place, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reject:
    """Reason and detail of one filter's no."""

    reason: Reason
    detail: str


SiteFilter = Callable[[Demand, Site], Reject | None]
DomainFilter = Callable[[Demand, Site, Domain, Terrain], Reject | None]


def site_open(demand: Demand, site: Site) -> Reject | None:
    """Ready, writable, and taking new machines."""
    del demand
    closed = (
        (not site.ready, Reason.PROVIDER_NOT_READY, f"is not ready: {site.not_ready or 'unknown'}"),
        (site.paused, Reason.PROVIDER_PAUSED, "is paused"),
        (site.read_only, Reason.PROVIDER_READ_ONLY, "is read-only"),
        (site.cordoned, Reason.PROVIDER_CORDONED, "is cordoned"),
        (site.deleting, Reason.PROVIDER_DELETING, "is being deleted"),
    )
    return next((Reject(reason, detail) for shut, reason, detail in closed if shut), None)


def site_pinned(demand: Demand, site: Site) -> Reject | None:
    """The Provider the user named, if any."""
    if demand.provider_ref is None or demand.provider_ref == site.key:
        return None
    return Reject(Reason.NO_PROVIDER_MATCHED, "is not the providerRef")


def site_selected(demand: Demand, site: Site) -> Reject | None:
    """Labels the user asks Providers for."""
    selector = demand.provider_selector
    if selector is None or selector.matches(site.labels):
        return None
    return Reject(Reason.NO_PROVIDER_MATCHED, "does not match providerSelector")


def domain_selected(demand: Demand, site: Site, domain: Domain, terrain: Terrain) -> Reject | None:
    """Labels the user asks failure domains for."""
    del site, terrain
    selector = demand.domain_selector
    if selector is None or selector.matches(domain.labels):
        return None
    return Reject(Reason.NO_FAILURE_DOMAIN_MATCHED, "does not match failureDomainSelector")


def domain_schedulable(
    demand: Demand, site: Site, domain: Domain, terrain: Terrain
) -> Reject | None:
    """Neither the admin nor maintenance keeps new machines out."""
    del demand, site, terrain
    if domain.schedulable:
        return None
    return Reject(Reason.FAILURE_DOMAIN_CORDONED, "takes no new machines")


def image_ready(demand: Demand, site: Site, domain: Domain, terrain: Terrain) -> Reject | None:
    """The Provider can make machines from the image."""
    del domain, terrain
    state = site.images.get(demand.image)
    if state is not None and state.ready:
        return None
    why = (state.message or state.reason) if state else "it has not reported on it"
    return Reject(Reason.IMAGE_NOT_READY, f"image {demand.image} is not ready there: {why}")


def architecture_fits(
    demand: Demand, site: Site, domain: Domain, terrain: Terrain
) -> Reject | None:
    """Processors there run the image."""
    del site, terrain
    if not domain.architectures or demand.architecture in domain.architectures:
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
        f"the root disk has {have} GiB, image {demand.image} needs {need} GiB",
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
    if domain.capacity is None or site.admission_by_backend:
        return None
    short = demand.memory_mib - terrain.crowd.free_memory(site, domain)
    if short <= 0:
        return None
    return Reject(Reason.INSUFFICIENT_CAPACITY, f"memory {_gib(short)} short")


def not_refused(demand: Demand, site: Site, domain: Domain, terrain: Terrain) -> Reject | None:
    """The backend did not refuse this machine there a moment ago."""
    del demand
    refusal = terrain.refused.get(Place(site.key, domain.name))
    if refusal is None:
        return None
    return Reject(Reason.INSUFFICIENT_CAPACITY, f"the backend refused it: {refusal}")


def apart_enough(demand: Demand, site: Site, domain: Domain, terrain: Terrain) -> Reject | None:
    """No machine is there that this one must be apart from, or that must be apart from it."""
    neighbour = terrain.crowd.required_conflict(demand, site, domain)
    if neighbour is None:
        return None
    return Reject(Reason.ANTI_AFFINITY_UNSATISFIED, f"excluded by antiAffinity with {neighbour}")


SITE_FILTERS: tuple[SiteFilter, ...] = (site_open, site_pinned, site_selected)
DOMAIN_FILTERS: tuple[DomainFilter, ...] = (
    domain_selected,
    domain_schedulable,
    image_ready,
    architecture_fits,
    firmware_fits,
    disk_fits,
    storage_available,
    network_available,
    features_available,
    memory_fits,
    not_refused,
    apart_enough,
)


def _allowed(address: str, ranges: tuple[str, ...]) -> bool:
    try:
        wanted = ipaddress.ip_address(address)
        return any(wanted in ipaddress.ip_network(cidr, strict=False) for cidr in ranges)
    except ValueError:
        return False


def _gib(mib: int) -> str:
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"
