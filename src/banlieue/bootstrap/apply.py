"""Applies a plan: looks first, refuses what would harm, then writes in order and waits."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from banlieue.api import names
from banlieue.bootstrap import leftovers, presence, readiness
from banlieue.bootstrap.cluster import MANAGER, MANAGER_IN_USE, BootstrapError, Tools
from banlieue.bootstrap.difference import difference, must_be_new, same
from banlieue.bootstrap.kinds import lost_fields
from banlieue.bootstrap.objects import key_of, resource_of, title
from banlieue.sdk.kube import Conflict, NotFound, Obj

OLDEST_SERVER: Final = (1, 33)

_CRD: Final = "CustomResourceDefinition"
_SHOWN_FIELDS: Final = 5
_SHOWN_CONFLICTS: Final = 10


@dataclass(frozen=True, slots=True)
class How:
    """How a plan is applied.

    Attributes:
        force: take fields over that others set to something else.
        downgrade: replace kinds by ones that know less, which drops what objects have of the rest.
        wait: until everything that runs is available.
        prune: delete what an earlier version installed and this one does not.
    """

    force: bool = False
    downgrade: bool = False
    wait: bool = True
    prune: bool = False


@dataclass(slots=True)
class Outcome:
    """What became of the objects, by their title."""

    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """One line for people."""
        counts = (
            (len(self.created), "created"),
            (len(self.changed), "changed"),
            (len(self.unchanged), "unchanged"),
            (len(self.deleted), "deleted"),
        )
        return ", ".join(f"{count} {word}" for count, word in counts if count) or "nothing to do"


async def apply(tools: Tools, plan: Sequence[Obj], how: How) -> Outcome:
    """Bring a cluster to what a plan says.

    Nothing is written before it is known that every object can be: what somebody else set
    otherwise, and kinds that would lose fields, end it beforehand. Repeating it is an upgrade,
    or does nothing.

    Raises:
        BootstrapError: it was refused, or something did not become ready in time.
        ApiError: the API server refused an object.
    """
    await check_cluster(tools, plan)
    live = await asyncio.gather(*(_settled(tools, obj) for obj in plan))
    if not how.downgrade:
        _check_kinds(plan, live)
    if not how.force:
        await _check_conflicts(tools, plan, live)
    outcome = Outcome()
    for obj, before in zip(plan, live, strict=True):
        if obj["kind"] == "Deployment":
            await readiness.await_kinds(tools, plan)
        await _write(tools, obj, before, how, outcome)
    await readiness.await_kinds(tools, plan)
    if how.prune:
        await leftovers.prune(tools, plan, outcome.deleted)
    if how.wait:
        await readiness.await_deployments(tools, plan)
    return outcome


async def differences(tools: Tools, plan: Sequence[Obj], *, force: bool) -> list[str]:
    """Unified diffs of everything that applying a plan would change; nothing is stored.

    Raises:
        BootstrapError: somebody else set a field otherwise, and it is not forced.
    """
    await check_cluster(tools, plan)
    live = await asyncio.gather(*(tools.find(obj) for obj in plan))
    if not force:
        await _check_conflicts(tools, plan, live)
    found = []
    for obj, before in zip(plan, live, strict=True):
        offered = before is not None and not must_be_new(before, obj)
        after = await _offer(tools, obj, force=True, dry_run=True) if offered else obj
        if text := difference(before, after):
            found.append(text)
    return found


async def check_cluster(tools: Tools, plan: Sequence[Obj]) -> None:
    """Refuse a cluster that is too old, has banlieue elsewhere, or lacks what must be first."""
    found = await tools.cluster.server_version()
    if found < OLDEST_SERVER:
        wanted, there = (".".join(map(str, it)) for it in (OLDEST_SERVER, found))
        raise BootstrapError(f"Kubernetes {there} is too old: {wanted} or newer is needed")
    deployments = [it for it in plan if it["kind"] == "Deployment"]
    if any(it["metadata"]["name"] == "banlieue-controller" for it in deployments):
        await presence.check_alone(tools, key_of(deployments[0]).namespace)
    elif deployments:
        await presence.check_beneath(tools, plan)


def _check_kinds(plan: Sequence[Obj], live: Sequence[Obj | None]) -> None:
    for obj, before in zip(plan, live, strict=True):
        if obj["kind"] != _CRD or before is None:
            continue
        lost = lost_fields(before, obj)
        if lost:
            shown = ", ".join(lost[:_SHOWN_FIELDS])
            more = f" and {len(lost) - _SHOWN_FIELDS} more" if len(lost) > _SHOWN_FIELDS else ""
            raise BootstrapError(
                f"{key_of(obj).name} in the cluster is of a newer version: objects would lose "
                f"{shown}{more}. Use the banlieue command of that version, or --allow-downgrade"
            )


async def _check_conflicts(tools: Tools, plan: Sequence[Obj], live: Sequence[Obj | None]) -> None:
    pairs = zip(plan, live, strict=True)
    there = [obj for obj, before in pairs if before and not must_be_new(before, obj)]
    told = await asyncio.gather(*(_conflict(tools, obj) for obj in there))
    found = [text for text in told if text]
    if found:
        more = len(found) - _SHOWN_CONFLICTS
        listed = [*found[:_SHOWN_CONFLICTS], *([f"and {more} objects more"] if more > 0 else [])]
        raise BootstrapError(
            "others set fields otherwise; nothing was changed:\n"
            + "\n".join(listed)
            + "\nSet them there, or take them over with --force-conflicts (what kubectl applied "
            "before, this command then owns)"
        )


async def _conflict(tools: Tools, obj: Obj) -> str:
    try:
        await _offer(tools, obj, dry_run=True)
    except Conflict as error:
        return f"{title(obj)}: {error.message}"
    return ""


async def _settled(tools: Tools, obj: Obj) -> Obj | None:
    """The object as it is; one that is being deleted is waited for: it would go with all we write.

    A second `uninstall` and `bootstrap` right after the first meets these.
    """
    found = await tools.find(obj)
    if found is None or "deletionTimestamp" not in found["metadata"]:
        return found
    tools.say(f"waiting for {title(obj)} to be gone, it is being deleted")

    async def gone() -> bool:
        there = await tools.find(obj)
        return there is None or "deletionTimestamp" not in there["metadata"]

    if not await tools.until(gone):
        raise BootstrapError(f"{title(obj)} is still being deleted; look what holds it")
    return await tools.find(obj)


async def _write(tools: Tools, obj: Obj, before: Obj | None, how: How, outcome: Outcome) -> None:
    if before is not None and must_be_new(before, obj):
        await leftovers.delete(tools, resource_of(obj), before)
        await _settled(tools, obj)
    after = await _offer(tools, obj, force=how.force)
    if how.force:
        after = await _take_over(tools, after)
    if before is None:
        outcome.created.append(title(obj))
        tools.say(f"created   {title(obj)}")
    elif not same(before, after):
        outcome.changed.append(title(obj))
        tools.say(f"changed   {title(obj)}")
    else:
        outcome.unchanged.append(title(obj))


async def _take_over(tools: Tools, obj: Obj) -> Obj:
    """End kubectl's share in an object: what it applied would be in the way at every upgrade."""
    entries = obj["metadata"].get("managedFields") or []
    kept = [it for it in entries if not _is_kubectls(it)]
    if len(kept) == len(entries):
        return obj
    ops = [
        {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": obj["metadata"]["resourceVersion"],
        },
        {"op": "replace", "path": "/metadata/managedFields", "value": kept},
    ]
    try:
        return await tools.patiently(
            lambda: tools.cluster.json_patch(resource_of(obj), key_of(obj), ops, manager=MANAGER)
        )
    except Conflict:
        return obj  # changed meanwhile; the next forced run takes over


def _is_kubectls(entry: Mapping[str, Any]) -> bool:
    applied = entry.get("operation") == "Apply" and entry.get("manager") == "kubectl"
    return applied or entry.get("manager") == "kubectl-client-side-apply"


async def _offer(tools: Tools, obj: Obj, *, force: bool = False, dry_run: bool = False) -> Obj:
    resource = resource_of(obj)

    async def call(given: Obj, manager: str) -> Obj:
        return await tools.cluster.offer(
            resource, given, manager=manager, force=force, dry_run=dry_run
        )

    marked, mark = _without_mark(obj)
    try:
        answer = await tools.patiently(lambda: call(marked, MANAGER))
        if mark is not None:
            answer = await tools.patiently(lambda: call(mark, MANAGER_IN_USE))
    except NotFound as error:
        raise BootstrapError(f"{title(obj)}: {error.message}") from error
    return answer


def _without_mark(obj: Obj) -> tuple[Obj, Obj | None]:
    """A namespace in use as two: all but the label, and the label alone, for a manager each."""
    labels = obj["metadata"].get("labels") or {}
    if obj["kind"] != "Namespace" or names.LABEL_IN_USE not in labels:
        return obj, None
    kept = {key: it for key, it in labels.items() if key != names.LABEL_IN_USE}
    name = obj["metadata"]["name"]
    mark = {names.LABEL_IN_USE: labels[names.LABEL_IN_USE]}
    base = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    return (
        {**obj, "metadata": {**obj["metadata"], "labels": kept}},
        {**base, "metadata": {"name": name, "labels": mark}},
    )
