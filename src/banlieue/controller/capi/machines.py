"""One pass over one machine that Cluster API made, whatever its backend."""

import contextlib
from dataclasses import dataclass

from banlieue.api import names
from banlieue.api.infrastructure.machine import Machine, MachineStatus
from banlieue.api.resources import PROVIDERS
from banlieue.controller.capi import berths, ending, objects, redoing, reporting
from banlieue.controller.capi.scope import Scope
from banlieue.controller.capi.stamping import CHECKS, stamp
from banlieue.controller.infra.kinds import Found
from banlieue.controller.vm.scope import Services
from banlieue.sdk.kube import Key, NotFound
from banlieue.sdk.machine import pausing, report
from banlieue.sdk.outcome import Continue, Outcome, Wait
from banlieue.sdk.phases import run_phases
from banlieue.sdk.reconcile import Priority, Request, Result
from banlieue.sdk.status import write_status

CONTROLLER = "cluster-api-machine"
"""Name of the controller in queues, logs and metrics."""


@dataclass(slots=True)
class ClusterMachineReconciler:
    """Gives machines of Cluster API to Providers, and decides on their end where nobody did.

    An object without a Machine that controls it is left as it is, to the byte: it is Cluster API's
    to finish, or a user's own.
    """

    services: Services

    async def reconcile(self, key: Key) -> Result:
        """Look at one machine once; `key` tells its kind too (`infra.machines.request_key`)."""
        crd, _, name = key.name.partition("/")
        kind = next((it for it in self.services.kinds.named() if it.crd_name == crd), None)
        raw = self.services.ctx.cache.get(kind, Key(key.namespace, name)) if kind else None
        if kind is None or raw is None:
            self._forget(key)
            return Result()
        machine = Machine.from_api(raw)
        if machine.spec.virtual_machine_ref is not None or pausing.moves_away(machine):
            return Result()
        if machine.metadata.deletion_timestamp is not None:
            return await self._end(Found(kind, raw), machine)
        if objects.is_stamped(machine):
            return await self._keep(Found(kind, raw), machine)
        reference = objects.owner_reference(machine)
        if reference is None:
            return Result()
        return await self._place(Scope(self.services, kind, raw, machine, reference))

    async def _place(self, scope: Scope) -> Result:
        """Say what the machine waits for, or stamp it when it waits for nothing."""
        outcome = await self._look(await scope.gathered())
        if isinstance(outcome, Continue):
            fresh = await scope.gathered(live=True)
            outcome = await self._look(fresh)
            if isinstance(outcome, Continue):
                outcome = await stamp(fresh)
        if isinstance(outcome, Continue):
            return Result()
        if isinstance(outcome, _Paused):
            now = self.services.ctx.clock.now()
            await self._write(scope, report.paused_status(scope.machine, outcome.why, now))
            return Result()
        now = self.services.ctx.clock.now()
        await self._write(scope, reporting.waiting_status(scope.machine, outcome, now))
        return Result(outcome.after if isinstance(outcome, Wait) else None)

    async def _look(self, scope: Scope) -> "Outcome | _Paused":
        why = await scope.why_paused()
        return _Paused(why) if why is not None else await run_phases(CHECKS, scope)

    async def _write(self, scope: Scope, status: MachineStatus) -> None:
        await write_status(
            scope.ctx.api,
            scope.kind,
            scope.raw,
            status.to_api(),
            manager=names.MANAGER_CONTROLLER,
        )

    async def _keep(self, found: Found, machine: Machine) -> Result:
        """A machine that has its Provider: counted, and its intent renewed where it is void."""
        services = self.services
        standing = await services.keeper.standing()
        if standing.id:
            resident = berths.resident(found.kind, machine, standing.id)
            services.cluster_machines.resume(resident.key)
            services.cluster_machines.observe(resident)
        if standing.problem is not None:
            return Result()
        if not ending.has_intent(machine):
            if await self._paused_live(machine):
                return Result()
            found = await ending.renew(services.ctx.api, found)
            machine = Machine.from_api(found.obj)
            if not ending.has_intent(machine):
                return Result()
        if await self._is_unserved(found, machine):
            return Result()
        reference = objects.owner_reference(machine)
        if reference is None or not redoing.is_refused(machine):
            return Result()
        scope = Scope(services, found.kind, found.obj, machine, reference)
        return Result(await redoing.redo(await scope.gathered(live=True)))

    async def _end(self, found: Found, machine: Machine) -> Result:
        """A machine that is being deleted: whoever is left decides."""
        standing = await self.services.keeper.standing()
        if standing.problem is None and not await self._paused_live(machine):
            found = await ending.end(self.services.ctx.api, self.services.ctx.cache, found)
            machine = Machine.from_api(found.obj)
            if ending.is_to_be_destroyed(machine):
                await self._is_unserved(found, machine)
        return Result()

    async def _is_unserved(self, found: Found, machine: Machine) -> bool:
        """Whether its Provider is gone; then its status says so, as no provider will."""
        reference, ctx = machine.spec.provider_ref, self.services.ctx
        if reference is None:
            return False
        provider = Key(reference.namespace, reference.name)
        if self.services.provider(provider) is not None:
            return False
        with contextlib.suppress(NotFound):
            await ctx.api.get(PROVIDERS, provider)
            return False
        if not await self._paused_live(machine):
            status = reporting.unserved_status(machine, provider, ctx.clock.now())
            manager, told = names.MANAGER_CONTROLLER, status.to_api()
            await write_status(ctx.api, found.kind, found.obj, told, manager=manager)
        return True

    async def _paused_live(self, machine: Machine) -> bool:
        live = pausing.live(self.services.ctx.api)
        return await pausing.why_paused(machine, live) is not None

    def _forget(self, key: Key) -> None:
        """The room it leaves may be what others wait for."""
        ledger = self.services.cluster_machines
        kept = berths.of_request(key)
        left = ledger.places(kept)
        if ledger.forget(kept):
            relieved = [it for place in left for it in ledger.short(place.provider)]
            for waiting in dict.fromkeys(relieved):
                request = Request(berths.request_of(waiting), priority=Priority.RESYNC)
                self.services.ctx.enqueue(CONTROLLER, request)


@dataclass(frozen=True, slots=True)
class _Paused:
    """Hands off is asked for, so nothing is said but that."""

    why: str
