"""The end of a schedule: faults stop, and everything comes to rest as its user wants it."""

from typing import Any

from banlieue.api import names
from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.identity import Mark, Owner, backend_name
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.faults import WorldFault
from test.simulation import adoptions, data, platform
from test.simulation.actions import POLICIES, Actor
from test.simulation.backend import SimWorld
from test.simulation.cluster import CONTROLLER
from test.simulation.oracle import Made
from test.simulation.platform import NAMESPACE

_RELEASE = names.ANNOTATION_RELEASE_PREVIOUS

BOUND = 5400.0
"""Seconds of virtual time after which everything must be at rest: four sweeps and more."""


class Ending(Actor):
    """Heals what can be healed, and says what is still not as it should be."""

    def heal(self) -> None:
        """Faults stop; what admins broke they put right again."""
        cluster = self.cluster
        cluster.log("faults stop")
        cluster.drop_plans()
        cluster.network.weather.clear()
        cluster.network.deadly = ""
        cluster.leases.split = False
        for world in cluster.worlds.values():
            self._heal_world(world)
        self._register()
        adoptions.Settlement(cluster, self.oracle, self.rng).accept_all()
        data.Settlement(cluster, self.oracle, self.rng).settle()
        for name in cluster.names:
            self.edit_provider(name, paused=False, mode="ReadWrite", cordoned=False)
            self._accept_identities(name)
        for obj in cluster.virtual_machines():
            spec = obj["spec"]
            if spec.get("paused") or spec.get("deletionProtection"):
                self.edit(obj["metadata"]["name"], paused=None, deletionProtection=None)
        self._heal_processes()

    def tidy_up(self) -> None:
        """Before the next schedule: what was left to users is gone, a recovery is through."""
        for (name, vm_id), made in list(self.oracle.made.items()):
            if made.left or made.unmarked:
                world = self.cluster.worlds[name]
                self.oracle.note_removed(world, vm_id)
                world.act("remove", vm=vm_id)
        self.cluster.end_recovery()
        self.oracle.begin_anew()

    def _accept_identities(self, name: str) -> None:
        """Machines that took up their VMs while the backend told another identity go on."""
        told = set()
        for machine in self.cluster.machines():
            instance = machine["spec"].get("instance")
            if instance and machine["spec"]["providerRef"]["name"] == name:
                told.add(str(instance["backendIdentity"]))
        provider = self.cluster.api.look_at(PROVIDERS, platform.provider_key(name)) or {}
        # So does a Provider that had nothing on its backend when another one answered there.
        told.add(str((provider.get("status") or {}).get("backendIdentity", f"backend-{name}")))
        if told - {f"backend-{name}"}:
            accepted = sorted(told | {f"backend-{name}"})
            known = provider.get("spec", {}).get("connection", {})
            if known and known.get("acceptedIdentities") != accepted:
                connection = {**known, "acceptedIdentities": accepted}
                self.edit_provider(name, connection=connection)

    def _register(self) -> None:
        """Providers that are gone are registered again."""
        for name in self.cluster.names:
            if self.cluster.api.look_at(PROVIDERS, platform.provider_key(name)) is None:
                self.cluster.log(f"admin registers Provider {name}")
                self.cluster.add_provider(name)

    def _release(self) -> None:
        """Users need nothing any more that a move left behind."""
        for obj in self.cluster.virtual_machines():
            given = obj["metadata"].get("annotations") or {}
            if (obj.get("status") or {}).get("previous") and _RELEASE not in given:
                self.cluster.log(f"user releases what is left of {obj['metadata']['name']}")
                self.cluster.api.edit(VIRTUAL_MACHINES, Key.of(obj), _give_word)

    def _heal_processes(self) -> None:
        cluster = self.cluster
        for process in cluster.processes:
            process.pools.hanging = 0.0
            process.doom = -1
            if not process.dead:
                process.source.resume()
        for role in (CONTROLLER, *cluster.names):
            living = cluster.alive(role)
            for process in living[1:]:
                cluster.kill(process)
            if not living:
                cluster.start(role)

    def _heal_world(self, world: SimWorld) -> None:
        world.down = False
        world.deadly = ""
        world.repeat = None
        world.act("heal")
        world.act("allow")
        own = f"backend-{world.name}"
        if world.state.identity != own:
            world.act("set_identity", identity=own)
        for domain in world.state.domains:
            for host in domain.hosts:
                world.act("set_host", host=host.name, maintenance=False)
        for vm_id in [vm for name, vm in list(self.oracle.strangers.vms) if name == world.name]:
            if self._is_wanted(world, vm_id):
                continue
            self.oracle.note_removed(world, vm_id)
            if vm_id in world.state.vms:
                world.act("remove", vm=vm_id)
        for (name, vm_id), made in self.oracle.made.items():
            if name == world.name:
                self._heal_vm(world, vm_id, made)

    def _is_wanted(self, world: SimWorld, vm_id: str) -> bool:
        """Whether somebody adopts that VM; of copies only the one that was there first."""
        vm = world.state.vms.get(vm_id)
        wanted = {(it["spec"].get("adopt") or {}).get("id") for it in self._living()}
        if vm is None or vm.uuid not in wanted:
            return False
        same = [it for it in world.state.vms.values() if it.uuid == vm.uuid]
        return vm is same[0]

    def _living(self) -> list[Obj]:
        every = self.cluster.virtual_machines()
        return [it for it in every if not it["metadata"].get("deletionTimestamp")]

    def _heal_vm(self, world: SimWorld, vm_id: str, made: Made) -> None:
        vm = world.state.vms[vm_id]
        if vm.hidden:
            world.act("unhide", vm=vm_id)
        if vm.held:
            world.act("hold", vm=vm_id, held=False)
        if vm.mark != made.mark and not made.unmarked:
            world.act("set_mark", vm=vm_id, mark=made.mark)
        if vm.name != made.name:
            try:
                world.act("rename", vm=vm_id, name=made.name)
            except WorldFault as fault:
                self.cluster.log(f"   {fault}")

    async def come_to_rest(self) -> list[str]:
        """Wait until nothing is wrong; answers what still is after `BOUND`."""
        end = self.cluster.loop.time() + BOUND
        pause = 0.5
        while (wrong := self.wrong()) and self.cluster.loop.time() < end:
            self._register()
            self._release()
            for name in self.cluster.names:
                self._accept_identities(name)
            await self.cluster.rest(pause)
            pause = min(5.0, pause * 1.3)
        return wrong

    def delete_all(self) -> None:
        """Users delete everything."""
        for obj in self.cluster.virtual_machines():
            name = obj["metadata"]["name"]
            # What is told to users then: delete it with Orphan.
            stuck = self._name_kept(name) or self._is_outdated(name) or self._has_heirloom(obj)
            policy = "Orphan" if stuck else self.rng.choice(POLICIES)
            self.edit(name, deletionPolicy=policy)
            self.cluster.log(f"user deletes {name}")
            self.cluster.api.drop(VIRTUAL_MACHINES, Key(NAMESPACE, name))

    def wrong(self) -> list[str]:
        """What is not as its user wants it."""
        found = []
        for obj in self.cluster.virtual_machines():
            name = obj["metadata"]["name"]
            if obj["metadata"].get("deletionTimestamp"):
                found.append(f"{name} is not gone")
            else:
                found += self._wrong_with(name, obj)
        names = {obj["metadata"]["name"] for obj in self.cluster.virtual_machines()}
        for machine in self.cluster.machines():
            made_by = machine["spec"].get("virtualMachineRef", {}).get("name")
            if made_by not in names:
                found.append(f"machine {Key.of(machine)} has no VirtualMachine")
        found += [f"{what} was to be destroyed and is still there" for what in self._leaks()]
        return found + self._untold()

    def _untold(self) -> list[str]:
        """Providers that an admin waits for before a recovery ends."""
        providers = self.cluster.api.look(PROVIDERS) if self.cluster.recovers else ()
        told = {
            it["metadata"]["name"]: (it.get("status") or {}).get("unclaimed") or {}
            for it in providers
        }
        return [
            f"Provider {name} has not told what it holds"
            for name, what in told.items()
            if not (what.get("complete") and what.get("recovery"))
        ]

    def _leaks(self) -> list[str]:
        return list(self.oracle.leaked.values())

    def _wrong_with(self, name: str, obj: Obj) -> list[str]:
        ready = _condition(obj, "Ready")
        if ready.get("observedGeneration") != obj["metadata"]["generation"]:
            return [f"{name}: the latest spec was not looked at"]
        if (obj.get("status") or {}).get("incomingRef"):
            return [f"{name} is still being moved"]
        vms = self._vms_of(name)
        status, reason = ready.get("status"), ready.get("reason")
        if status == "True":
            return self._wrong_with_vm(name, obj, vms)
        if reason == "VMMissing" and not vms and "adopt" not in obj["spec"]:
            return [] if self.oracle.may_miss(name) else [f"{name} misses a VM nobody removed"]
        conflict = reason == "OwnershipConflict"
        named = conflict and (self._name_kept(name) or self._is_outdated(name))
        if named or self._nowhere_to_go(obj) or self._cannot_adopt(obj, vms, str(reason)):
            return []
        return [f"{name} is not Ready: {reason} {ready.get('message')}"]

    def _vms_of(self, name: str) -> list[Made]:
        """What there is of it, but for what a move left behind and no object tells of any more."""
        made = [it for it in self.oracle.made.values() if it.owner == name and not it.left]
        if not self.oracle.put_back:
            return made
        named = {(it["spec"].get("instance") or {}).get("uuid") for it in self.cluster.machines()}
        return [it for it in made if it.uuid in named] or made

    def _is_outdated(self, name: str) -> bool:
        """Whether a backup brought back an owner whose VM is gone and was made anew elsewhere."""
        made = {it.uuid for it in self.oracle.made.values() if it.owner == name}
        named = {
            (it["spec"].get("instance") or {}).get("uuid")
            for it in self.cluster.machines()
            if it["spec"].get("virtualMachineRef", {}).get("name") == name
        }
        if not (self.oracle.restored or name in self.oracle.outdated):
            return False
        if made and named and not named & made:
            self.oracle.outdated.add(name)
            return True
        return False

    def _name_kept(self, name: str) -> bool:
        """Whether a VM that was left to its user, or adopted since, has the name on a backend."""
        owner = Owner(self.cluster.installation(), "VirtualMachine", NAMESPACE, name)
        made, wanted = self.oracle.made.values(), backend_name(owner, 0)
        return any(it.left or it.unmarked if it.owner == name else it.name == wanted for it in made)

    def _cannot_adopt(self, obj: Obj, vms: list[Made], reason: str) -> bool:
        """Whether it waits for a VM that is not there, or that another one has, which is right."""
        adopt = obj["spec"].get("adopt")
        if not adopt or any(self._uuid(it) == adopt["id"] for it in vms):
            return False
        # What else it has is of an earlier owner of its name, who was lost.
        found = self.find(adopt["id"])
        if found is None:
            return reason in {"AdoptionNotFound", "VMMissing"}
        mark = Mark.decode(found[1].mark)
        taken = mark is not None and mark.owner.name != obj["metadata"]["name"]
        if reason == "AdoptionNotFound":
            # Looked for where its pin or what an earlier owner left there bound it to.
            at = ((obj.get("status") or {}).get("scheduled") or {}).get("providerName")
            return found[0].name != at and (taken or any(it.world == at for it in vms))
        return reason == "OwnershipConflict" and (taken or bool(vms) or self._has_rival(obj))

    def _has_heirloom(self, obj: Obj) -> bool:
        """Whether it is to adopt a VM, and a lost owner of its name had another one."""
        adopt, name = obj["spec"].get("adopt"), obj["metadata"]["name"]
        return bool(adopt) and any(self._uuid(it) != adopt["id"] for it in self._vms_of(name))

    def _has_rival(self, obj: Obj) -> bool:
        """Whether another object took up the VM that this one names, or is at it."""
        wanted, name = obj["spec"]["adopt"]["id"], obj["metadata"]["name"]
        return any(
            (it["spec"].get("instance") or {}).get("uuid") == wanted
            and it["spec"].get("virtualMachineRef", {}).get("name") != name
            for it in self.cluster.machines()
        )

    def _uuid(self, made: Made) -> str:
        return self.cluster.worlds[made.world].state.vms[made.vm_id].uuid

    def _nowhere_to_go(self, obj: Obj) -> bool:
        """Whether it waits for a Provider that is being deleted, which is right."""
        leaving = any(
            provider["metadata"].get("deletionTimestamp")
            for provider in self.cluster.api.look(PROVIDERS)
        )
        provisioned = ((obj.get("status") or {}).get("initialization") or {}).get("provisioned")
        anew = obj["spec"].get("onMissing") == "Recreate"  # its VM is gone, and it gets no new one
        told = _condition(obj, "Ready").get("reason") == "ProviderDeleting"
        return leaving and (not provisioned or (anew and told))

    def _wrong_with_vm(self, name: str, obj: Obj, vms: list[Made]) -> list[str]:
        if len(vms) != 1:
            return [f"{name} is Ready and has {len(vms)} VMs"]
        vm = self.cluster.worlds[vms[0].world].state.vms[vms[0].vm_id]
        adopted = "adopt" in obj["spec"]
        wanted = obj["spec"].get("desiredPowerState", vm.power if adopted else "PoweredOn")
        if vm.power != wanted:
            return [f"{name} is {vm.power} and should be {wanted}"]
        machines = [
            it
            for it in self.cluster.machines()
            if it["spec"].get("virtualMachineRef", {}).get("name") == name
        ]
        if len(machines) != 1:
            return [f"{name} has {len(machines)} machine objects"]
        if not (obj["status"].get("initialization") or {}).get("provisioned"):
            return [f"{name} is Ready and was not provisioned"]
        if _condition(obj, "Reconciling") or _condition(obj, "Stalled"):
            return [f"{name} is Ready and still working"]
        return []


def _give_word(obj: Obj) -> None:
    obj["metadata"].setdefault("annotations", {})[_RELEASE] = "true"


def _condition(obj: Obj, kind: str) -> dict[str, Any]:
    for item in (obj.get("status") or {}).get("conditions") or ():
        if item["type"] == kind:
            return dict(item)
    return {}
