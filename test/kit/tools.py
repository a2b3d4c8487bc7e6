"""The binaries the kit runs."""

from functools import cache
from pathlib import Path

from hack.tools.catalog import find_tool


@cache
def tool(name: str) -> Path:
    """The binary of that name.

    Raises:
        ToolError: It is not built; the message names `make tools`. Tests end in an error then, they
            are never skipped.
    """
    return find_tool(name)
