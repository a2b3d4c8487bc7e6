"""Where a machine that adopts belongs: not where there is room, but where its VM is.

Providers do not publish the VMs they have that are not ours. So the user names the Provider, or
there is only one that lets the namespace adopt; the place within it is observed, never chosen.
"""

from banlieue.api.infrastructure.machine import Machine
from banlieue.api.reasons import Reason
from banlieue.api.resources import NAMESPACES
from banlieue.controller.scheduling import facts, rejections
from banlieue.controller.scheduling.placement import Decision, Demand, Place, Placed, Site, Unplaced
from banlieue.controller.scheduling.placing import remembered
from banlieue.controller.vm.scope import Scope
from banlieue.sdk import tenancy
from banlieue.sdk.kube import Key

FEATURE = "adopt"
"""What a Provider that can adopt has in its specFeatures: one of an older version would take the
machine object for one of a machine to be made."""

_SHOWN = 5


def demand(scope: Scope) -> Demand:
    """What is asked of a place: nothing but the Provider."""
    spec, key, pin = scope.vm.spec, scope.key, scope.vm.spec.provider_ref
    if scope.standing is None:
        raise LookupError("a place needs a known installation")
    return Demand(
        key=key,
        cpus=0,
        memory_mib=0,
        image="",
        digest=facts.owner_digest(scope.standing.id, key),
        provider_ref=Key(pin.namespace or key.namespace, pin.name) if pin else None,
        provider_selector=spec.placement.provider_selector,
    )


def choose(scope: Scope, wanted: Demand) -> Decision:
    """The Provider that has the VM, as far as it can be known; its failure domain is left open.

    A VirtualMachine with a past goes back to where that is, as any other.
    """
    sites = scope.services.sites(None, scope.key.namespace)
    recovery = scope.standing is not None and scope.standing.recovery
    past = remembered(wanted, sites, (), before=scope.place, recovery=recovery)
    if isinstance(past, Placed):
        domain = scope.place.domain if scope.place else ""
        past = Placed(Place(past.place.provider, domain), past.epoch, past.vm)
    return _if_understood(scope, past or _anew(scope, wanted, sites))


def choose_anew(scope: Scope, wanted: Demand) -> Decision:
    """As `choose`, for a machine whose past does not count: nothing was taken over yet."""
    sites = scope.services.sites(None, scope.key.namespace)
    return _if_understood(scope, _anew(scope, wanted, sites))


def _if_understood(scope: Scope, decision: Decision) -> Decision:
    if not isinstance(decision, Placed):
        return decision
    key = decision.place.provider
    provider = scope.services.provider(key)
    if provider is None or FEATURE in provider.status.spec_features:
        return decision
    return Unplaced(
        Reason.UNSUPPORTED_BY_PROVIDER,
        f"Provider {key} is served by a version that cannot adopt machines; nothing is done until "
        "that is upgraded",
    )


def untaken(machine: Machine) -> bool:
    """Whether a machine is to adopt a VM and has not begun to."""
    return machine.spec.adopt is not None and machine.spec.instance is None


def _anew(scope: Scope, wanted: Demand, sites: list[Site]) -> Decision:
    pin, selector = wanted.provider_ref, wanted.provider_selector
    usable = [site for site in sites if site.allowed and pin in (None, site.key)]
    if pin is not None and not usable:
        return rejections.no_such_provider(wanted)
    matching = [site for site in usable if selector is None or selector.matches(site.labels)]
    letting = [site for site in matching if _lets_adopt(scope, site.key)]
    if not letting:
        whom = f"Provider {pin} does not let" if pin else "no Provider lets"
        return Unplaced(
            Reason.ADOPTION_NOT_ALLOWED,
            f"{whom} namespace {scope.key.namespace} adopt machines; ask the platform team for "
            "policy.adoption.allowedNamespaces on the Provider that has the machine",
        )
    if len(letting) > 1:
        names = ", ".join(str(site.key) for site in sorted(letting, key=lambda it: it.key)[:_SHOWN])
        return Unplaced(
            Reason.ADOPTION_AMBIGUOUS,
            f"several Providers let this namespace adopt machines ({names}); name the one that has "
            "the machine in spec.providerRef",
        )
    return _open(letting[0])


def _lets_adopt(scope: Scope, key: Key) -> bool:
    provider = scope.services.provider(key)
    namespace = scope.ctx.cache.get(NAMESPACES, Key("", scope.key.namespace)) or {}
    labels = (namespace.get("metadata") or {}).get("labels") or {}
    return provider is not None and tenancy.adoption_allowed(provider, scope.key.namespace, labels)


def _open(site: Site) -> Decision:
    """Nothing new is made there, so a Provider that is cordoned or read-only can be asked, too."""
    if site.deleting:
        return Unplaced(
            Reason.PROVIDER_DELETING,
            f"Provider {site.key} is being deleted; nothing is adopted there any more",
        )
    if not site.ready:
        return Unplaced(
            Reason.PROVIDER_NOT_READY,
            f"Provider {site.key} is not ready ({site.not_ready or 'unknown'}); the machine is "
            "looked for when it is; else ask the platform team",
        )
    return Placed(Place(site.key, ""))
