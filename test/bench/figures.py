"""Arithmetic of measurements and how they are printed side by side. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from test.kit.audit import AuditEntry

Figures = dict[str, float]

_NOT_MEASURED = "-"
_BYSTANDERS = frozenset({"leases"})


def nearest_rank(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed.

    Args:
        values: At least one.
        share: More than 0, at most 1.

    Raises:
        ValueError: There are no values.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values to take a rank of")
    # A product such as 0.95 * 20 is a hair above the whole number it stands for.
    return ordered[max(0, math.ceil(round(share * len(ordered), 9)) - 1)]


def times(name: str, seconds: Iterable[float]) -> Figures:
    """Median, 95th percentile and last of moments, by names such as `NAME, p50, s`."""
    found = list(seconds)
    return {
        f"{name}, p50, s": nearest_rank(found, 0.5),
        f"{name}, p95, s": nearest_rank(found, 0.95),
        f"{name}, last, s": max(found),
    }


def per_vm(counts: Mapping[str, int], vms: int) -> Figures:
    """Counts divided by the number of VMs, the largest first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {name: count / vms for name, count in ordered}


def writers(entries: Iterable[AuditEntry]) -> dict[str, Counter[str]]:
    """How often each identity stored what; an identity is the last part of a user name.

    Leases are left out. A write that was refused says so by its status.
    """
    found: dict[str, Counter[str]] = {}
    for entry in entries:
        if entry.resource in _BYSTANDERS:
            continue
        what = f"{entry.verb} {entry.resource}"
        if entry.subresource:
            what = f"{what}/{entry.subresource}"
        if entry.code is None or entry.code >= 300:
            what = f"{what} ({entry.code or 'no answer'})"
        found.setdefault(entry.user.rpartition(":")[2], Counter())[what] += 1
    return found


def share(part: str, spent: Mapping[str, float]) -> float:
    """What share of everything that was spent one of them spent; 0 when nothing was spent."""
    total = sum(spent.values())
    return spent.get(part, 0.0) / total if total else 0.0


def table(title: str, columns: Mapping[str, Mapping[str, float]]) -> str:
    """Figures of several subjects side by side, as text.

    Args:
        title: What stands above the names of the figures.
        columns: Figures by subject. Rows come in the order in which figures first appear; what a
            subject has no figure for is a dash.
    """
    names = list(dict.fromkeys(name for figures in columns.values() for name in figures))
    rows = [[title, *columns]]
    rows += [[name, *(_shown(figures.get(name)) for figures in columns.values())] for name in names]
    return "\n".join(_aligned(rows))


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield "  ".join([row[0].ljust(widths[0]), *cells])


def _shown(value: float | None) -> str:
    return _NOT_MEASURED if value is None else f"{value:.2f}"
