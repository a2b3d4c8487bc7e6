"""How the collector of cyclic garbage is kept from looking at what never becomes garbage."""

import gc

_THRESHOLDS = (10_000, 20, 20)
"""The interpreter's own are for programs of a few hundred objects: reading ten thousand machines,
it would spend a third of the time looking through what is there for good."""


def begin_import() -> None:
    """Collect nothing while modules come in: they stay, and so does what they define."""
    gc.disable()


def begin_work() -> None:
    """Collect from now on, but leave out what is there already."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    gc.enable()
