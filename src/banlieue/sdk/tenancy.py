"""Who may use a Provider. Scheduler and provider process answer with the same function."""

from collections.abc import Iterator, Mapping

from banlieue.api.infrastructure.machine import MachineSpec
from banlieue.api.meta import to_camel
from banlieue.api.v1alpha1.provider import AllowedNamespaces, NamespacesFrom, Provider

_COMMON = frozenset(to_camel(name) for name in MachineSpec.model_fields)


def namespace_allowed(provider: Provider, namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether objects of a namespace with these labels may use the Provider."""
    return _matches(provider.spec.allowed_namespaces, provider, namespace, labels)


def adoption_allowed(provider: Provider, namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether objects of a namespace with these labels may adopt machines of the Provider."""
    policy = provider.spec.policy.adoption
    return (
        policy is not None
        and namespace_allowed(provider, namespace, labels)
        and _matches(policy.allowed_namespaces, provider, namespace, labels)
    )


def _matches(
    allowed: AllowedNamespaces, provider: Provider, namespace: str, labels: Mapping[str, str]
) -> bool:
    if namespace == provider.metadata.namespace:
        return True
    match allowed.from_:
        case NamespacesFrom.ALL:
            return True
        case NamespacesFrom.SELECTOR:
            return allowed.selector is not None and allowed.selector.matches(labels)
        case NamespacesFrom.SAME:
            return False


def refused_fields(provider: Provider, namespace: str, spec: MachineSpec) -> tuple[str, ...]:
    """What a machine of this namespace names of the backend without leave, as `field: value`.

    The fields only this backend has (a template, a folder) reach past the classes an admin offers:
    with them one tenant could clone the disks of another. Machines of the Provider's own namespace
    may use all of them, others what `policy.concreteFields` lists.
    """
    if namespace == provider.metadata.namespace:
        return ()
    listed, given = provider.spec.policy.concrete_fields, spec.to_api()
    return tuple(
        f"{name}: {value}"
        for name in sorted(given.keys() - _COMMON)
        for value in _values(given[name])
        if not any(_allows(entry, value) for entry in listed.get(name, ()))
    )


def _values(given: object) -> Iterator[str]:
    """What a field says, one value at a time; entries of a map as `key=value`."""
    if isinstance(given, Mapping):
        yield from (f"{key}={value}" for key, value in given.items())
    elif isinstance(given, list):
        yield from map(str, given)
    else:
        yield str(given)


def _allows(entry: str, value: str) -> bool:
    return value.startswith(entry[:-1]) if entry.endswith("*") else value == entry
