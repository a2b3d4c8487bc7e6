"""No word is promised in vain: what the API reference lists, the code gives or sends."""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import banlieue
from banlieue.api import conditions, events, reasons
from banlieue.api.conditions import ConditionType
from banlieue.api.crd.reference import reference
from banlieue.api.events import EventReason
from banlieue.api.reasons import RESERVED, Reason

SOURCES = Path(banlieue.__file__).parent
CLASSES = ("Reason.", "ConditionType.")
WORDS = {Path(inspect.getfile(it)) for it in (conditions, events, reasons)}


def given(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Class and name of every word a module mentions other than to compare something with it."""
    compared = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and id(node) not in compared
        ):
            yield node.value.id, node.attr


@cache
def given_anywhere() -> frozenset[tuple[str, str]]:
    modules = (path.read_text("utf-8") for path in SOURCES.rglob("*.py") if path not in WORDS)
    # Most modules mention none, and to parse all of them takes seconds.
    texts = (text for text in modules if any(word in text for word in CLASSES))
    return frozenset(found for text in texts for found in given(ast.parse(text)))


def unused(words: type[Reason | ConditionType | EventReason]) -> set[str]:
    return {word.name for word in words if (words.__name__, word.name) not in given_anywhere()}


@pytest.mark.parametrize("words", [EventReason, ConditionType], ids=lambda it: it.__name__)
def test_every_event_is_sent_and_every_condition_is_set(
    words: type[ConditionType | EventReason],
) -> None:
    assert unused(words) == set()


def test_every_reason_is_given_or_reserved_and_never_both() -> None:
    assert unused(Reason) == {word.name for word in RESERVED}


def test_the_reference_promises_what_is_given_and_nothing_else() -> None:
    lines = reference([]).splitlines()
    table = lines[lines.index("## Reasons of conditions") : lines.index("## Events")]
    promised = {line.split("`")[1] for line in table if line.startswith("| `")}
    assert promised == {word.value for word in Reason} - {word.value for word in RESERVED}


def test_a_word_that_is_only_compared_is_not_given() -> None:
    source = "x = Reason.READY if y == Reason.PAUSED or z in {Reason.CREATING} else Reason.DELETING"
    assert {name for _, name in given(ast.parse(source))} == {"READY", "DELETING"}
