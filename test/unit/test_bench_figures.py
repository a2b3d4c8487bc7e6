"""Arithmetic and table of the benchmarks."""

import pytest

from test.bench import figures
from test.kit.audit import AuditEntry


def entry(
    user: str, verb: str, resource: str, subresource: str = "", code: int | None = 200
) -> AuditEntry:
    return AuditEntry(
        user=user,
        verb=verb,
        resource=resource,
        subresource=subresource,
        namespace="team-a",
        name="vm",
        user_agent="",
        code=code,
        group="",
        uri="/",
        time="2026-01-01T00:00:00Z",
    )


@pytest.mark.parametrize(
    ("values", "share", "rank"),
    [
        ([7.0], 0.5, 7.0),
        ([7.0], 0.95, 7.0),
        ([4.0, 1.0, 3.0, 2.0], 0.5, 2.0),
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        ([float(it) for it in range(1, 21)], 0.95, 19.0),
        ([float(it) for it in range(1, 51)], 0.95, 48.0),
        ([float(it) for it in range(1, 201)], 0.95, 190.0),
        ([1.0, 2.0], 1.0, 2.0),
    ],
)
def test_a_percentile_is_a_value_that_was_measured(
    values: list[float], share: float, rank: float
) -> None:
    assert figures.nearest_rank(values, share) == rank


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        figures.nearest_rank([], 0.5)


def test_times_are_told_by_median_95th_percentile_and_last() -> None:
    assert figures.times("Ready", iter([3.0, 1.0, 2.0])) == {
        "Ready, p50, s": 2.0,
        "Ready, p95, s": 3.0,
        "Ready, last, s": 3.0,
    }


def test_counts_per_vm_have_the_largest_first() -> None:
    found = figures.per_vm({"Login": 1, "CloneVM_Task": 4, "A": 1}, 4)
    assert list(found.items()) == [("CloneVM_Task", 1.0), ("A", 0.25), ("Login", 0.25)]


def test_writes_are_counted_by_who_and_what_without_leases() -> None:
    account = "system:serviceaccount:banlieue-system:banlieue-controller"
    found = figures.writers(
        [
            entry(account, "patch", "virtualmachines", "status"),
            entry(account, "patch", "virtualmachines", "status"),
            entry(account, "patch", "virtualmachines", "status", 409),
            entry(account, "update", "leases"),
            entry("admin", "create", "virtualmachines", code=None),
        ]
    )
    assert found == {
        "banlieue-controller": {
            "patch virtualmachines/status": 2,
            "patch virtualmachines/status (409)": 1,
        },
        "admin": {"create virtualmachines (no answer)": 1},
    }


def test_a_share_of_nothing_is_nothing() -> None:
    assert figures.share("vcsim", {"vcsim": 1.0, "provider": 3.0}) == 0.25
    assert figures.share("vcsim", {"provider": 3.0}) == 0.0
    assert figures.share("vcsim", {}) == 0.0


def test_the_table_has_a_dash_where_nothing_was_measured() -> None:
    shown = figures.table(
        "N=50", {"banlieue": {"Ready, last, s": 12.25, "calls": 2.0}, "raw": {"calls": 7}}
    )
    assert shown.splitlines() == [
        "N=50            banlieue   raw",
        "Ready, last, s     12.25     -",
        "calls               2.00  7.00",
    ]
