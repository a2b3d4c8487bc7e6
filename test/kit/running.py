"""banlieue at work on one backend, and what tests of identity do to it again and again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from banlieue.sdk.driver import Driver, MachineRef, MachineState, Task
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Owner, backend_name
from banlieue.sdk.powers import MarkRemover
from banlieue.sdk.testing.conformance_target import RawVm
from test.kit.installed import READY_SECONDS, Registered
from test.kit.kube import Kube, KubeError
from test.kit.stack import Object, Role, condition, is_ready
from test.kit.waiting import wait_until

VMS: Final = "virtualmachines"
_GONE: Final = 404
_POKE: Final = "test.banlieue.io/looked-at"


@dataclass
class Running:
    """An installation whose controller and provider run as processes."""

    registered: Registered
    controller: Role
    provider: Role

    @classmethod
    def start(cls, registered: Registered, *arguments: str) -> "Running":
        """Start both roles, the controller with these arguments; wait until Provider is Ready."""
        stack = registered.stack
        running = cls(
            registered, stack.controller(*arguments), stack.provider(registered.target.backend.name)
        )
        running.resume()
        registered.provider_ready()
        return running

    @property
    def kube(self) -> Kube:
        """A client with all rights."""
        return self.registered.kube

    @property
    def namespace(self) -> str:
        """The tenant's namespace."""
        return self.registered.namespace

    def stop(self) -> None:
        """End both roles at once; nobody acts until `resume`."""
        self.controller.kill9()
        self.provider.kill9()

    def resume(self) -> None:
        """Start both roles again."""
        roles = (self.controller, self.provider)
        for role in roles:
            role.start(ready=False)
        for role in roles:
            wait_until(role.ready, READY_SECONDS, f"{role.name} to be ready")

    def made(self, name: str, **spec: object) -> "Known":
        """A VirtualMachine that is Ready, as it was then."""
        self.registered.create(name, **spec)
        return self._as_it_is(name)

    def made_together(self, names: Iterable[str]) -> "dict[str, Known]":
        """Several VirtualMachines that are Ready, by name."""
        wanted = tuple(names)
        for name in wanted:
            self.registered.create(name)
        return {name: self._as_it_is(name) for name in wanted}

    def _as_it_is(self, name: str) -> "Known":
        vm = self.registered.ready(name)
        (raw,) = self.registered.vms_of(name)
        return Known(name, vm, self.registered.machine(name), raw)

    def same(self, known: "Known") -> Object:
        """Wait until the VirtualMachine is Ready again; it is the same one VM, untouched.

        Returns:
            The machine object that stands for it now.
        """
        machine = wait_until(
            lambda: self._bound(known.name), READY_SECONDS, f"{known.name} to be taken up again"
        )
        vm = self.registered.ready(known.name)
        (raw,) = self.registered.vms_of(known.name)
        assert raw == known.raw
        assert machine["spec"]["instance"]["uuid"] == known.uuid
        assert vm["status"]["providerID"] == known.vm["status"]["providerID"]
        return machine

    def _bound(self, name: str) -> Object | None:
        """The machine object, once both it and its VirtualMachine are Ready and know each other."""
        vm = self.registered.find(name)
        machine = self.kube.find(self.registered.plural, name, self.namespace)
        if vm is None or machine is None or machine["metadata"].get("deletionTimestamp"):
            return None
        owners = [it["uid"] for it in machine["metadata"].get("ownerReferences") or ()]
        known = owners == [vm["metadata"]["uid"]] and "providerID" in machine["spec"]
        ready = is_ready(vm) and is_ready(machine)
        return machine if known and ready else None

    def poke(self, name: str) -> None:
        """Have the provider and the controller look at a machine now, twice over."""
        for _ in range(2):
            before = self.passes(self.provider, "machine")
            there = self._annotate(self.registered.plural, name)
            self._annotate(VMS, name)
            if there:
                self._await_pass(self.provider, "machine", before)

    def looked_at(self, name: str) -> None:
        """Have the controller look at a VirtualMachine now, twice over."""
        for _ in range(2):
            before = self.passes(self.controller, "virtualmachine")
            self._annotate(VMS, name)
            self._await_pass(self.controller, "virtualmachine", before)

    def _await_pass(self, role: Role, controller: str, before: float) -> None:
        wait_until(
            lambda: self.passes(role, controller) > before,
            READY_SECONDS,
            f"{role.name} to end a pass",
        )

    def _annotate(self, kind: str, name: str) -> bool:
        """Change an object without a meaning; whether there was one still."""
        obj = self.kube.find(kind, name, self.namespace)
        if obj is None:
            return False
        patch = {"metadata": {"annotations": {_POKE: obj["metadata"]["resourceVersion"]}}}
        try:
            self.kube.patch(kind, name, patch, self.namespace)
        except KubeError as error:
            if error.status != _GONE:
                raise
            return False
        return True

    @staticmethod
    def passes(role: Role, controller: str) -> float:
        """How many passes a controller of a role has ended in its present process."""
        total = 0.0
        for line in role.probe("metrics")[1].splitlines():
            name, _, value = line.rpartition(" ")
            if name.startswith("controller_runtime_reconcile_total{") and (
                f'controller="{controller}"' in name
            ):
                total += float(value)
        return total

    def wait_condition(
        self, name: str, kind: str, reason: str, *, status: str = "", timeout: float = READY_SECONDS
    ) -> Object:
        """Wait until a condition of a VirtualMachine has this reason (and status, if given)."""

        def holds(obj: Mapping[str, Any]) -> bool:
            now, why = condition(obj, kind)
            return why == reason and status in {"", now}

        return self.registered.wait(name, holds, timeout, f"{kind} {status} {reason}")

    def installation(self) -> str:
        """The id of the installation, once the controller has made it."""
        found = self.kube.wait_for(
            "configmaps",
            "banlieue-installation",
            self.registered.stack.namespace,
            until=lambda obj: obj.get("data", {}).get("id"),
        )
        identity: str = found["data"]["id"]
        return identity

    def ref(self, name: str) -> MachineRef:
        """What the backend knows a VirtualMachine's VM by, made or not."""
        owner = Owner(self.installation(), OWNER_VIRTUAL_MACHINE, self.namespace, name)
        return MachineRef(owner, 0, backend_name(owner, 0))

    def observed(self, known: "Known") -> MachineState | None:
        """The VM of a VirtualMachine as a driver of ours sees it, by its UUID."""
        ref = self._seen(known)
        target = self.registered.target
        with target.backend.connect(target.connection()) as driver:
            return driver.observe(ref)

    def _seen(self, known: "Known") -> MachineRef:
        return replace(self.ref(known.name), uuid=known.uuid, seen=True)

    def unmark(self, known: "Known") -> None:
        """Take our mark off a VM, as an admin may."""
        ref = self._seen(known)
        target = self.registered.target
        with target.backend.connect(target.connection()) as driver:
            if not isinstance(driver, MarkRemover):
                raise TypeError(f"backend {target.backend.name} cannot take marks off")
            while (task := driver.remove_mark(ref)) is not None:
                wait_until(partial(_ended, driver, task), READY_SECONDS, "the mark to go")

    def make_foreign(self, vm_name: str) -> str:
        """Let an admin make a VM of that name; its id."""
        target = self.registered.target
        with target.backend.connect(target.connection()) as driver:
            where = target.failure_domain(driver)
        return target.make_foreign(vm_name, where)

    def raw(self, vm_id: str) -> RawVm | None:
        """A VM as an admin sees it."""
        return next((vm for vm in self.registered.target.vms() if vm.id == vm_id), None)


def _ended(driver: Driver[Any], task: Task) -> bool:
    return driver.poll(task) is None


@dataclass(frozen=True, slots=True)
class Known:
    """A VirtualMachine, its machine object and its VM at one moment."""

    name: str
    vm: Object
    machine: Object
    raw: RawVm

    @property
    def uuid(self) -> str:
        """The VM's UUID, as the machine object has it."""
        uuid: str = self.machine["spec"]["instance"]["uuid"]
        return uuid
