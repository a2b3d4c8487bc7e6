"""The driver of the simulated backend: one session to one simulated world."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerOffMode, PowerState
from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.api.v1alpha1.vmimage import ImageSource
from banlieue.sdk.driver import (
    About,
    DiskState,
    FailureDomain,
    Image,
    MachineRef,
    MachineState,
    MissingPrivilege,
    Task,
)
from banlieue.sdk.errors import AbsenceUnproven, Foreign, NeedsOperator, Transient
from banlieue.sdk.identity import Mark, Owner, valid_mark
from banlieue.sdk.image.ports import ImageImport, ImportTask
from banlieue.sdk.image.transfers import Transfers
from banlieue.sdk.powers import Candidate, Changes, KeptDisk
from banlieue.sdk.simulated import adopting, disks, marking
from banlieue.sdk.simulated.disks import to_keep
from banlieue.sdk.simulated.faultmap import driver_error, uniform_errors
from banlieue.sdk.simulated.faults import Code, WorldFault
from banlieue.sdk.simulated.images import WorldImages
from banlieue.sdk.simulated.session import Session
from banlieue.sdk.simulated.states import Plan, domain_state, hardware, machine_state, vm_spec
from banlieue.sdk.simulated.world import READ

Json = dict[str, Any]

_LONGEST_POLL = 5.0
_SHORTEST_POLL = 0.02
_REASONS = {"create": Reason.PROVISIONING_FAILED, "delete": Reason.DELETION_FAILED}


class SimulatedDriver:
    """A driver with the powers of a change feed, an inventory, detaching, unmarking, adopting."""

    def __init__(
        self, session: Session, capabilities: Capabilities, transfers: Transfers | None = None
    ) -> None:
        self._session = session
        self._images = WorldImages(session, transfers or Transfers())
        self._capabilities = capabilities
        self._cursor = ""

    # The place

    def about(self) -> About:
        """Who answers, its version, and which rights are missing."""
        with uniform_errors():
            answer = self._session.call("about")
        missing = tuple(MissingPrivilege(*pair) for pair in answer["missing_privileges"])
        return About(answer["identity"], answer["version"], missing)

    def failure_domains(self) -> Sequence[FailureDomain]:
        """All failure domains with the declared classes that are there."""
        with uniform_errors():
            domains = self._session.call("domains")
        return [domain_state(domain, self._capabilities) for domain in domains]

    def find_image(self, image: ImageSource, where: FailureDomain) -> Image | None:
        """The image whose name is the source's `ref`, if the failure domain has it."""
        return self._images.find(image.ref, where)

    def import_image(self, wanted: ImageImport, where: FailureDomain) -> ImportTask | None:
        """Bring an image from its URL into the failure domain."""
        return self._images.bring(wanted, where)

    def delete_image(self, name: str, where: FailureDomain) -> ImportTask | None:
        """Delete an imported image from the failure domain."""
        return self._images.delete(name, where)

    # Looking

    def observe(self, ref: MachineRef) -> MachineState | None:
        """The machine's VM, or one that has its name; None proves that there is none."""
        with uniform_errors():
            vm = self._find(ref) or self._find_for_certain(ref)
        return machine_state(vm) if vm else None

    def marked(self) -> Sequence[MachineState]:
        """Every visible VM that carries a readable mark."""
        with uniform_errors():
            states = [machine_state(vm) for vm in self._session.call("find", marked=True)]
        return [state for state in states if state.mark]

    def made_for(self, owner: Owner) -> Sequence[MachineState]:
        """Every visible VM with a valid mark of that owner."""
        with uniform_errors():
            return marking.made_for(self._session, owner)

    def creating(self) -> Sequence[str]:
        """Names of all VMs that are being made."""
        with uniform_errors():
            return [task["create"]["name"] for task in self._session.call("creating")]

    def changes(self, timeout: float) -> Changes:
        """Block until something changed, for at most `timeout` seconds."""
        with uniform_errors():
            answer = self._session.changes(self._cursor, timeout)
        self._cursor = answer["cursor"]
        return Changes(
            frozenset(answer["vms"]), frozenset(answer["tasks"]), everything=answer["everything"]
        )

    def _find(self, ref: MachineRef) -> Json | None:
        if ref.uuid is None:
            return self._find_unminted(ref)
        hits = self._session.call("find", uuid=ref.uuid)
        if not hits:
            hits = self._session.call("find", name=ref.name, domain=ref.failure_domain)
        return _only(hits, ref)

    def _find_unminted(self, ref: MachineRef) -> Json | None:
        """By name and mark over the whole world: a valid mark beats a mere name."""
        marked = [vm for vm in self._session.call("find", marked=True) if _carries(vm, ref)]
        if marked:
            return _only(marked, ref)
        return _only(self._session.call("find", name=ref.name), ref)

    def _find_for_certain(self, ref: MachineRef) -> Json | None:
        """Look again between two checks that nothing can be overlooked."""
        self._check_sight()
        if ref.seen:
            self._check_handle(ref)
        else:
            self._check_coming(ref)
        vm = self._find(ref)
        if vm is None:
            self._check_sight()
        return vm

    def _check_sight(self) -> None:
        missing = self._session.call("about")["missing_privileges"]
        if any(privilege == READ for privilege, _ in missing):
            raise AbsenceUnproven(
                "the VM was not found, but the account cannot see everything; give it the right "
                "to read all VMs"
            )

    def _check_handle(self, ref: MachineRef) -> None:
        if ref.backend_id is None:
            return
        try:
            self._session.call("find", id=ref.backend_id)
        except WorldFault as fault:
            if fault.code == Code.NOT_FOUND:
                return
            raise
        raise AbsenceUnproven(
            "the VM that was this machine is there with another identity; find out who changed it"
        )

    def _check_coming(self, ref: MachineRef) -> None:
        """Nothing of that name is being made, nor may a call to make it still arrive."""
        if ref.name in self._session.unresolved:
            raise AbsenceUnproven(
                "a call to make the VM got no answer and may still arrive; this is looked at again"
            )
        where = ref.failure_domain if ref.uuid else None
        if self._session.call("creating", name=ref.name, domain=where):
            raise AbsenceUnproven("a VM of this name is being made; this is looked at again")

    # Changing

    def create(self, plan: Plan) -> Task | None:
        """Start making the VM, whole in one call; one that is made or under way is found."""
        if plan.image is None:
            raise NeedsOperator(
                Reason.IMAGE_NOT_AVAILABLE,
                "the image is not in the failure domain; put it there or correct the VMImage",
            )
        with uniform_errors():
            try:
                wanted = disks.resolved(plan, self._kept(plan))
                return _task(self._session.create(vm_spec(wanted)))
            except WorldFault as fault:
                if fault.code != Code.DUPLICATE_NAME:
                    raise
            return self._look_again(plan)

    def _look_again(self, plan: Plan) -> Task | None:
        """Our name is taken: by this very machine, by its creation, or by somebody else."""
        where = plan.failure_domain.id
        for task in self._session.call("creating", name=plan.ref.name, domain=where):
            if task["create"]["uuid"] == plan.ref.uuid:
                return _task(task)
            raise Foreign("somebody else is making a VM of this machine's name; rename one of them")
        if self._session.call("find", uuid=plan.ref.uuid):
            return None
        if self._session.call("find", name=plan.ref.name, domain=where):
            raise Foreign(
                "a VM of this machine's name belongs to somebody else; rename one of them"
            )
        self._check_sight()
        raise Transient(Reason.PROVIDER_BUSY, "the VM's name was just released; it is tried again")

    def update(self, plan: Plan, seen: MachineState) -> Task | None:
        """Take one step: a restart if that is asked for, else power first, then hardware."""
        with uniform_errors(Reason.UPDATE_FAILED):
            vm = self._session.call("find", id=seen.backend_id)[0]
            if vm["uuid"] != plan.ref.uuid:
                raise Foreign("the VM has another identity than this machine; it is left alone")
            if (busy := _running(vm)) is not None:
                return busy
            if plan.restart:
                return self._restart(plan, vm)
            if vm["power"] != plan.power and not disks.lacks_existing(plan, vm):
                return self._switch(plan, vm)
            if plan.power_only:
                return None
            return self._reconfigure(plan, vm)

    def _reconfigure(self, plan: Plan, vm: Json) -> Task | None:
        """Take disks off, then everything else in one step; snapshots block what they hold."""
        kept = disks.to_keep(disks.removed_and_kept(plan), vm, plan.ref.owner)
        if kept and not vm["snapshots"]:
            return _task(self._session.call("detach", vm=vm["id"], disks=list(kept), keep=kept))
        known = [disk["name"] for disk in vm["disks"]] + vm["had"]
        wanted = hardware(disks.resolved(plan, self._kept(plan), known), vm)
        size = (vm["cpus"], vm["memory_mib"])
        if vm["power"] == PowerState.SUSPENDED and size != (plan.cpus, plan.memory_mib):
            raise NeedsOperator(
                Reason.RESTART_REQUIRED, "CPUs and memory of a suspended VM stay as they are"
            )
        if wanted is not None:
            return _task(self._session.call("reconfigure", vm=vm["id"], hardware=wanted))
        disks.check_blocked(plan, vm)
        return None

    def _kept(self, plan: Plan) -> list[Json]:
        """The kept disks of the world, asked for when the plan names any."""
        if not any(disk.existing for disk in plan.disks):
            return []
        found: list[Json] = self._session.call("kept")
        return found

    def _switch(self, plan: Plan, vm: Json) -> Task:
        asleep, hard = vm["power"] == PowerState.SUSPENDED, plan.power_off_mode == PowerOffMode.HARD
        if plan.power == PowerState.POWERED_ON or (asleep and not hard):
            return _task(self._session.call("power_on", vm=vm["id"]))
        if plan.power == PowerState.SUSPENDED:
            method = "suspend" if vm["power"] == PowerState.POWERED_ON else "power_on"
            return _task(self._session.call(method, vm=vm["id"]))
        if plan.power_off_mode == PowerOffMode.HARD:
            return _task(self._session.call("power_off", vm=vm["id"]))
        return self._ask("shutdown", plan, vm)

    def _restart(self, plan: Plan, vm: Json) -> Task:
        if plan.power_off_mode == PowerOffMode.HARD:
            return _task(self._session.call("reset", vm=vm["id"]))
        return self._ask("reboot", plan, vm)

    def _ask(self, method: str, plan: Plan, vm: Json) -> Task:
        """Ask the guest; TrySoft has the world force it in the end."""
        force = plan.power_off_mode == PowerOffMode.TRY_SOFT
        timeout = plan.power_off_timeout
        task = _task(self._session.call(method, vm=vm["id"], timeout=timeout, force=force))
        return replace(task, seconds_left=timeout)

    def delete(self, ref: MachineRef) -> Task | None:
        """Take one step: power off, then destroy."""
        with uniform_errors(Reason.DELETION_FAILED):
            vm = self._own(ref)
            if vm is None:
                return None
            if (busy := _running(vm)) is not None:
                return busy
            method = "destroy" if vm["power"] == PowerState.POWERED_OFF else "power_off"
            return _task(self._session.call(method, vm=vm["id"]))

    def detach_disks(self, ref: MachineRef, disks: Sequence[DiskState]) -> Task | None:
        """Detach disks without deleting them."""
        with uniform_errors(Reason.UPDATE_FAILED):
            vm = self._own(ref)
            if vm is None:
                return None
            wanted = {disk.id for disk in disks}
            attached = [disk["id"] for disk in vm["disks"] if disk["id"] in wanted]
            if not attached:
                return None
            if (busy := _running(vm)) is not None:
                return busy
            return _task(self._session.call("detach", vm=vm["id"], disks=attached))

    def keep_disks(self, ref: MachineRef, disks: Mapping[str, str]) -> Task | None:
        """Detach disks and have them say what they are kept as, in one step."""
        with uniform_errors(Reason.UPDATE_FAILED):
            vm = self._own(ref)
            kept = to_keep(disks, vm, ref.owner) if vm else None
            if vm is None or not kept:
                return None
            if (busy := _running(vm)) is not None:
                return busy
            return _task(self._session.call("detach", vm=vm["id"], disks=list(kept), keep=kept))

    def kept_disk(self, owner: Owner, disk: str) -> KeptDisk | None:
        """The kept disk of that id, if it is one of the owner's own namespace."""
        with uniform_errors():
            found = self._session.call("kept")
        mine = (it for it in found if (it["kept"], it["keeper"]) == (disk, disks.keeper(owner)))
        return next(map(disks.kept_disk, mine), None)

    def kept_disks(self, installation_id: str) -> Sequence[KeptDisk]:
        """All kept disks of an installation."""
        with uniform_errors():
            found = self._session.call("kept")
        return [
            disks.kept_disk(disk)
            for disk in found
            if str(disk["keeper"]).startswith(f"{installation_id}/")
        ]

    def remove_mark(self, ref: MachineRef) -> Task | None:
        """Take the mark off the VM."""
        with uniform_errors(Reason.UPDATE_FAILED):
            vm = self._own(ref)
            if vm is None or vm["mark"] is None:
                return None
            if (busy := _running(vm)) is not None:
                return busy
            return _task(self._session.call("remove_mark", vm=vm["id"]))

    # Adopting

    def find(self, id_: str) -> Candidate | None:
        """The VM of that UUID, marked or not."""
        with uniform_errors():
            return adopting.find(self._session, id_)

    def candidates(self) -> Sequence[Candidate]:
        """Every visible VM."""
        with uniform_errors():
            return adopting.candidates(self._session)

    def take_over(self, ref: MachineRef, mark: Mark) -> Task | None:
        """Mark the VM and name its devices, unless somebody else was faster."""
        with uniform_errors(Reason.UPDATE_FAILED):
            vm = self._own(ref)
            if vm is None:
                raise Transient(Reason.PROVIDER_BUSY, "the VM is gone; it is looked for again")
            if (busy := _running(vm)) is not None:
                return busy
            started = adopting.take_over(self._session, vm, ref, mark)
            return _task(started) if started else None

    def write_mark(self, ref: MachineRef, mark: Mark) -> Task | None:
        """Write another mark on the VM."""
        with uniform_errors(Reason.UPDATE_FAILED):
            vm = self._own(ref)
            if vm is None:
                raise Transient(Reason.PROVIDER_BUSY, "the VM is gone; it is looked for again")
            if (busy := _running(vm)) is not None:
                return busy
            task = marking.rewrite(self._session, vm, mark)
            return _task(task) if task else None

    def redact_seed(self, ref: MachineRef) -> Task | None:
        """Clear the user data of the VM; the next look proves that it is gone."""
        with uniform_errors(Reason.UPDATE_FAILED):
            vm = self._own(ref)
            if vm is None:
                return None
            marking.check_owner(vm, ref)
            if (busy := _running(vm)) is not None:
                return busy
            if vm["seed_digest"] is None:
                return None
            return _task(self._session.call("redact", vm=vm["id"]))

    def _own(self, ref: MachineRef) -> Json | None:
        """The VM of the machine's UUID, never one of its name only; None proves there is none."""
        if ref.uuid is None:
            return None
        vm = self._find(ref) or self._find_for_certain(ref)
        if vm is not None and vm["uuid"] != ref.uuid:
            self._check_sight()
            return None
        return vm

    def poll(self, task: Task) -> Task | None:
        """The task while it runs; raises what it failed with."""
        with uniform_errors():
            try:
                found = self._session.call("task", task=task.handle)
            except WorldFault as fault:
                if fault.code == Code.NOT_FOUND:
                    return None
                raise
        if failed := found["fault"]:
            otherwise = _REASONS.get(found["operation"], Reason.UPDATE_FAILED)
            raise driver_error(failed["code"], failed["message"], otherwise=otherwise)
        return _task(found) if found["state"] == "running" else None


def _task(task: Json) -> Task:
    pause = min(_LONGEST_POLL, max(_SHORTEST_POLL, task["left"]))
    return Task(handle=task["id"], operation=task["operation"], poll_after=pause)


def _running(vm: Json) -> Task | None:
    """Our own unfinished task on the VM; raises when the task is somebody else's."""
    if vm["foreign_task"]:
        raise driver_error(Code.BUSY, f"a foreign task runs on {vm['id']}")
    return _task(vm["task"]) if vm["task"] else None


def _carries(vm: Json, ref: MachineRef) -> bool:
    mark = Mark.decode(vm["mark"])
    return (
        mark is not None
        and valid_mark(mark, vm["uuid"])
        and (mark.owner, mark.epoch) == (ref.owner, ref.epoch)
    )


def _only(hits: list[Json], ref: MachineRef) -> Json | None:
    if len(hits) > 1:
        raise Foreign(
            f"{len(hits)} VMs could be this machine ({ref.name}); none is touched, remove the "
            "wrong ones"
        )
    return hits[0] if hits else None
