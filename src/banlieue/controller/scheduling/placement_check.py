"""Whether a placement still meets the spec. It only informs. Pure."""

from collections.abc import Callable, Iterable

from banlieue.api.conditions import ConditionType
from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.virtualmachine import Scheduled, VirtualMachine
from banlieue.controller.scheduling import facts
from banlieue.controller.scheduling.crowd import Crowd
from banlieue.controller.scheduling.neighbours import Neighbours
from banlieue.controller.scheduling.placement import Demand, Domain, Place, Site
from banlieue.sdk.conditions import Finding, false, true
from banlieue.sdk.kube import Key

_KEEPS = "the machine stays where it is"


def placement(
    vm: VirtualMachine,
    placed: Scheduled,
    observed: str | None,
    site: Site | None,
    neighbour: Key | None = None,
) -> Finding:
    """The PlacementValid condition of a placed VirtualMachine.

    Args:
        vm: the VirtualMachine.
        placed: where it was placed.
        observed: failure domain the machine is in now, where that is known.
        site: its Provider as the namespace sees it now, None when it is gone.
        neighbour: a machine there that must be apart from it, None when none is.
    """
    kind = ConditionType.PLACEMENT_VALID
    if site is None:
        return false(
            kind,
            Reason.PROVIDER_NOT_FOUND,
            (
                f"Provider {placed.provider_name} does not exist any more; create it again, or "
                "delete this object with deletionPolicy Orphan to let the machine go"
            ),
        )
    problem = (
        _provider_problem(vm, site)
        or _domain_problem(vm, placed, observed or placed.failure_domain, site)
        or _neighbour_problem(neighbour)
    )
    if problem is not None:
        reason, message = problem
        return false(kind, reason, message)
    if observed and placed.failure_domain and observed != placed.failure_domain:
        return true(
            kind,
            Reason.MOVED_BY_BACKEND,
            f"the backend or its admin moved the machine to failure domain {observed}",
        )
    return true(kind, Reason.PLACEMENT_VALID)


def too_near(
    vm: VirtualMachine, there: Place, crowd: Crowd, sites: Callable[[], Iterable[Site]]
) -> Key | None:
    """A machine that must be apart from this one, and is not.

    Args:
        vm: the VirtualMachine.
        there: where its machine is now.
        crowd: everybody.
        sites: gives the Providers as the namespace sees them; asked only where terms are at stake.
    """
    demand = Demand(
        key=Key(vm.metadata.namespace or "", vm.metadata.name),
        cpus=0,
        memory_mib=0,
        image="",
        labels=dict(vm.metadata.labels),
        apart=tuple(it for it in facts.apart(vm.spec.placement.anti_affinity) if it.required),
    )
    if not crowd.kept_apart(demand.key, demand.labels, demand.apart):
        return None
    return Neighbours.of(demand, tuple(sites()), crowd).forbidding(there)


def _neighbour_problem(neighbour: Key | None) -> tuple[Reason, str] | None:
    if neighbour is None:
        return None
    return (
        Reason.ANTI_AFFINITY_UNSATISFIED,
        (
            f"antiAffinity keeps it apart from {neighbour.name}, and they are together; {_KEEPS}, "
            "relax placement.antiAffinity or ask the platform team to move one of them"
        ),
    )


def _provider_problem(vm: VirtualMachine, site: Site) -> tuple[Reason, str] | None:
    pin, selector = vm.spec.provider_ref, vm.spec.placement.provider_selector
    namespace = vm.metadata.namespace or ""
    if not site.allowed:
        return (
            Reason.PROVIDER_NOT_ALLOWED,
            (
                f"Provider {site.key} does not allow namespace {namespace} any more; {_KEEPS} "
                "and is not changed, ask the platform team for access"
            ),
        )
    if pin is not None and Key(pin.namespace or namespace, pin.name) != site.key:
        return (
            Reason.PROVIDER_CHANGED,
            (
                f"spec.providerRef names another Provider than {site.key}; {_KEEPS} until nothing "
                "holds its move, or set it back"
            ),
        )
    if selector is not None and not selector.matches(site.labels):
        return (
            Reason.PROVIDER_CHANGED,
            (
                f"Provider {site.key} does not match spec.placement.providerSelector; {_KEEPS}, "
                "relax the selector"
            ),
        )
    return None


def _domain_problem(
    vm: VirtualMachine, placed: Scheduled, name: str | None, site: Site
) -> tuple[Reason, str] | None:
    if not name or not site.domains:
        return None
    domain = site.domain(name)
    if domain is None:
        return (
            Reason.FAILURE_DOMAIN_NOT_FOUND,
            f"Provider {site.key} does not publish failure domain {name} any more; {_KEEPS}",
        )
    selector = vm.spec.placement.failure_domain_selector
    if selector is not None and not selector.matches(domain.labels):
        return (
            Reason.FAILURE_DOMAIN_CHANGED,
            (
                f"failure domain {name} does not match spec.placement.failureDomainSelector; "
                f"{_KEEPS}, relax the selector"
            ),
        )
    return _missing_classes(placed, domain)


def _missing_classes(placed: Scheduled, domain: Domain) -> tuple[Reason, str] | None:
    storage = {it.storage_class for it in placed.resolved_storage} - domain.storage_classes
    if storage:
        return (
            Reason.STORAGE_CLASS_NOT_AVAILABLE,
            (
                f"failure domain {domain.name} does not offer storage class "
                f"{', '.join(sorted(storage))} any more; {_KEEPS}"
            ),
        )
    networks = {it.network_class for it in placed.resolved_networks} - domain.network_classes
    if networks:
        return (
            Reason.NETWORK_NOT_AVAILABLE,
            (
                f"failure domain {domain.name} does not offer network class "
                f"{', '.join(sorted(networks))} any more; {_KEEPS}"
            ),
        )
    return None
