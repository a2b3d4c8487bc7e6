"""What users, admins and accidents do in a schedule. Each action is a method that takes no time."""

from collections.abc import Callable
from random import Random

from banlieue.api import names
from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.records import Vm
from test.simulation.backend import SimWorld
from test.simulation.cluster import CONTROLLER, Cluster
from test.simulation.kinds import BY_NAME
from test.simulation.oracle import Oracle
from test.simulation.platform import (
    NAMESPACE,
    fixed_interface,
    provider_key,
    virtual_machine,
)

NAMES = ("db-1", "db-2", "web-1")
POLICIES = ("Delete", "Delete", "Orphan")
POWERS = ("PoweredOn", "PoweredOff", "Suspended")


class Actor:
    """Somebody who does things in a cluster."""

    def __init__(self, cluster: Cluster, oracle: Oracle, rng: Random) -> None:
        self.cluster = cluster
        self.oracle = oracle
        self.rng = rng

    def world(self) -> SimWorld:
        """Any backend."""
        return self.cluster.worlds[self.rng.choice(self.cluster.names)]

    def any_vm(self) -> tuple[SimWorld, Vm] | None:
        """Any VM that a driver made."""
        made = list(self.oracle.made)
        if not made:
            return None
        name, vm_id = self.rng.choice(made)
        world = self.cluster.worlds[name]
        return world, world.state.vms[vm_id]

    def find(self, uuid: str) -> tuple[SimWorld, Vm] | None:
        """The VM of that UUID, on whatever backend it is."""
        for world in self.cluster.worlds.values():
            for vm in world.state.vms.values():
                if vm.uuid == uuid:
                    return world, vm
        return None

    def any_name(self) -> str | None:
        """The name of any VirtualMachine."""
        there = [obj["metadata"]["name"] for obj in self.cluster.virtual_machines()]
        return self.rng.choice(there) if there else None

    def edit(self, name: str, **spec: object) -> None:
        """Edit a VirtualMachine's spec; None takes a field away."""
        self.cluster.log(f"user edits {name}: {spec}")

        def change(obj: Obj) -> None:
            for field, value in spec.items():
                if value is None:
                    obj["spec"].pop(field, None)
                else:
                    obj["spec"][field] = value

        self.cluster.api.edit(VIRTUAL_MACHINES, Key(NAMESPACE, name), change)

    def edit_provider(self, name: str, **spec: object) -> None:
        """Edit a Provider's spec."""
        if self.cluster.api.look_at(PROVIDERS, provider_key(name)) is None:
            return
        self.cluster.log(f"admin edits Provider {name}: {spec}")
        self.cluster.api.edit(PROVIDERS, provider_key(name), lambda obj: obj["spec"].update(spec))


class User(Actor):
    """What users and admins do on the API."""

    def create(self) -> None:
        """Create a VirtualMachine."""
        free = [name for name in NAMES if self.cluster.virtual_machine(name) is None]
        if not free:
            return
        name, rng = self.rng.choice(free), self.rng
        spec: dict[str, object] = {
            "desiredPowerState": rng.choice(("PoweredOn", "PoweredOn", *POWERS[1:]))
        }
        if rng.random() < 0.15:
            spec["onMissing"] = "Recreate"
        if rng.random() < 0.4:
            spec["deletionPolicy"] = rng.choice(POLICIES)
        if rng.random() < 0.2:
            spec["providerRef"] = {"name": rng.choice(self.cluster.names), "namespace": SYSTEM}
        if rng.random() < 0.4:
            spec["networkInterfaces"] = [fixed_interface(NAMES.index(name))]
        self.cluster.log(f"user creates {name}: {spec}")
        self.cluster.api.put(VIRTUAL_MACHINES, virtual_machine(name, **spec))

    def delete(self) -> None:
        """Delete a VirtualMachine."""
        if (name := self.any_name()) is not None:
            self.cluster.log(f"user deletes {name}")
            self.cluster.api.drop(VIRTUAL_MACHINES, Key(NAMESPACE, name))

    def edit_power(self) -> None:
        """Switch a VM."""
        if (name := self.any_name()) is not None:
            self.edit(name, desiredPowerState=self.rng.choice(POWERS))

    def edit_policy(self) -> None:
        """Change what a deletion does."""
        if (name := self.any_name()) is not None:
            self.edit(name, deletionPolicy=self.rng.choice(POLICIES))

    def edit_missing(self) -> None:
        """Have a VM made anew when it is gone, or no longer."""
        if (name := self.any_name()) is not None:
            self.edit(name, onMissing=self.rng.choice(("Recreate", "Recreate", "Report")))

    def pause(self) -> None:
        """Pause a VirtualMachine, or let it go on."""
        if (name := self.any_name()) is not None:
            self.edit(name, paused=self.rng.random() < 0.5 or None)

    def protect(self) -> None:
        """Protect a VirtualMachine, or no longer."""
        if (name := self.any_name()) is not None:
            self.edit(name, deletionProtection=self.rng.random() < 0.3 or None)

    def resize(self) -> None:
        """Give a VM another class."""
        if (name := self.any_name()) is not None:
            self.edit(name, classRef={"name": self.rng.choice(("small", "large"))})

    def pin(self) -> None:
        """Edit the pin, which asks for a move."""
        if (name := self.any_name()) is not None:
            pin = {"name": self.rng.choice(self.cluster.names), "namespace": SYSTEM}
            self.edit(name, providerRef=self.rng.choice((None, pin, pin, pin)))

    def release_previous(self) -> None:
        """Let go of what a move left behind."""
        self._say(names.ANNOTATION_RELEASE_PREVIOUS)

    def accept_loss(self) -> None:
        """Accept that a move leaves data behind."""
        self._say(names.ANNOTATION_ACCEPT_DATA_LOSS)

    def move_back(self) -> None:
        """Pin a VM to where a move left the machine before it."""
        for obj in self.cluster.virtual_machines():
            previous = (obj.get("status") or {}).get("previous") or {}
            before = self.cluster.machine_of(previous.get("infrastructureRef") or {})
            if before is not None:
                self.edit(obj["metadata"]["name"], providerRef=before["spec"]["providerRef"])
                return

    def _say(self, annotation: str) -> None:
        if (name := self.any_name()) is not None:
            self.cluster.log(f"user annotates {name}: {annotation}")

            def annotate(obj: Obj) -> None:
                obj["metadata"].setdefault("annotations", {})[annotation] = "true"

            self.cluster.api.edit(VIRTUAL_MACHINES, Key(NAMESPACE, name), annotate)

    def cordon(self) -> None:
        """Keep new VMs off a Provider, or no longer."""
        self.edit_provider(self.world().name, cordoned=self.rng.random() < 0.5)

    def pause_provider(self) -> None:
        """Pause a Provider, or let it go on."""
        self.edit_provider(self.world().name, paused=self.rng.random() < 0.5)

    def read_only(self) -> None:
        """Let a Provider only look, or work again."""
        self.edit_provider(
            self.world().name, mode="ReadOnly" if self.rng.random() < 0.5 else "ReadWrite"
        )

    def delete_machine(self) -> None:
        """Delete a machine object, as kubectl does."""
        machines = self.cluster.machines()
        if machines:
            chosen = self.rng.choice(machines)
            self.cluster.log(f"user deletes machine {Key.of(chosen)}")
            self.cluster.api.drop(BY_NAME[chosen["kind"]], Key.of(chosen))

    def delete_provider(self) -> None:
        """Delete a Provider that may be in use.

        Not while a rebuilt cluster recovers: nobody could tell of the VMs on it any more.
        """
        name = self.world().name
        if self.cluster.recovers:
            return
        if self.cluster.api.look_at(PROVIDERS, provider_key(name)) is not None:
            self.cluster.log(f"admin deletes Provider {name}")
            self.cluster.api.drop(PROVIDERS, provider_key(name))


class Accidents(Actor):
    """What befalls processes and their ways to the API server."""

    def crash(self) -> None:
        """Let a process die at some await that is to come."""
        living = [process for process in self.cluster.processes if not process.dead]
        if living:
            victim = self.rng.choice(living)
            victim.doom = victim.steps + self.rng.choice((1, 5, 20, 60)) + self.rng.randrange(20)
            self.cluster.log(f"{victim.name} shall fall at step {victim.doom}")

    def crash_at_call(self) -> None:
        """Let whoever changes something on a backend next die before it hears of it."""
        world = self.cluster.worlds[self.rng.choice(self.cluster.names)]
        world.deadly = self.rng.choice(("create", "create", "create", "destroy", "power_*"))
        self.cluster.log(f"who calls {world.deadly} on {world.name} shall fall")

    def crash_at_write(self) -> None:
        """Let a process die when its next write has reached the API server."""
        role = self.rng.choice((CONTROLLER, *self.cluster.names))
        self.cluster.network.deadly = f"{role}#"
        self.cluster.log(f"{role} shall fall at its next write")

    def second(self) -> None:
        """Start a second process of a role; both may believe that they lead."""
        role = self.rng.choice((CONTROLLER, *self.cluster.names))
        if len(self.cluster.alive(role)) == 1:
            self.cluster.leases.split = self.rng.random() < 0.7
            self.cluster.start(role)

    def first_goes(self) -> None:
        """Kill the longer-lived of two."""
        for role in (CONTROLLER, *self.cluster.names):
            pair = self.cluster.alive(role)
            if len(pair) > 1:
                self.cluster.kill(pair[0])
                return

    def storm(self) -> None:
        """Bad weather on the way to the API server."""
        weather, rng = self.cluster.network.weather, self.rng
        weather.lost_requests = rng.choice((0.0, 0.1, 0.3))
        weather.lost_replies = rng.choice((0.0, 0.1, 0.3))
        weather.conflicts = rng.choice((0.0, 0.2))
        weather.slow = rng.choice((0.0, 0.3))
        weather.lag = rng.choice((0.0, 0.0, 1.0, 20.0))
        self.cluster.log(f"weather: {weather}")

    def calm(self) -> None:
        """Fine weather."""
        self.cluster.network.weather.clear()
        self.cluster.log("weather: fine")

    def gap(self) -> None:
        """The watches of a process tell nothing for a while, then begin anew."""
        living = [process for process in self.cluster.processes if not process.dead]
        if living:
            process = self.rng.choice(living)
            seconds = self.rng.choice((1.0, 20.0, 200.0))
            self.cluster.log(f"watches of {process.name} break for {seconds} s")
            process.source.break_off()
            self.cluster.loop.call_later(seconds, process.source.resume)

    def hang_calls(self) -> None:
        """Calls of the drivers hang, or no longer."""
        share = self.rng.choice((0.0, 0.2))
        self.oracle.late_calls = True
        self.cluster.log(f"share of hanging calls: {share}")
        for process in self.cluster.processes:
            process.pools.hanging = share


def bound(actor: Actor) -> dict[str, Callable[[], None]]:
    """The actions of an actor's own class, by name, in the order they are written."""
    return {
        name: getattr(actor, name)
        for name in vars(type(actor))
        if not name.startswith("_") and callable(getattr(actor, name))
    }


SYSTEM = provider_key("").namespace
