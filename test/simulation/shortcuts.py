"""What the simulator does in another way than a real process, only because it is faster.

Each is a plain stand-in with the same answers; nothing that decides about a VM is among them.
"""

import asyncio
import marshal
import os
from collections.abc import Mapping
from typing import Any, cast

from banlieue.api.meta import Model
from banlieue.sdk.kube import Obj
from banlieue.sdk.reconcile import Change, Clock
from banlieue.sdk.runtime import cache, queue, streams
from banlieue.sdk.testing.memory_api import MemoryApi

_WITHOUT_REFERENCES = 2
"""The version of the format in which equal objects give equal bytes."""


def take() -> None:
    """Take them all, in this process."""
    cache._encode = cache._decode = _itself  # type: ignore[assignment]  # stored as it is
    for module in (queue, streams):
        setattr(module, _happens.__name__.strip("_"), _happens)
    setattr(Model, "from_api", classmethod(_parsed))  # noqa: B010 - a method is not to be assigned


def _parsed(cls: type[Model], value: Mapping[str, Any]) -> Model:
    """The model of an object; who reads the same object again gets the same model.

    Passes copy what they change, as they copy what a cache gives them. `VERIFY` makes sure.
    """
    known = (cls, id(value))
    held = _PARSED.get(known)
    if held is None:
        if len(_PARSED) >= _MOST_PARSED:
            _PARSED.clear()
        # With the object, so that nothing else gets its number.
        held = _PARSED[known] = (value, cls.model_validate(value))
    elif VERIFY and held[1] != cls.model_validate(value):
        raise AssertionError(f"somebody changed a {cls.__name__} that others read, too")
    return held[1]


VERIFY = bool(os.environ.get("BANLIEUE_SIMULATION_VERIFY"))
"""Whether to compare what is shared with what it was made from, whenever it is used again."""

_PARSED: dict[tuple[type[Model], int], tuple[Mapping[str, Any], Model]] = {}
_MOST_PARSED = 4000


def _itself(obj: Obj) -> Obj:
    """What caches keep of an object, and show: all of them the one that the API server stores."""
    return obj


def watch_for_changes(api: MemoryApi) -> None:
    """With `VERIFY`, make sure that nobody changes an object that all of them share."""
    if not VERIFY:
        return
    written: dict[int, tuple[Obj, bytes]] = {}

    def compare(change: Change) -> None:
        for obj in (change.old, change.new):
            if obj is None:
                continue
            held = written.setdefault(id(obj), (obj, _bytes(obj)))
            if held[1] != _bytes(obj):
                raise AssertionError(f"somebody changed {change.key} where it is stored")

    api.subscribe(compare)


def _bytes(obj: Obj) -> bytes:
    return marshal.dumps(cast("Any", obj), _WITHOUT_REFERENCES)


async def _happens(event: asyncio.Event, clock: Clock, *, within: float) -> bool:
    """Wait for an event or the clock without two tasks that do it; the clock is the loop's."""
    del clock
    if event.is_set():
        return True
    loop = asyncio.get_running_loop()
    woken = loop.create_future()
    waiters = event._waiters
    waiters.append(woken)
    timer = loop.call_later(within, _wake, woken)
    try:
        await woken
    finally:
        waiters.remove(woken)
        timer.cancel()
    return event.is_set()


def _wake(future: "asyncio.Future[bool]") -> None:
    if not future.done():
        future.set_result(True)
