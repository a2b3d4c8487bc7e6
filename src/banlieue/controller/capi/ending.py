"""What becomes of a Cluster API machine whose object goes, and its intent renewed after a move.

The stamp carries the intent to destroy for one very object. A copy that `clusterctl move` or a
restore made has another uid, so its intent is void until the Machine that owns it was seen.
"""

import logging

from banlieue.api.infrastructure.machine import Machine, TeardownMode
from banlieue.api.meta import Resource
from banlieue.api.resources import CAPI_MACHINES
from banlieue.controller.capi import objects
from banlieue.controller.infra import teardown
from banlieue.controller.infra.kinds import Found
from banlieue.sdk.kube import ApiClient, Key, NotFound, Obj, ObjectReader

log = logging.getLogger(__name__)


def has_intent(machine: Machine) -> bool:
    """Whether an intent stands there for this very object."""
    intent = machine.spec.teardown
    return intent is not None and intent.uid == machine.metadata.uid


def is_to_be_destroyed(machine: Machine) -> bool:
    """Whether the intent that stands there for this very object is to destroy."""
    intent = machine.spec.teardown
    return has_intent(machine) and intent is not None and intent.mode is TeardownMode.DESTROY


async def renew(api: ApiClient, found: Found) -> Found:
    """Write the intent of a living machine again, whose Machine lives and refers to it.

    A void intent to release stays one: somebody has asked for it.

    Returns:
        The object as it is then; the pass that writes gets no event of it.

    Raises:
        Conflict: the object changed since it was read; decide again.
        ApiError: nobody knows.
    """
    machine = Machine.from_api(found.obj)
    owner = await _owner(api, machine, found)
    if owner is None or not objects.names_machine(owner, found.kind, found.key):
        return found
    void = machine.spec.teardown
    mode = void.mode if void is not None else TeardownMode.DESTROY
    return await teardown.write_intent(api, found, mode)


async def end(api: ApiClient, cache: ObjectReader, found: Found) -> Found:
    """Decide on a machine whose object is being deleted.

    With a valid intent the provider acts, or nobody is left to: a released one of a Provider that
    is gone is let go here. Without one only the end of its Machine is a reason to destroy.

    Returns:
        The object with the intent it has then; the pass that writes gets no event of it.

    Raises:
        Conflict: the object changed since it was read; decide again.
        ApiError: nobody knows.
    """
    machine = Machine.from_api(found.obj)
    if not objects.is_stamped(machine):
        return found  # nothing was made for it, and nothing of ours holds it
    if has_intent(machine):
        await teardown.release_from_gone_provider(api, found)
        return found
    for name in _candidates(cache, machine, found):
        owner = await _live(api, CAPI_MACHINES, Key(found.key.namespace, name))
        if (
            owner is not None
            and objects.is_leaving(owner)
            and objects.names_machine(owner, found.kind, found.key)
        ):
            return await teardown.write_intent(api, found, TeardownMode.DESTROY)
    return found


def _candidates(cache: ObjectReader, machine: Machine, found: Found) -> list[str]:
    """Machines that may refer to this object: its owner, else any, as references get lost."""
    reference = objects.owner_reference(machine)
    if reference is not None:
        return [reference.name]
    return [
        Key.of(it).name
        for it in cache.list(CAPI_MACHINES, namespace=found.key.namespace)
        if objects.names_machine(it, found.kind, found.key)
    ]


async def _owner(api: ApiClient, machine: Machine, found: Found) -> Obj | None:
    """The Machine that controls the object, read live; not another one of its name."""
    reference = objects.owner_reference(machine)
    if reference is None:
        return None
    owner = await _live(api, CAPI_MACHINES, Key(found.key.namespace, reference.name))
    return owner if owner is not None and owner["metadata"]["uid"] == reference.uid else None


async def _live(api: ApiClient, resource: Resource, key: Key) -> Obj | None:
    try:
        return await api.get(resource, key)
    except NotFound:
        return None
