"""All twenty stories are told, or stand here with what they wait for."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

STORIES: Final = range(1, 21)

WAITING: Final[dict[int, str]] = {}
"""Stories that cannot be told yet, by number, and what they wait for."""

PARTLY: Final = {
    1: "Proxmox VE and libvirt: there are no drivers for them yet",
    20: "told of vSphere, end to end: there is no driver for Proxmox VE yet",
    15: "Proxmox VE: the swap is told between vSphere and the simulated backend",
}
"""Stories that are told, but not on every backend there is, and what the others wait for."""

_NUMBER: Final = re.compile(r"Story (\d+):")


def _told() -> Iterator[int]:
    """Numbers in the docstrings of the stories beside this file, and of those told end to end."""
    here = Path(__file__).parent
    for path in sorted([*here.glob("test_*.py"), *(here.parent / "e2e").glob("test_*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found = _NUMBER.match(ast.get_docstring(node) or "")
                if found:
                    yield int(found[1])


def test_every_story_is_told_or_waits_for_something() -> None:
    told = set(_told())
    assert sorted([*told, *WAITING]) == list(STORIES)
    assert all(WAITING.values())
    assert set(PARTLY) <= told
    assert all(PARTLY.values())
