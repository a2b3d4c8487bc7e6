"""Every rule of docs/identity.md has a test that names it, and no test names one not there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "identity.md"
CONFORMANCE = ROOT / "src" / "banlieue" / "sdk" / "testing"

_RULE = re.compile(r"^- \*\*(\d+\.\d+)\*\* (.*?)(?=^- |^#|\Z)", re.MULTILINE | re.DOTALL)
_SAID = re.compile(r"\(identity ((?:\d+\.\d+(?:, )?)+)\)")
_PLANNED = "*(planned)*"


def rules() -> dict[str, str]:
    """The rules by number, in the order of the page."""
    return dict(_RULE.findall(PAGE.read_text()))


def named() -> Iterator[tuple[str, str]]:
    """Numbers that tests name, by marker or in the docstring, with the file."""
    for path in sorted([*(ROOT / "test").rglob("*.py"), *CONFORMANCE.glob("conformance*.py")]):
        if path != Path(__file__):
            for number in numbers_in(path.read_text()):
                yield number, str(path.relative_to(ROOT))


def numbers_in(source: str) -> Iterator[str]:
    """Numbers that the markers and docstrings of a file name."""
    if "identity" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.identity"):
            yield from (str(arg.value) for arg in node.args if isinstance(arg, ast.Constant))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for numbers in _SAID.findall(ast.get_docstring(node) or ""):
                yield from numbers.split(", ")


def test_every_rule_has_a_test_that_names_it() -> None:
    shown = {number for number, _ in named()}
    untold = [
        f"{number}: {text.strip()[:80]}"
        for number, text in rules().items()
        if number not in shown and _PLANNED not in text
    ]
    assert not untold


def test_no_test_names_a_rule_that_is_not_there_or_only_planned() -> None:
    kept = {number for number, text in rules().items() if _PLANNED not in text}
    assert not [f"{where}: {number}" for number, where in named() if number not in kept]


def test_the_rules_are_numbered_in_order_and_once() -> None:
    numbers = [number for number, _ in _RULE.findall(PAGE.read_text())]
    ordered = sorted(set(numbers), key=lambda it: [int(part) for part in it.split(".")])
    assert numbers == ordered
    assert len(numbers) > 50


def test_names_are_found_in_markers_and_docstrings() -> None:
    source = '''
@pytest.mark.identity("1.2", "3.4")
def test_it():
    """Holds (identity 5.6, 7.8)."""
'''
    assert sorted(numbers_in(source)) == ["1.2", "3.4", "5.6", "7.8"]
