"""Fresh backends for tests, by the name of their kind."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from banlieue.sdk.testing.conformance_target import ConformanceTarget
from test.kit.simulated import WorldProcess, WorldTarget
from test.kit.vsphere_target import vsphere_target

SIMULATED: Final = "simulated"
VSPHERE: Final = "vsphere"

KINDS: Final = (SIMULATED, VSPHERE)
"""The backends that every test over real processes runs on."""

REAL: Final = (VSPHERE,)
"""Those of them that stand for what people run; tests that take long run on these alone."""


@contextmanager
def new_target(kind: str, directory: Path, *, zones: int = 0) -> Iterator[ConformanceTarget]:
    """An empty backend of that kind in a process of its own, gone when the block ends.

    Args:
        kind: One of `KINDS`.
        directory: Where to put its files; several backends may share one.
        zones: How many failure domains it has; 0: as many as it has without further ado.
    """
    if kind == VSPHERE:
        with vsphere_target(directory, ["-cluster", str(zones)] if zones else []) as target:
            yield target
        return
    if kind != SIMULATED:
        raise ValueError(f"there is no backend {kind!r} for tests")
    world = WorldProcess(directory)
    world.start()
    for letter in "abcdefgh"[:zones]:
        world.add_domain(letter)
    try:
        yield WorldTarget(world)
    finally:
        world.process.kill9()
