"""Makes objects, puts them right, and takes them away: never one that somebody else made."""

from enum import Enum
from typing import Any

from banlieue.api.meta import Resource
from banlieue.api.names import MANAGER_OPERATOR
from banlieue.api.reasons import Reason
from banlieue.operator import compare, objects
from banlieue.operator.objects import Wanted
from banlieue.sdk.kube import (
    AlreadyExists,
    ApiClient,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    Key,
    NotFound,
    Obj,
)
from banlieue.sdk.patches import patch_unchanged


class Blocked(Exception):
    """An object cannot be as it is wanted; `reason` and `message` are for people."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Done(Enum):
    """What was done about an object."""

    NOTHING = "nothing"
    MADE = "made"
    CHANGED = "changed"
    GOING = "it is being deleted"


class Hands:
    """Every write to an object of a workload goes through here."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._imposed: dict[tuple[Resource, Key], Any] = {}

    async def ensure(self, wanted: Wanted, known: Obj | None, owner: Key) -> tuple[Done, Obj]:
        """Have the object as it is wanted.

        Args:
            wanted: how it should be.
            known: how it was last seen, if it was and is ours.
            owner: the Provider it is for.

        Returns:
            What was done, and the object as it is now.

        Raises:
            Blocked: somebody else's object has the name, or the API server refuses ours.
            ApiError: the request failed, and may succeed when it is repeated.
        """
        if known is None:
            try:
                return Done.MADE, await self._create(wanted)
            except AlreadyExists:
                known = await self._api.get(wanted.resource, wanted.key)
        if not objects.is_of(known, owner):
            raise Blocked(
                Reason.WORKLOAD_CONFLICT,
                f"{wanted.resource.kind} {wanted.key} was not made for this Provider and is left "
                "alone; delete it, or rename the Provider",
            )
        if known["metadata"].get("deletionTimestamp"):
            return Done.GOING, known
        if compare.is_another(wanted, known):
            await self.remove(wanted.resource, known)
            return Done.CHANGED, await self._create(wanted)
        return await self._put_right(wanted, known)

    async def remove(self, resource: Resource, obj: Obj) -> bool:
        """Delete exactly this object; False when it is gone or going already."""
        if obj["metadata"].get("deletionTimestamp"):
            return False
        self._imposed.pop((resource, Key.of(obj)), None)
        try:
            await self._api.delete(resource, Key.of(obj), uid=obj["metadata"]["uid"])
        except (NotFound, Conflict):
            return False
        return True

    async def _create(self, wanted: Wanted) -> Obj:
        try:
            return await self._api.create(wanted.resource, wanted.body(), manager=MANAGER_OPERATOR)
        except (Forbidden, Invalid, NotFound) as error:
            raise _refused(wanted, error) from error

    async def _put_right(self, wanted: Wanted, known: Obj) -> tuple[Done, Obj]:
        target = wanted.resource, wanted.key
        ops = compare.differences(wanted, known)
        if not ops or self._imposed.get(target) == ops:
            return Done.NOTHING, known
        try:
            answer = await patch_unchanged(
                self._api, wanted.resource, known, ops, manager=MANAGER_OPERATOR
            )
        except NotFound:
            return Done.MADE, await self._create(wanted)
        except (Forbidden, Invalid) as error:
            raise _refused(wanted, error) from error
        # A webhook may insist on what it changes: the same is not written again and again.
        self._imposed[target] = compare.differences(wanted, answer)
        return Done.CHANGED, answer


def _refused(wanted: Wanted, error: ApiError) -> Blocked:
    return Blocked(
        Reason.WORKLOAD_REFUSED,
        f"{wanted.resource.kind} {wanted.key} was refused: {error.message}",
    )
