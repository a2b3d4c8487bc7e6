"""Finds backends by entry point, ours and third parties' alike.

Used only where a backend is served: the provider process, the generator and the conformance kit.
"""

from importlib.metadata import entry_points
from typing import Any

from banlieue.sdk.backend import Backend

GROUP = "banlieue.backends"


class UnknownBackend(LookupError):
    """No installed distribution offers a backend of that name."""


def backend_names() -> tuple[str, ...]:
    """Names of all installed backends, sorted; imports none of them."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def own_backend_names() -> tuple[str, ...]:
    """Names of the backends that this distribution itself brings, sorted; imports none of them."""
    points = entry_points(group=GROUP)
    return tuple(sorted({it.name for it in points if it.dist and it.dist.name == "banlieue"}))


def load_backend(name: str) -> Backend[Any]:
    """Import the backend of that name; raises `UnknownBackend` naming those that exist."""
    for point in entry_points(group=GROUP, name=name):
        backend: Backend[Any] = point.load()
        return backend
    known = ", ".join(backend_names()) or "none"
    raise UnknownBackend(f"no backend {name!r} is installed; installed: {known}")
