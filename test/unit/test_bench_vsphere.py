"""What the vSphere benchmark makes of its arguments and of what it measured."""

import argparse
import re
from pathlib import Path

import pytest

from hack.tools.catalog import ToolError
from test.bench import capv, vsphere
from test.bench.rawvms import Order
from test.bench.vsphere import DRIVER, OURS, RAW, column_of, main, over_raw, shown, sizes
from test.kit.waiting import WaitTimeoutError

LAST = "powered on, last, s"
ONE, TWO = RAW


@pytest.mark.parametrize("text", ["1,50,200", "1 50 200", "1, 50,200"])
def test_sizes_are_a_list(text: str) -> None:
    assert sizes(text) == [1, 50, 200]


@pytest.mark.parametrize("text", ["", ",", "0", "1,-5", "many"])
def test_what_is_no_list_of_sizes_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="such as 1,50,200"):
        sizes(text)


def test_ours_is_held_against_the_faster_form_of_the_script() -> None:
    assert over_raw({OURS: {LAST: 3.0}, ONE: {LAST: 4.0}, TWO: {LAST: 2.0}}) == 1.5
    assert over_raw({OURS: {LAST: 3.0}, ONE: {LAST: 4.0}, TWO: {}}) == 0.75


def test_each_but_the_script_is_held_against_it() -> None:
    columns = {OURS: {LAST: 3.0}, DRIVER: {LAST: 1.0}, ONE: {LAST: 4.0}, TWO: {LAST: 2.0}}
    assert over_raw(columns, DRIVER) == 0.5
    assert over_raw(columns, ONE) is None


@pytest.mark.parametrize("columns", [{}, {OURS: {LAST: 1.0}}, {ONE: {LAST: 1.0}}])
def test_there_is_no_ratio_without_both(columns: dict[str, dict[str, float]]) -> None:
    assert over_raw(columns) is None


def test_who_could_not_be_measured_says_why_beside_the_others() -> None:
    subjects = {OURS: {"error": "WaitTimeoutError: too late"}, ONE: {"figures": {LAST: 1.0}}}
    found = {"vms": 50, "subjects": subjects, "powered_on_last_over_raw": {DRIVER: 1.5}}
    assert shown(found).splitlines() == [
        "N=50                 raw, on in clone",
        "powered on, last, s              1.00",
        "banlieue: WaitTimeoutError: too late",
        "its driver: the last is on after 1.50 times the raw script's",
    ]


def test_an_order_fits_on_one_line() -> None:
    order = Order("https://x", "a\nb", "u", "p", ["vm-1"], 1, 512, True, {"k": "v\nw"}, False)
    line = order.line()
    assert line.endswith("\n")
    assert line.count("\n") == 1


def test_capv_is_called_by_the_version_that_is_pinned() -> None:
    assert re.fullmatch(r"CAPV v\d+\.\d+\.\d+", capv.name())


def test_capv_that_is_not_built_is_told_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def missing(name: str) -> Path:
        raise ToolError(f"{name} is not built")

    monkeypatch.setattr(vsphere, "tool", missing)
    output = tmp_path / "found.json"
    monkeypatch.setattr("sys.argv", ["vsphere", "--capv", "--vms", "1", "--output", str(output)])

    with pytest.raises(SystemExit):
        main()

    assert "peer-cluster-api-vsphere is not built" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize("error", [WaitTimeoutError("late"), AssertionError("late")])
def test_a_subject_that_fails_leaves_the_others_to_be_measured(error: Exception) -> None:
    seen: list[Path] = []

    def measured(directory: Path) -> dict[str, object]:
        seen.append(directory)
        raise error

    assert column_of(measured) == {"error": f"{type(error).__name__}: late"}
    assert not seen[0].exists()
