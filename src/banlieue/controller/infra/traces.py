"""Machine objects this process saw, so that one that vanishes still leads back to its Provider.

A Provider lists the owners of VMs without objects, but some seconds after the objects went. What
is remembered here closes that gap: a restore of an older backup, or somebody who tears an object
out, does not have its owner placed anew elsewhere. Losing it costs nothing while Providers tell.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from banlieue.api.infrastructure.machine import MoveRole, TeardownMode
from banlieue.controller.scheduling.placement import Claim
from banlieue.sdk.identity import vm_digest
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change, Clock

KEEP = 600.0
"""Seconds for which a vanished object counts; a Provider that is served has told by then."""


@dataclass(frozen=True, slots=True)
class _Trace:
    provider: Key
    epoch: int
    incoming: bool
    doomed: bool
    vm: str = ""
    vanished: float | None = None


@dataclass(slots=True)
class Traces:
    """By VirtualMachine, the machine objects that have an identity or had one when they went."""

    clock: Clock
    _known: dict[Key, dict[tuple[str, str], _Trace]] = field(default_factory=dict)

    def note(self, change: Change) -> None:
        """Take in that a machine object came, changed or went."""
        obj = change.new or change.old
        made_by = ((obj or {}).get("spec") or {}).get("virtualMachineRef") or {}
        if obj is None or not made_by.get("name"):
            return
        owner = Key(change.key.namespace, made_by["name"])
        mine, name = self._known.get(owner, {}), (change.resource.kind, change.key.name)
        if change.new is not None:
            trace = _trace_of(obj)
            # What is on its way out and was let go of already comes too late to be known again.
            if trace is not None and (name in mine or not _is_decided(obj)):
                self._known.setdefault(owner, {})[name] = trace
            return
        known = mine.pop(name, None)
        if known is not None and not known.doomed:
            mine[name] = replace(known, vanished=self.clock.monotonic())
        elif not mine:
            self._known.pop(owner, None)

    def forget(self, owner: Key) -> None:
        """The VirtualMachine ended as its user wanted, with everything that was made for it."""
        self._known.pop(owner, None)

    def claims(
        self, owner: Key, digest: str, settled: Callable[[Key], bool]
    ) -> dict[Key, list[Claim]]:
        """Where VMs of an owner without a machine object may be, by Provider.

        Args:
            owner: the VirtualMachine; the caller found no machine object of it.
            digest: of the owner.
            settled: whether a Provider tells by itself what it holds, or is gone for good.
        """
        mine, now = self._known.get(owner, {}), self.clock.monotonic()
        for name, trace in list(mine.items()):
            old = trace.vanished is not None and now - trace.vanished > KEEP
            if old and settled(trace.provider):
                del mine[name]
        found: dict[Key, list[Claim]] = {}
        for trace in mine.values():
            if not trace.doomed:
                claim = Claim(digest, trace.epoch, trace.incoming, trace.vm)
                found.setdefault(trace.provider, []).append(claim)
        return found


def _trace_of(machine: Obj) -> _Trace | None:
    spec = machine.get("spec") or {}
    where, move = spec.get("providerRef") or {}, spec.get("move") or {}
    if not spec.get("instance") or not where.get("name"):
        return None
    intent = spec.get("teardown") or {}
    return _Trace(
        provider=Key(where.get("namespace") or "", where["name"]),
        epoch=int(move.get("epoch") or 0),
        incoming=move.get("role") == MoveRole.INCOMING,
        doomed=intent.get("mode") == TeardownMode.DESTROY and _is_decided(machine),
        vm=vm_digest(spec["instance"].get("uuid") or "") if spec.get("adopt") else "",
    )


def _is_decided(machine: Obj) -> bool:
    """Whether the controller decided what becomes of this very object's VM."""
    intent = (machine.get("spec") or {}).get("teardown") or {}
    return bool(intent) and intent.get("uid") == machine["metadata"].get("uid")
