"""Prints the fault matrix at the end of a test run, and writes it as JSON; a hook of pytest."""

from pathlib import Path
from typing import Any, Final

import pytest

PROPERTY: Final = "fault-matrix"
OUTPUT: Final = Path("out/test/vsphere-fault-matrix.json")


def pytest_terminal_summary(terminalreporter: Any) -> None:  # noqa: ANN401 - pytest does not export it
    """Collect the rows from all workers."""
    rows = [
        row
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, found in report.user_properties
        if name == PROPERTY and isinstance(found, list)
        for row in found
    ]
    if not rows:
        return
    # Only here: most runs need no vSphere at all.
    from test.kit.faultmatrix import Cell, table, write

    cells = sorted((Cell(**row) for row in rows), key=lambda cell: cell.method)
    terminalreporter.section("vSphere: calls that were disturbed, and what was told meanwhile")
    terminalreporter.write_line(table(cells))
    write(cells, OUTPUT)
