"""One pass over one machine: gather, ask the questions that cut across, run phases, report once."""

import logging
from dataclasses import dataclass, field
from typing import Any

from banlieue.api import names
from banlieue.api.events import EventReason
from banlieue.api.infrastructure.machine import Instance, Machine, MachineStatus
from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDERS
from banlieue.sdk.backend import Backend
from banlieue.sdk.errors import DriverError, InvalidSpec, NeedsOperator, NotYet, Unreachable
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.machine import (
    adoption,
    correction,
    disks,
    drift,
    epochs,
    hints,
    life,
    moving,
    pausing,
    permission,
    report,
    restart,
    seed,
    stopped,
    teardown,
    upkeep,
)
from banlieue.sdk.machine.scope import Memory, Scope, owner_of
from banlieue.sdk.machine.shares import LATER, Shares
from banlieue.sdk.machine.vigil import Vigil
from banlieue.sdk.outcome import Outcome, Stop, Wait
from banlieue.sdk.phases import Phase, run_phases
from banlieue.sdk.powers import Changes
from banlieue.sdk.provider.ports import (
    OpenProvider,
    OpenProviders,
    Unreached,
    open_or_unreached,
)
from banlieue.sdk.reconcile import Context, Priority, Request, Result
from banlieue.sdk.status import write_status

CONTROLLER = "machine"
"""Name of the controller in queues, logs and metrics."""

_SHORTEST_RETRY = 1.0
_LONGEST_RETRY = hints.LONGEST_PAUSE
_GRANT_RETRY = 0.2
_LONGEST_GRANT_RETRY = 5.0
"""A grant comes within moments, and nobody tells of it."""

_UNTOLD_GRANT_FAILURES = 2
"""How often a grant may be late before it is worth a status."""

_SHORTEST_POLL = 1.0
_LONGEST_POLL = 60.0

_OUTAGES = frozenset(
    {Reason.PROVIDER_UNREACHABLE, Reason.PROVIDER_AUTH_FAILED, Reason.PROVIDER_TLS_INVALID}
)

PHASES = (
    life.check_backend,
    life.hold,
    life.finish_task,
    restart.note_restarted,
    moving.left_behind,
    adoption.survey,
    life.mint,
    adoption.take_over,
    life.look,
    adoption.never_made,
    moving.never_again,
    life.create,
    adoption.record,
    life.record_seen,
    epochs.stay_behind,
    moving.sync_mark,
    stopped.unanswered,
    seed.redact,
    restart.restart,
    life.converge,
    upkeep.keep_up,
    correction.tell_corrected,
)
"""The life of a machine that should exist."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class MachineReconciler:
    """Brings the VMs of the Providers served here to what their machine objects say."""

    ctx: Context
    backend: Backend[Any]
    providers: OpenProviders
    installation_namespace: str = names.SYSTEM_NAMESPACE
    shares: Shares = field(default_factory=Shares)
    memories: dict[Key, Memory] = field(default_factory=dict)
    vigil: Vigil = field(default_factory=lambda: Vigil(CONTROLLER))
    _by_word: dict[str, set[Key]] = field(default_factory=dict)
    _by_task: dict[str, Key] = field(default_factory=dict)
    _complete: set[Key] = field(default_factory=set)

    async def reconcile(self, key: Key) -> Result:
        """Look at one machine once; takes at most a few steps and never waits for the backend."""
        raw = self.ctx.cache.get(self.backend.machine, key)
        if raw is None:
            self._forget(key)
            return Result()
        machine = self._parse(raw)
        reference = machine.spec.provider_ref
        if reference is None or pausing.moves_away(machine):
            return Result()
        provider = Key(reference.namespace, reference.name)
        opened = open_or_unreached(self.providers, provider)
        if opened is None:
            return Result()
        if (pause := await self.vigil.still_waiting(self.ctx, key, raw)) is not None:
            return Result(pause)
        self.vigil.forget(key)
        if not self.shares.has_room(provider, len(self.ctx.cache.revisions(PROVIDERS))):
            return Result(self.ctx.rng.uniform(*LATER))
        with self.shares.taken(provider):
            return await self._look(key, raw, machine, opened)

    async def _look(self, key: Key, raw: Obj, machine: Machine, opened: OpenProvider) -> Result:
        scope = Scope(
            ctx=self.ctx,
            backend=self.backend,
            open=opened,
            raw=raw,
            machine=machine,
            memory=self.memories.setdefault(key, Memory()),
            installation_namespace=self.installation_namespace,
        )
        paused = await pausing.why_paused(machine, pausing.live(self.ctx.api))
        if paused is not None:
            await self._write(scope, report.paused_status(machine, paused, self.ctx.clock.now()))
            return Result()
        if (soon := teardown.about_to_end(scope)) is not None:
            return Result(soon)
        if (left := self._rests(scope)) is not None:
            return Result(left)
        return await self._pass(scope)

    def _rests(self, scope: Scope) -> float | None:
        """Seconds for which an earlier process would have left the machine alone yet, if any."""
        hints.take_up(scope.memory, scope.machine, self.ctx.clock)
        if isinstance(scope.open, Unreached):
            return None  # which asks no backend, and has something to say
        if scope.finalizer not in scope.machine.metadata.finalizers:
            return None  # nothing keeps its end from passing unnoticed
        left = hints.rest(scope.memory, scope.machine, self.ctx.clock)
        if left is not None and scope.machine.spec.instance is not None:
            self._listen_for(scope.key, scope.machine.spec.instance)
        return left

    async def _pass(self, scope: Scope) -> Result:
        instance = scope.machine.spec.instance
        if instance is not None:
            scope.owner = owner_of(scope.machine, instance.installation_id)
            self._listen_for(scope.key, instance)
        error: DriverError | None = None
        try:
            outcome = await run_phases(self._phases(scope), scope)
        except DriverError as raised:
            error = raised
            outcome = self._outcome(scope.memory, raised)
        else:
            scope.memory.failures = 0
        if scope.machine.spec.adopt is not None and scope.seen is not None:
            self._by_word.setdefault(scope.seen.uuid.lower(), set()).add(scope.key)
        minted = scope.machine.spec.instance if instance is None else None
        if minted is not None:
            self._listen_for(scope.key, minted)
        self._follow_tasks(scope)
        if self._gone(scope):
            self._forget(scope.key)
            return Result()
        changed = await self._report(scope, outcome, error)
        if isinstance(outcome, Wait | Stop):
            secrets = scope.memory.secrets
            return Result(self.vigil.begin(self.ctx, scope.raw, secrets, (outcome, error)))
        # What moved while the identity was minted found nobody who listened.
        news = _SHORTEST_POLL if minted is not None else None
        later = scope.again_after or self._poll(scope, changed=changed)
        pauses = (later, scope.restart_after, scope.seed_after, news)
        return Result(min((it for it in pauses if it is not None), default=None))

    def _follow_tasks(self, scope: Scope) -> None:
        """Have the end of work that was begun ask for a pass."""
        for task in (scope.memory.task, scope.memory.redacting):
            if task is not None:
                self._by_task[task.handle] = scope.key

    def _listen_for(self, key: Key, instance: Instance) -> None:
        """Have news of the VM ask for passes over this machine.

        Several may claim one VM, rightly or not; none keeps news from the others.
        """
        for word in (instance.uuid.lower(), instance.name):
            self._by_word.setdefault(word, set()).add(key)

    def _poll(self, scope: Scope, *, changed: bool) -> float | None:
        """When to look again at a machine whose backend does not tell what moves.

        Soon after a change, as one follows another, then ever more seldom.
        """
        if scope.open.reports_changes:
            return None
        memory = scope.memory
        memory.unchanged = 0 if changed else memory.unchanged + 1
        pause = min(_LONGEST_POLL, _SHORTEST_POLL * 2.0 ** min(memory.unchanged, 9))
        return float(pause * self.ctx.rng.uniform(0.9, 1.1))

    def _phases(self, scope: Scope) -> tuple[Phase[Scope], ...]:
        if scope.machine.metadata.deletion_timestamp is None:
            return PHASES
        if scope.finalizer not in scope.machine.metadata.finalizers:
            return ()
        return teardown.PHASES

    def _outcome(self, memory: Memory, error: DriverError) -> Outcome:
        """What a failure asks for: quick or slow retries, or none before something changes."""
        if isinstance(error, NotYet):
            return Wait(error.reason, error.message, _SHORTEST_RETRY + self.ctx.rng.uniform(0, 2))
        memory.failures += 1
        if isinstance(error, InvalidSpec):
            return Stop(error.reason, error.message)
        if isinstance(error, NeedsOperator):
            return Wait(
                error.reason, error.message, permission.SLOW * self.ctx.rng.uniform(0.1, 0.3)
            )
        first, longest = _SHORTEST_RETRY, _LONGEST_RETRY
        if error.reason is Reason.WAITING_FOR_GRANT:
            first, longest = _GRANT_RETRY, _LONGEST_GRANT_RETRY
        ceiling = min(longest, first * 2 ** min(memory.failures, hints.MOST_FAILURES))
        return Wait(error.reason, error.message, first + self.ctx.rng.uniform(0, ceiling))

    async def _report(self, scope: Scope, outcome: Outcome, error: DriverError | None) -> bool:
        """Write the status; False when it says that already, or nothing is to be said."""
        # An endpoint that does not answer, or refuses the account, says nothing about a VM that was
        # seen: its status stays, and the Provider tells. Nor is anything known while this process
        # has only just begun to serve the Provider.
        if error is not None and error.reason in _OUTAGES and _settled(scope.machine):
            return False
        if isinstance(error, NotYet) or (isinstance(error, Unreachable) and _just_started(scope)):
            return False
        if self._just_begun(scope, outcome, error) or _grant_on_its_way(scope, error):
            return False
        seen = scope.seen
        domain = (
            scope.open.domain_name(seen.failure_domain) if seen and seen.failure_domain else None
        )
        made = report.Report(
            machine=scope.machine,
            outcome=outcome,
            now=self.ctx.clock.now(),
            seen=seen,
            missing=scope.missing,
            move=epochs.reported_move(scope),
            domain=domain,
            differing=scope.differing,
            waits_for_restart=scope.waits_for_restart,
            disks=disks.problem(scope),
            retained=disks.retained(scope),
            unsupported=scope.unsupported,
            shortfalls=upkeep.shortfalls(scope),
            wanted=scope.desired,
            interfaces=drift.differing_nics(scope.desired, seen),
            restarted=restart.done_at(scope),
            task=scope.memory.task,
            failures=scope.memory.failures,
            next_attempt=hints.next_attempt(outcome, error, self.ctx.clock.now()),
            error=error,
            seed=seed.status(scope),
            first_boot=seed.findings(scope),
        )
        self._announce(scope, outcome)
        disks.tell_removed(scope)
        return await self._write(scope, report.status_of(made))

    def _just_begun(self, scope: Scope, outcome: Outcome, error: DriverError | None) -> bool:
        """A create that was sent this very moment: its VirtualMachine says so already.

        If it is still running when it is asked about, the status says so then.
        """
        begun = (
            isinstance(outcome, Wait)
            and outcome.reason is Reason.CREATING
            and scope.machine.spec.virtual_machine_ref is not None
            and not scope.machine.status.conditions
            and not scope.memory.tried
        )
        return begun and error is None

    def _announce(self, scope: Scope, outcome: Outcome) -> None:
        reason = outcome.reason if isinstance(outcome, Wait) else None
        events = {
            Reason.OWNERSHIP_CONFLICT: EventReason.OWNERSHIP_CONFLICT,
            Reason.VM_MISSING: EventReason.VM_MISSING,
        }
        if isinstance(outcome, Wait) and reason in events:
            self.ctx.recorder.event(scope.raw, events[reason], outcome.message, warning=True)

    async def _write(self, scope: Scope, status: MachineStatus) -> bool:
        body = status.to_api()
        written = await write_status(
            self.ctx.api, self.backend.machine, scope.raw, body, manager=scope.manager
        )
        return written is not None

    def _gone(self, scope: Scope) -> bool:
        deleted = scope.machine.metadata.deletion_timestamp is not None
        return deleted and scope.finalizer not in scope.machine.metadata.finalizers

    def _forget(self, key: Key) -> None:
        self.memories.pop(key, None)
        self.vigil.forget(key)
        for word in [word for word, keys in self._by_word.items() if key in keys]:
            self._by_word[word].discard(key)
            if not self._by_word[word]:
                del self._by_word[word]
        for handle in [handle for handle, owner in self._by_task.items() if owner == key]:
            del self._by_task[handle]

    def changed(self, provider: Key, changes: Changes) -> None:
        """Take in what the backend reports; asks for passes over the machines it concerns."""
        keys = {key for word in changes.uuids for key in self._by_word.get(word, ())}
        keys |= {self._by_task[handle] for handle in changes.tasks if handle in self._by_task}
        for handle in changes.tasks:
            self._by_task.pop(handle, None)
        if changes.everything and provider in self._complete:
            keys |= self.machines_of(provider)
        for key in keys:
            self.wake(key)
        if changes.everything:
            # The first answer tells a new process how all is, not that anything changed.
            self._complete.add(provider)
            keys |= self.machines_of(provider)
        priority = Priority.RESYNC if changes.everything else Priority.CHANGE
        for key in keys:
            self.ctx.enqueue(CONTROLLER, Request(key, priority=priority))

    def wake(self, key: Key) -> None:
        """Something about a machine's surroundings changed: its next pass is one, not a rest."""
        memory = self.memories.get(key)
        if memory is not None:
            memory.rests_until = None

    def machines_of(self, provider: Key) -> set[Key]:
        """Keys of all machines that are on a Provider, as far as they are known."""
        found: set[Key] = set()
        for obj in self.ctx.cache.list(self.backend.machine):
            reference = (obj.get("spec") or {}).get("providerRef") or {}
            if Key(reference.get("namespace", ""), reference.get("name", "")) == provider:
                found.add(Key.of(obj))
        return found

    def _parse(self, raw: Obj) -> Machine:
        for kind in self.backend.kinds:
            if kind.resource == self.backend.machine and issubclass(kind, Machine):
                return kind.from_api(raw)
        raise LookupError(f"backend {self.backend.name} has no model for its machine kind")


def _settled(machine: Machine) -> bool:
    return machine.spec.provider_id is not None and machine.metadata.deletion_timestamp is None


def _just_started(scope: Scope) -> bool:
    return isinstance(scope.open, Unreached) and scope.open.problem is None


def _grant_on_its_way(scope: Scope, error: DriverError | None) -> bool:
    late = error is not None and error.reason is Reason.WAITING_FOR_GRANT
    return late and scope.memory.failures <= _UNTOLD_GRANT_FAILURES
