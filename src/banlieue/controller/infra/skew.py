"""A Provider served by an older version is asked for nothing that it does not know. Pure.

Such a process would read past a field, and nobody would tell its user; or the API server would drop
it, where the machine's kind is the older one. What a process knows it publishes in its Provider's
`specFeatures`: fields by name, and by their path those within. What goes beyond is held back until
it is upgraded, and said.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from banlieue.api.v1alpha1.provider import Provider
from banlieue.controller.infra.blueprint import FIRST_BOOT, LIVING
from banlieue.sdk.features import KEPT_UP, NESTED

_EVERY_VERSION = frozenset({"class", "disks", "networkInterfaces", "powerState", "paused"})
"""What a machine is made of; there is no provider without them."""

_TOLD_OTHERWISE = KEPT_UP | {"adopt"}
"""A backend without them says so itself; adoption is asked for before a place is chosen."""

_CAN_LACK = frozenset((*LIVING, *FIRST_BOOT)) - _EVERY_VERSION - _TOLD_OTHERWISE

_FOLLOWS = frozenset({"driftPolicy", "removedDisks"})
"""What is unknown in them can follow later; in all others a machine made without is another one."""

_WHOLE = frozenset({"class", "userData", "networkData"})
"""Fields that mean something as a whole only: a class half followed is none."""


def unknown_fields(spec: Mapping[str, Any], provider: Provider | None) -> tuple[str, ...]:
    """Fields of a machine's spec, and paths within, that the Provider's process does not know.

    None while nobody told what it knows: that Provider is not ready, and nothing is made there.
    """
    known = _known(provider)
    if not known:
        return ()
    top = [name for name in spec if name in _CAN_LACK and name not in known]
    lacking = _lacking_within(known)
    within = (
        path for name in spec if name not in top for path in _paths(spec[name], name, lacking)
    )
    return tuple(sorted({*top, *within}))


def withheld_at_birth(spec: dict[str, Any], provider: Provider | None) -> None:
    """Take out of a spec that is about to be made what can follow later."""
    for path in unknown_fields(spec, provider):
        _take_out(spec, path.split("."))


def missing_at_birth(spec: Mapping[str, Any], provider: Provider | None) -> tuple[str, ...]:
    """Unknown fields that count when the VM is made: without them it is another one."""
    return tuple(name for name in unknown_fields(spec, provider) if _counts_at_birth(name))


def _counts_at_birth(path: str) -> bool:
    root, _, within = path.partition(".")
    return root in FIRST_BOOT or bool(within and root not in _FOLLOWS)


def held_back(
    wanted: dict[str, Any], present: Mapping[str, Any], provider: Provider | None, *, seen: bool
) -> tuple[str, ...]:
    """Leave unknown fields of a machine that is there as they are.

    What is new and cannot be told whole, such as a disk of a kind the process does not know, is not
    told at all.

    Args:
        wanted: the spec it should have; changed so that it asks for nothing unknown.
        present: the spec it has.
        provider: its Provider.
        seen: whether it was seen on the backend, after which first-boot data is fixed.

    Returns:
        The fields the user waits for.
    """
    waiting: list[str] = []
    unknown = unknown_fields({**present, **wanted}, provider)
    for name in (it for it in unknown if "." not in it):
        if wanted.get(name) != present.get(name):
            waiting.append(name)
        _leave(wanted, present, name)
    lacking = _lacking_within(_known(provider))
    roots = {it.partition(".")[0] for it in lacking} - set(unknown)
    for name in sorted(root for root in roots if root in wanted):
        asked = list(_paths(wanted[name], name, lacking))
        if name in _WHOLE:
            if asked and wanted[name] != present.get(name):
                waiting += asked
                _leave(wanted, present, name)
        else:
            wanted[name] = _kept(wanted[name], present.get(name), name, lacking, waiting)
    return tuple(dict.fromkeys(it for it in waiting if not (seen and _is_first_boot(it))))


def _is_first_boot(path: str) -> bool:
    return path.partition(".")[0] in FIRST_BOOT


def _leave(wanted: dict[str, Any], present: Mapping[str, Any], name: str) -> None:
    wanted.pop(name, None)
    if name in present:
        wanted[name] = present[name]


def told(fields: tuple[str, ...], provider: Provider) -> str:
    """What a user is told, with the remedy."""
    meta = provider.metadata
    return (
        f"Provider {meta.namespace}/{meta.name} is served by a version that does not know "
        f"{', '.join(fields)}; it is done when that is upgraded"
    )


# Within fields


def _known(provider: Provider | None) -> frozenset[str]:
    return frozenset(provider.status.spec_features if provider else ())


def _lacking_within(known: Iterable[str]) -> frozenset[str]:
    """Paths the process does not know; none for one that tells of no paths at all."""
    paths = {name for name in known if "." in name}
    return frozenset(NESTED) - paths if paths else frozenset()


def _paths(value: Any, path: str, lacking: frozenset[str]) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Which of these paths a value uses."""
    if isinstance(value, list):
        for item in value:
            yield from _paths(item, path, lacking)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if (below := f"{path}.{name}") in lacking:
                yield below
            else:
                yield from _paths(inner, below, lacking)


def _take_out(value: Any, steps: list[str]) -> None:  # noqa: ANN401 - JSON
    """Remove a path wherever it is, in every item of the lists on its way."""
    if isinstance(value, list):
        for item in value:
            _take_out(item, steps)
    elif isinstance(value, dict) and steps[0] in value:
        if len(steps) == 1:
            del value[steps[0]]
        else:
            _take_out(value[steps[0]], steps[1:])


def _kept(
    wanted: Any,  # noqa: ANN401 - JSON
    present: Any,  # noqa: ANN401 - JSON
    path: str,
    lacking: frozenset[str],
    waiting: list[str],
) -> Any:  # noqa: ANN401 - JSON
    """What to write of a value so that every unknown path stays as it is; notes who waits."""
    if isinstance(wanted, list):
        return _kept_items(wanted, present or [], path, lacking, waiting)
    if not isinstance(wanted, dict):
        return wanted
    before = present if isinstance(present, dict) else {}
    made = {}
    for name in dict.fromkeys((*wanted, *before)):
        below = f"{path}.{name}"
        if below in lacking:
            if wanted.get(name) != before.get(name):
                waiting.append(below)
            if name in before:
                made[name] = before[name]
        elif name in wanted:
            made[name] = _kept(wanted[name], before.get(name), below, lacking, waiting)
    return made


def _kept_items(
    wanted: list[Any], present: list[Any], path: str, lacking: frozenset[str], waiting: list[str]
) -> list[Any]:
    key = "family" if path.endswith(".ipam") else "name"
    before = {item[key]: item for item in present if isinstance(item, dict) and key in item}
    made = []
    for item in wanted:
        there = before.get(item.get(key)) if isinstance(item, dict) else None
        asked = list(_paths(item, path, lacking))
        if there is None and asked:
            waiting += asked
        else:
            made.append(_kept(item, there, path, lacking, waiting))
    return made
