"""Every right that one of our identities has is used by a test that is there."""

import ast
from functools import cache
from pathlib import Path

import pytest

from test.kit import rights

TESTS = Path(__file__).resolve().parents[1]
ALL = (
    *rights.CONTROLLER,
    *rights.OPERATOR,
    *rights.STATIC,
    *rights.provider("some", "uid", ["granted"]),
)


@cache
def functions_of(path: Path) -> frozenset[str]:
    found = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(
        it.name for it in found if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize(
    "right", sorted(set(ALL), key=str), ids=lambda it: f"{it.verbs} {it.resources}"
)
@pytest.mark.security("1.2")
def test_a_right_is_used_by_a_test(right: rights.Right) -> None:
    path, _, name = right.used.partition("::")
    assert name in functions_of(TESTS / path)


def test_no_right_is_by_wildcard() -> None:
    assert not [it for it in ALL if "*" in it.verbs + it.resources + it.group]
