"""Failures that others are known for, and the tests that show that they do not happen here."""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Row:
    """One failure: what was seen, and the tests (`file::name`) or the reason why it cannot be."""

    symptom: str
    tests: tuple[str, ...] = ()
    cannot: str = ""

    def __str__(self) -> str:
        return self.symptom


def shown(symptom: str, *tests: str) -> Row:
    """A failure that tests show to be absent."""
    return Row(symptom, tests=tests)


def cannot(symptom: str, why: str) -> Row:
    """A failure that cannot happen here."""
    return Row(symptom, cannot=why)


def absent(row: Row) -> list[str]:
    """The tests of a row that do not exist."""
    missing = []
    for test in row.tests:
        file, _, name = test.partition("::")
        if name not in _tests_of(file):
            missing.append(test)
    return missing


@cache
def _tests_of(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))
