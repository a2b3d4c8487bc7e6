"""Brings an image to a Provider that lacks it, one step a pass, and takes imported copies away.

Nothing is remembered that a restart must know: what was imported is on the backend under a name
made from its digest, and which names are ours stands in the row before the first call is sent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from banlieue.api.names import FINALIZER_IMAGE_COPIES, FINALIZER_IMAGE_IN_USE
from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.vmimage import ProviderImageStatus, VMImage
from banlieue.sdk.driver import Driver
from banlieue.sdk.errors import DriverError, InvalidSpec, NeedsOperator, Unreachable
from banlieue.sdk.image import rows
from banlieue.sdk.image.ports import ImageImport, ImageImporter, ImportTask
from banlieue.sdk.image.rows import Places
from banlieue.sdk.provider.ports import OpenProvider
from banlieue.sdk.reconcile import Context

PROGRESS_SECONDS = 10.0
"""Least seconds between two writes of a progress."""

FIRST_PAUSE = 30.0
LONGEST_PAUSE = 900.0
"""Seconds between two tries of an import that failed, and how far the pause grows."""

LASTING_PAUSE = 3600.0
"""Seconds until an import is tried again whose source has to be corrected."""

_SLOW = 60.0
_MAX_COPIES = 16


@dataclass(slots=True)
class Memory:
    """What a process remembers of one import; losing it costs time, and nothing else."""

    wanted: ImageImport | None = None
    failures: int = 0
    error: DriverError | None = None
    retry_at: float = 0.0
    shown: int | None = None
    shown_at: float | None = None


@dataclass(slots=True)
class Step:
    """One Provider's pass over an image: the row it will have, and when to look again."""

    ctx: Context
    opened: OpenProvider
    row: ProviderImageStatus
    places: Places
    copy: ImageImport
    memory: Memory
    after: float | None = None


def hindrance(
    opened: OpenProvider, row: ProviderImageStatus, copy: ImageImport
) -> tuple[Reason, str] | None:
    """Why nothing may be imported now, as reason and words; None when it may."""
    if not opened.writable:
        return Reason.PROVIDER_PAUSED, "the Provider is paused or read-only"
    if len(row.copies) >= _MAX_COPIES and copy.name not in row.copies:
        return Reason.IMAGE_IMPORT_FAILED, "its source was changed too often; make a new VMImage"
    return None


def is_held(image: VMImage) -> bool:
    """Whether the image will stay until its copies are deleted; nothing is imported before."""
    return FINALIZER_IMAGE_COPIES in image.metadata.finalizers


def begin(step: Step) -> bool:
    """Whether a call is to be made now; the row then says so before it is."""
    memory, now = step.memory, step.ctx.clock.monotonic()
    if memory.wanted != step.copy:
        step.memory.wanted, memory.failures, memory.error = step.copy, 0, None
        memory.shown = memory.shown_at = None
    rows.imports_into(step.row, step.copy)
    if memory.error is None:
        return True
    rows.fails(step.row, memory.error)
    if now >= memory.retry_at:
        return True
    step.after = memory.retry_at - now
    return False


async def advance(step: Step) -> None:
    """Start the import into the next place that lacks it, or see how far it is.

    Raises:
        Unreachable: the backend cannot be asked; nothing is known anew.
    """
    where, copy = step.places.lacking[0], step.copy

    def bring(driver: Driver[Any]) -> ImportTask | None:
        if not isinstance(driver, ImageImporter):
            raise NeedsOperator(Reason.IMAGE_NOT_AVAILABLE, "the image cannot be imported here")
        return driver.import_image(copy, where)

    try:
        task = await step.opened.call(bring)
    except Unreachable:
        raise
    except DriverError as error:
        _failed(step, error)
        return
    if task is None:
        step.memory.error, step.memory.failures = None, 0
        step.after = 0.0
        return
    step.after = task.poll_after
    _show(step, task)


def _failed(step: Step, error: DriverError) -> None:
    """Keep for the next passes that it failed, and when it may be tried again."""
    memory, ctx = step.memory, step.ctx
    memory.error = error
    memory.failures += 1
    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (memory.failures - 1))
    if isinstance(error, InvalidSpec):
        pause = LASTING_PAUSE
    step.after = pause * ctx.rng.uniform(0.8, 1.2)
    memory.retry_at = ctx.clock.monotonic() + step.after
    rows.fails(step.row, error)


def _show(step: Step, task: ImportTask) -> None:
    """Let the row tell how far the import is, in steps of size and of time.

    A try after a failure says nothing new before something came.
    """
    memory, now = step.memory, step.ctx.clock.monotonic()
    reached = rows.percent(task, step.places)
    if memory.error is not None and task.done > 0:
        memory.error = None
        rows.imports_into(step.row, step.copy)
    if memory.error is not None:
        return
    step.row.bytes = task.total
    due = memory.shown_at is None or now - memory.shown_at >= PROGRESS_SECONDS
    if reached is not None and due and reached != memory.shown:
        memory.shown, memory.shown_at = reached, now
    step.row.progress_percent = memory.shown


def may_delete(image: VMImage) -> bool:
    """Whether the controller found that nothing is made from the image any more."""
    return FINALIZER_IMAGE_IN_USE not in image.metadata.finalizers


async def remove(opened: OpenProvider, row: ProviderImageStatus) -> float | None:
    """Delete the copies the row names, everywhere; gives when to look again, None when all went.

    The row says what is left, and why.

    Raises:
        Unreachable: the backend cannot be asked.
    """
    names = tuple(row.copies)
    try:
        pauses = await opened.call(_deletion(names))
    except Unreachable:
        raise
    except DriverError as error:
        row.reason, row.message = error.reason, error.message
        return _SLOW
    if pauses is not None:
        row.reason, row.message = Reason.DELETING, "what was imported is being deleted"
        return pauses
    row.copies = []
    row.reason, row.message = Reason.DELETING, "what was imported is deleted"
    return None


def _deletion(names: tuple[str, ...]) -> Callable[[Driver[Any]], float | None]:
    def delete(driver: Driver[Any]) -> float | None:
        if not isinstance(driver, ImageImporter):
            return None
        tasks = [
            driver.delete_image(name, where) for where in driver.failure_domains() for name in names
        ]
        return max((task.poll_after for task in tasks if task is not None), default=None)

    return delete
