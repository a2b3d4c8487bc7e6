"""What the mover of `clusterctl move` does to a Machine and its machine object, step by step.

Cluster API refuses to begin a move while Machines are being made. One that begins none the less, by
an older clusterctl or by a backup, takes these steps.
"""

import copy
from dataclasses import dataclass
from typing import Final

from banlieue.api import names
from banlieue.api.resources import CAPI_MACHINES
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from test.kit.capiworld import CapiWorld
from test.kit.controllerworld import NAMESPACE, restored

NODE: Final = "node-1"


@dataclass(frozen=True, slots=True)
class Copied:
    """What the mover read at the source.

    Attributes:
        node: The machine object.
        owner: Its Machine.
    """

    node: Obj
    owner: Obj

    @classmethod
    def of(cls, world: CapiWorld) -> "Copied":
        """As both are now."""
        return cls(copy.deepcopy(world.node(NODE)), copy.deepcopy(world.owner(NODE)))


def wipe(world: CapiWorld) -> None:
    """The mover replaces all annotations by its own."""
    note = {names.CAPI_ANNOTATION_DELETE_FOR_MOVE: ""}
    world.edit(NODE, lambda it: it["metadata"].update(annotations=note))


async def move_away(
    world: CapiWorld, *, watched: bool, restarts: bool, copied: Copied | None = None
) -> Copied:
    """Every step of the mover on the source.

    Args:
        world: The source.
        watched: Whether the controllers look in between.
        restarts: Whether they also start again in between.
        copied: What the mover read earlier; else it reads once the Cluster is paused.
    """

    async def look() -> None:
        if restarts:
            world.restart()
        if watched:
            await world.settle()

    world.pause()
    await look()
    copied = copied or Copied.of(world)
    wipe(world)
    await look()
    world.api.drop(SIMULATED_MACHINES, Key(NAMESPACE, NODE))
    await look()
    if world.node(NODE):
        world.edit(NODE, lambda it: it["metadata"].update(finalizers=[]))
    await look()
    world.api.drop(CAPI_MACHINES, Key(NAMESPACE, NODE))
    world.edit_owner(NODE, lambda it: it["metadata"].update(finalizers=[]))
    await look()
    assert (world.node(NODE), world.owner(NODE)) == ({}, {})
    return copied


async def move_back(world: CapiWorld, copied: Copied, *, seconds: float = 60.0) -> None:
    """What the mover makes on the target: owners first, no status, uids of its own.

    Args:
        world: The target.
        copied: What was read at the source.
        seconds: How long the controllers may work once the Cluster is resumed.
    """
    put_back(world, copied)
    await world.settle()
    assert world.told(NODE, "Paused") == ("True", "Paused")
    world.pause(paused=False)
    await world.settle(seconds=seconds)


def put_back(world: CapiWorld, copied: Copied) -> None:
    """Make both on the target; its Cluster stays paused."""
    fresh = world.api.put(CAPI_MACHINES, restored(copied.owner, uid="new-owner", status=False))
    obj = restored(copied.node, uid="new-node", status=False)
    obj["metadata"]["ownerReferences"][0]["uid"] = fresh["metadata"]["uid"]
    world.api.put(SIMULATED_MACHINES, obj)
