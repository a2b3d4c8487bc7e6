"""A simulated hypervisor as it is met from outside: logins, calls, faults on the wire, changes.

Calls and answers are JSON data, in process and over the network alike, so both ways behave the
same. A world is thread-safe and owns no thread: time passes when somebody calls.
"""

import contextlib
import hashlib
import hmac
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from random import Random
from typing import Any, Protocol

from pydantic import BaseModel

from banlieue.sdk.simulated import imports
from banlieue.sdk.simulated.changes import ChangeLog
from banlieue.sdk.simulated.control import Control
from banlieue.sdk.simulated.faults import Code, ConnectionLost, Effect, Rule, Rules, WorldFault
from banlieue.sdk.simulated.hypervisor import Fate, Hypervisor
from banlieue.sdk.simulated.inventory import WorldClock
from banlieue.sdk.simulated.records import (
    Account,
    Detaching,
    Fault,
    Hardware,
    LateCall,
    State,
    TakeOver,
    Task,
    Vm,
    VmSpec,
)

Json = Any
Params = Mapping[str, Any]

USERNAME = "simulated"
PASSWORD = "simulated"  # noqa: S105 - the public login of a world that holds nothing

_FREE = frozenset({"login", "ping"})
_PRIVILEGE = {
    "create": "Create",
    "destroy": "Delete",
    "power_on": "Power",
    "power_off": "Power",
    "shutdown": "Power",
    "reboot": "Power",
    "reset": "Power",
    "suspend": "Power",
    "reconfigure": "Configure",
    "detach": "Configure",
    "remove_mark": "Configure",
    "take_over": "Configure",
    "redact": "Configure",
}
READ = "Read"
"""The privilege without which a look-up proves nothing."""


class Port(Protocol):
    """A way to a world: in this process or over HTTP."""

    def call(self, method: str, params: Params, *, session: str, timeout: float) -> Json:
        """Make one call as a logged-in account.

        Raises:
            WorldFault: the world's answer is a fault.
            ConnectionLost: no answer within `timeout` seconds, or none at all.
        """

    def control(self, method: str, params: Params) -> Json:
        """Do something behind the account's back; see `Control`. Raises like `call`."""


class World:
    """One simulated hypervisor.

    `sleep` is what makes callers wait; None makes every wait end at once, for a clock that only
    moves when it is told to. `save` is given the state after every change.
    """

    def __init__(
        self,
        state: State,
        *,
        clock: WorldClock,
        rng: Random,
        sleep: Callable[[float], None] | None = time.sleep,
        save: Callable[[State], None] | None = None,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._sleep = sleep
        self._save = save
        self._moved = threading.Condition(threading.RLock())
        self._sessions: dict[str, str] = {}
        self._log = ChangeLog(f"{rng.getrandbits(32):08x}")
        self._rules = Rules()
        self._saved = self._log.number
        self._calls: Counter[str] = Counter()
        self.hypervisor = Hypervisor(state, clock=clock, rng=rng, log=self._log)
        self._imports = imports.Imports(self.hypervisor)
        self._reads = self._all_reads()
        self._control = Control(self.hypervisor, self._rules, self._calls, self._sessions)

    @property
    def state(self) -> State:
        """The live state; for reading, from one thread or under a stopped clock."""
        return self.hypervisor.state

    def next_due(self) -> float | None:
        """When the next thing happens by itself, in seconds of the world's clock."""
        with self._moved:
            dues = [late.due for late in self.state.late]
            if (due := self.hypervisor.next_due()) is not None:
                dues.append(due)
            return min(dues, default=None)

    def call(
        self, method: str, params: Params, *, session: str = "", timeout: float = 60.0
    ) -> Json:
        """Make one call; see `Port.call`."""
        with self._moved:
            self._settle()
            self._calls[method] += 1
            rule = self._rules.hit(method, self._subject(params))
        if rule:
            self._before(rule, method, params, session, timeout)
        if method == "changes":
            return self._changes(session, params)
        with self._moved:
            self._settle()
            account = self._account(method, session)
            answer = self._carry_out(method, params, account, _fate(rule))
            self._settle(changed=method in _PRIVILEGE or method in imports.METHODS)
        if rule and rule.effect is Effect.LOSE_REPLY:
            raise ConnectionLost
        return answer

    def control(self, method: str, params: Params) -> Json:
        """Do something behind the account's back; see `Control`."""
        with self._moved:
            self._settle()
            answer = _json(self._control(method, params))
            self._settle(changed=True)
            return answer

    # Faults on the wire

    def _before(
        self, rule: Rule, method: str, params: Params, session: str, timeout: float
    ) -> None:
        if rule.effect is Effect.REFUSE:
            raise WorldFault(rule.code, rule.message)
        if rule.effect is Effect.CUT:
            raise ConnectionLost
        hangs = rule.effect is Effect.HANG
        if hangs and self._sleep and rule.seconds < timeout:
            self._sleep(rule.seconds)
        elif hangs or rule.effect is Effect.LATE:
            if method in _PRIVILEGE:
                self._delay(method, params, self._account(method, session), rule.seconds)
            if hangs and self._sleep:
                self._sleep(timeout)
            raise ConnectionLost

    def _delay(self, method: str, params: Params, account: str, seconds: float) -> None:
        with self._moved:
            due = self._clock.monotonic() + seconds
            late = LateCall(due=due, method=method, params=dict(params), account=account)
            self.state.late.append(late)
            self._settle(changed=True)

    def _settle(self, *, changed: bool = False) -> None:
        """Carry out what is due; wake listeners and save the state when anything changed."""
        now = self._clock.monotonic()
        for late in sorted(self.state.late, key=lambda late: late.due) if self.state.late else ():
            if late.due > now:
                break
            self.state.late.remove(late)
            self.hypervisor.settle(late.due)
            with self.hypervisor.at(late.due), contextlib.suppress(WorldFault):
                # Nobody waits for the answer.
                self._carry_out(late.method, late.params, late.account, Fate())
        self.hypervisor.settle(now)
        if not changed and self._log.number == self._saved:
            return
        self._saved = self._log.number
        self._moved.notify_all()
        if self._save:
            self.state.saved_at = self._clock.monotonic()
            self._save(self.state)

    # Calls

    def _account(self, method: str, session: str) -> str:
        if method in _FREE:
            return ""
        if session not in self._sessions:
            raise WorldFault(Code.NOT_AUTHENTICATED, "the session is not logged in")
        return self._sessions[session]

    def _carry_out(self, method: str, params: Params, account: str, fate: Fate) -> Json:
        privilege = _PRIVILEGE.get(method)
        if privilege and any(privilege == name for name, _ in self.state.missing_privileges):
            raise WorldFault(Code.NO_PERMISSION, f"the account lacks {privilege}")
        try:
            if privilege:
                return self._job(self._start(method, params, account, fate))
            return self._read(method, params, account)
        except (KeyError, TypeError, ValueError) as error:
            raise WorldFault(Code.INVALID_ARGUMENT, f"{method}: {error}") from error

    def _start(self, method: str, params: Params, account: str, fate: Fate) -> Task:
        hypervisor = self.hypervisor
        if method == "create":
            return hypervisor.create(VmSpec.model_validate(params), account, fate)
        vm = str(params["vm"])
        match method:
            case "shutdown" | "reboot":
                timeout, force = float(params["timeout"]), bool(params["force"])
                ask = hypervisor.shutdown if method == "shutdown" else hypervisor.reboot
                return ask(vm, account, fate, timeout=timeout, force=force)
            case "reconfigure":
                hardware = Hardware.model_validate(params["hardware"])
                return hypervisor.reconfigure(vm, hardware, account, fate)
            case "take_over":
                wanted = TakeOver.model_validate(params["wanted"])
                return hypervisor.take_over(vm, wanted, account, fate)
            case "detach":
                detaching = Detaching(disks=params["disks"], keep=params.get("keep") or {})
                return hypervisor.detach(vm, detaching, account, fate)
        simple: dict[str, Callable[[str, str, Fate], Task]] = {
            "power_on": hypervisor.power_on,
            "power_off": hypervisor.power_off,
            "suspend": hypervisor.suspend,
            "reset": hypervisor.reset,
            "destroy": hypervisor.destroy,
            "remove_mark": hypervisor.remove_mark,
            "redact": hypervisor.redact,
        }
        return simple[method](vm, account, fate)

    def _read(self, method: str, params: Params, account: str) -> Json:
        if method not in self._reads:
            raise WorldFault(Code.INVALID_ARGUMENT, f"there is no call {method}")
        answer = self._reads[method](params, account)
        return answer.model_dump(mode="json") if isinstance(answer, BaseModel) else answer

    def _all_reads(self) -> dict[str, Callable[[Params, str], Json]]:
        """What carries out each call that is no job: it answers with JSON data or one record."""
        return {
            "ping": lambda _params, _account: {},
            "login": self._login,
            "logout": self._logout,
            "about": self._about,
            "domains": self._domains,
            "image": lambda params, _account: self.state.images.get(params["ref"]),
            "find": self._find,
            "creating": self._creating,
            "kept": self._kept,
            "task": self._task,
            **self._imports.calls(),
        }

    def _about(self, _params: Params, _account: str) -> Json:
        hidden = [(READ, vm.id) for vm in self.state.vms.values() if vm.hidden]
        return {
            "identity": self.state.identity,
            "version": self.state.version,
            "missing_privileges": _json(self.state.missing_privileges + hidden),
        }

    def _domains(self, _params: Params, _account: str) -> Json:
        return [
            domain.model_dump(mode="json") | {"free_memory": self.hypervisor.free_memory(domain)}
            for domain in self.state.domains
        ]

    def _creating(self, params: Params, _account: str) -> Json:
        tasks = self.hypervisor.creating(params.get("name"), params.get("domain"))
        return [self._job(task) for task in tasks]

    def _kept(self, _params: Params, _account: str) -> Json:
        """Detached disks that are kept for somebody, with the failure domains that see them."""
        return [
            disk.model_dump(mode="json")
            | {"domains": [it.id for it in self.state.domains if disk.pool in it.pools]}
            for disk in self.state.detached.values()
            if disk.kept is not None
        ]

    def _login(self, params: Params, _account: str) -> Json:
        username, password = str(params["username"]), str(params["password"])
        known = self.state.accounts.get(username)
        if not (known and hmac.compare_digest(digest(known.salt, password), known.digest)):
            raise WorldFault(Code.INVALID_LOGIN, "user name or password is wrong")
        session = f"session-{self._rng.getrandbits(64):016x}"
        self._sessions[session] = username
        return {"session": session, "identity": self.state.identity}

    def _logout(self, params: Params, _account: str) -> Json:
        self._sessions.pop(params["session"], None)
        return {}

    def _find(self, params: Params, account: str) -> Json:
        """VMs by `id`, or by those of `uuid`, `name` and `domain` that are given; or `marked`.

        With a text `marked` finds those whose mark contains it.
        """
        if "id" in params:
            return [self._seen_by(self.hypervisor.vm(params["id"]), account)]
        fields = [key for key in ("uuid", "name", "domain") if params.get(key) is not None]
        return [
            self._seen_by(vm, account)
            for vm in self.hypervisor.visible()
            if all(getattr(vm, key) == params[key] for key in fields) and _is_marked(vm, params)
        ]

    def _seen_by(self, vm: Vm, account: str) -> Json:
        task = self.hypervisor.running(vm.id)
        foreign = bool(task and task.account != account)
        own = self._job(task) if task and not foreign else None
        return vm.model_dump(mode="json") | {"task": own, "foreign_task": foreign}

    def _task(self, params: Params, _account: str) -> Json:
        task = self.state.tasks.get(params["task"])
        if task is None:
            raise WorldFault(Code.NOT_FOUND, f"there is no task {params['task']}")
        return self._job(task)

    def _job(self, task: Task) -> Json:
        left = max(0.0, task.due - self._clock.monotonic())
        return task.model_dump(mode="json") | {"left": left}

    def _changes(self, session: str, params: Params) -> Json:
        cursor = str(params.get("cursor") or "")
        deadline = self._clock.monotonic() + float(params.get("timeout") or 0.0)
        with self._moved:
            while True:
                self._settle()
                self._account("changes", session)
                answer = self._log.since(cursor)
                left = deadline - self._clock.monotonic()
                if answer["cursor"] != cursor or left <= 0 or not self._sleep:
                    return answer
                due = self.next_due()
                soon = left if due is None else min(left, due - self._clock.monotonic())
                self._moved.wait(max(soon, 0.001))

    @staticmethod
    def _subject(params: Params) -> str:
        """The VM a call is about, for fault rules: its name, its id, or nothing."""
        return str(params.get("name") or params.get("vm") or "")


def _is_marked(vm: Vm, params: Params) -> bool:
    wanted = params.get("marked")
    if not wanted:
        return True
    return vm.mark is not None and (wanted is True or str(wanted) in vm.mark)


def _fate(rule: Rule | None) -> Fate:
    if rule and rule.effect is Effect.SLOW_TASK:
        return Fate(seconds=rule.seconds)
    if rule and rule.effect is Effect.FAIL_TASK:
        return Fate(fault=Fault(code=rule.code, message=rule.message))
    return Fate()


@lru_cache(maxsize=64)
def digest(salt: str, password: str) -> str:
    """The salted digest of a password, as an account keeps it: slow to make, so remembered."""
    return hashlib.scrypt(password.encode(), salt=salt.encode(), n=2**10, r=8, p=1).hex()


def account(password: str, rng: Random) -> Account:
    """An account with that password."""
    salt = f"{rng.getrandbits(64):016x}"
    return Account(salt=salt, digest=digest(salt, password))


_SCALARS = frozenset({str, int, float, bool, type(None)})


def _json(answer: object) -> Json:
    if type(answer) in _SCALARS:
        return answer
    if isinstance(answer, BaseModel):
        return answer.model_dump(mode="json")
    if isinstance(answer, list | tuple):
        return [_json(item) for item in answer]
    if isinstance(answer, dict):
        return {key: _json(value) for key, value in answer.items()}
    return answer
