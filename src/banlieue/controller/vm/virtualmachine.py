"""One pass over one VirtualMachine: gather, run phases, report."""

from collections.abc import Iterable
from dataclasses import dataclass

from banlieue.api.resources import VIRTUAL_MACHINES
from banlieue.controller import writes
from banlieue.controller.infra.refer import referenced
from banlieue.controller.moves.previous import pause_others
from banlieue.controller.scheduling import facts
from banlieue.controller.vm import announce, mirror
from banlieue.controller.vm.deleting import DELETE_PHASES
from banlieue.controller.vm.phases import PHASES
from banlieue.controller.vm.scope import Scope, Services
from banlieue.sdk.kube import Key
from banlieue.sdk.outcome import Wait
from banlieue.sdk.phases import run_phases
from banlieue.sdk.reconcile import Priority, Request, Result

CONTROLLER = "virtualmachine"
"""Name of the controller in queues, logs and metrics."""


@dataclass(slots=True)
class VirtualMachineReconciler:
    """Keeps exactly one machine object per VirtualMachine and says how it is."""

    services: Services

    async def reconcile(self, key: Key) -> Result:
        """Look at one VirtualMachine once; never waits for a machine."""
        raw = self.services.ctx.cache.get(VIRTUAL_MACHINES, key)
        if raw is None:
            self._forget(key)
            return Result()
        scope = Scope.of(self.services, raw)
        scope.listen()
        before = scope.vm.status
        if scope.vm.spec.paused:
            await self._pause(scope)
            self.services.ledger.resume(key)
            return Result()
        outcome = await run_phases(DELETE_PHASES if scope.deleting else PHASES, scope)
        if scope.gone:
            self._forget(key)
            return Result()
        await scope.write_status(outcome)
        if not scope.waits:
            self.services.ledger.resume(key)
        self._account(scope)
        for note in announce.notes(before, scope.vm.status):
            self.services.ctx.recorder.event(
                scope.raw, note.reason, note.message, warning=note.warning
            )
        pauses = (outcome.after if isinstance(outcome, Wait) else None, scope.again_after)
        return Result(min((it for it in pauses if it is not None), default=None))

    async def _pause(self, scope: Scope) -> None:
        """Hands off: the pause reaches the machine's provider, and nothing else is done."""
        await referenced(scope)
        raw, kind, machine = scope.machine_raw, scope.kind, scope.machine
        if raw is not None and kind is not None and machine is not None and not machine.spec.paused:
            ops: writes.Ops = [{"op": "add", "path": "/spec/paused", "value": True}]
            await writes.patch(self.services.ctx.api, kind, raw, ops)
        await pause_others(scope)
        await scope.replace_status(mirror.paused_status(scope.vm, self.services.ctx.clock.now()))

    def _account(self, scope: Scope) -> None:
        """Keep the ledger on what this pass knows."""
        if scope.standing is None or not scope.standing.id:
            return
        resident = facts.resident(scope.vm, scope.vm_class, installation_id=scope.standing.id)
        ledger = self.services.ledger
        before = ledger.places(resident.key)
        ledger.observe(resident, facts.place_of(scope.vm))
        if before and ledger.places(resident.key) != before:
            self._wake(ledger.kept_apart(resident.key))

    def _forget(self, key: Key) -> None:
        """The room it leaves may be what others wait for: to be apart from it, or its memory."""
        ledger = self.services.ledger
        left, relieved = ledger.places(key), ledger.kept_apart(key)
        if ledger.forget(key):
            relieved += ledger.waiting(namespace=key.namespace)
            relieved += [it for place in left for it in ledger.short(place.provider)]
            self._wake(relieved)

    def _wake(self, keys: Iterable[Key]) -> None:
        for key in dict.fromkeys(keys):
            self.services.ctx.enqueue(CONTROLLER, Request(key, priority=Priority.RESYNC))
