"""Who may use a Provider. Scheduler and provider process answer with the same function."""

from collections.abc import Mapping

from banlieue.api.v1alpha1.provider import NamespacesFrom, Provider


def namespace_allowed(provider: Provider, namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether objects of a namespace with these labels may use the Provider."""
    if namespace == provider.metadata.namespace:
        return True
    allowed = provider.spec.allowed_namespaces
    match allowed.from_:
        case NamespacesFrom.ALL:
            return True
        case NamespacesFrom.SELECTOR:
            return allowed.selector is not None and allowed.selector.matches(labels)
        case NamespacesFrom.SAME:
            return False
