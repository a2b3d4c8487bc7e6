"""A Provider served by an older version is asked for nothing that it does not know. Pure.

Such a process would read past a field, and nobody would tell its user. What it knows it publishes
in its Provider's `specFeatures`; fields beyond that are held back until it is upgraded, and said.
"""

from collections.abc import Mapping
from typing import Any

from banlieue.api.v1alpha1.provider import Provider
from banlieue.controller.infra.blueprint import FIRST_BOOT, LIVING
from banlieue.sdk.features import KEPT_UP

_EVERY_VERSION = frozenset({"class", "disks", "networkInterfaces", "powerState", "paused"})
"""What a machine is made of; there is no provider without them."""

_TOLD_OTHERWISE = KEPT_UP | {"adopt"}
"""A backend without them says so itself; adoption is asked for before a place is chosen."""

_CAN_LACK = frozenset((*LIVING, *FIRST_BOOT)) - _EVERY_VERSION - _TOLD_OTHERWISE


def unknown_fields(spec: Mapping[str, Any], provider: Provider | None) -> tuple[str, ...]:
    """Fields of a machine's spec that the Provider's process does not know, sorted.

    None while nobody told what it knows: that Provider is not ready, and nothing is made there.
    """
    known = provider.status.spec_features if provider else ()
    if not known:
        return ()
    return tuple(sorted(name for name in spec if name in _CAN_LACK and name not in known))


def withheld_at_birth(spec: dict[str, Any], provider: Provider | None) -> None:
    """Take out of a spec that is about to be made what can follow later."""
    for name in unknown_fields(spec, provider):
        del spec[name]


def missing_at_birth(spec: Mapping[str, Any], provider: Provider | None) -> tuple[str, ...]:
    """Unknown fields that count once, when the guest boots first: without them it is another VM."""
    return tuple(name for name in unknown_fields(spec, provider) if name in FIRST_BOOT)


def held_back(
    wanted: dict[str, Any], present: Mapping[str, Any], provider: Provider | None, *, seen: bool
) -> tuple[str, ...]:
    """Leave unknown fields of a machine that is there as they are.

    Args:
        wanted: the spec it should have; changed so that it asks for nothing unknown.
        present: the spec it has.
        provider: its Provider.
        seen: whether it was seen on the backend, after which first-boot data is fixed.

    Returns:
        The fields the user waits for.
    """
    waiting = []
    for name in unknown_fields({**present, **wanted}, provider):
        if wanted.get(name) != present.get(name) and not (seen and name in FIRST_BOOT):
            waiting.append(name)
        wanted.pop(name, None)
        if name in present:
            wanted[name] = present[name]
    return tuple(waiting)


def told(fields: tuple[str, ...], provider: Provider) -> str:
    """What a user is told, with the remedy."""
    meta = provider.metadata
    return (
        f"Provider {meta.namespace}/{meta.name} is served by a version that does not know "
        f"{', '.join(fields)}; it is done when that is upgraded"
    )
