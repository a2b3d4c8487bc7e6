"""Which step of a move comes next, from what is written down and what was seen. Pure.

A move is one second machine object, Incoming, beside the current one. Nothing is remembered but the
references in the VirtualMachine's status, its record of the move, and what the machine objects say,
so a process that ends anywhere is followed by one that goes on.

With fixed addresses the two are never on the network together: the new one waits with its
interfaces unplugged (an earlier one that is taken back waits powered off) until the old one was
seen off. Where that has begun and fails, the new one is shut off first and only then the old one
started. Setting the role Current on the new one is the point of no return.
"""

from datetime import timedelta

from banlieue.api.infrastructure.machine import Machine, Move, MoveRole, TeardownMode
from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.virtualmachine import ReadinessGate
from banlieue.controller.infra.teardown import redoable
from banlieue.controller.moves.situation import Next, Situation, Step

PATIENCE_SECONDS = 1800
"""How long a new machine may take before a move counts as failed; the old one runs all the time."""

_OFF = PowerState.POWERED_OFF


def next_step(now: Situation) -> Next:
    """The one step that comes next."""
    incoming = now.incoming
    if now.undone and not now.settled and (incoming is None or not committed(incoming)):
        return Next(Step.GIVE_UP)
    if incoming is None:
        return _absent(now)
    if incoming.metadata.deletion_timestamp is not None:
        return _leaving(now, incoming)
    if committed(incoming):
        return _finish(now, incoming)
    if now.undone:
        return _undo(now, incoming) if now.fresh else _undo_return(now, incoming)
    return _forward(now, incoming)


def current_power(now: Situation) -> PowerState | None:
    """The power state the current machine's spec is to have; None: what the user wants.

    While a switch is undone it stays as it stands, until `TURN_ON`.
    """
    current = now.current
    if current is not None and current.spec.role is MoveRole.PREVIOUS:
        return _OFF
    if not now.switched and not (now.record.rebind and now.fixed):
        return None
    incoming = now.incoming
    if now.undone and not (incoming is not None and committed(incoming)):
        return current.spec.power_state if current is not None else _OFF
    return _OFF


def incoming_power(now: Situation) -> PowerState:
    """The power state a new machine is to have for now.

    Interfaces of a machine that sleeps cannot be plugged in, so one that waits off the network
    waits powered off, and is put to sleep when it was seen on it.
    """
    if now.power is not PowerState.SUSPENDED or not now.fixed:
        return now.power
    incoming = now.incoming
    if incoming is None or not _opened(now, incoming):
        return _OFF
    asleep = incoming.spec.power_state is now.power
    return now.power if asleep or _seen_plugged(incoming) else _OFF


def committed(incoming: Machine) -> bool:
    """Whether the new machine is the machine, by its object or by the mark on its backend."""
    spec, told = incoming.spec, incoming.status.move
    if spec.role is MoveRole.CURRENT:
        return True
    return (
        spec.role is MoveRole.INCOMING
        and told is not None
        and told.epoch == spec.epoch
        and told.role is not MoveRole.INCOMING
    )


def caught_up(machine: Machine) -> bool:
    """Whether the provider met the machine's latest spec."""
    return machine.status.observed_generation == machine.metadata.generation


def seen_off(machine: Machine | None) -> bool:
    """Whether a machine that is told to be off was seen off since, or is proved to be gone."""
    if machine is None:
        return False
    if machine.status.missing is not None:
        return True
    return (
        caught_up(machine)
        and machine.spec.power_state is _OFF
        and machine.status.power_state is _OFF
    )


def unplugged(machine: Machine) -> bool:
    """Whether the machine's spec keeps all its interfaces unplugged."""
    nics = machine.spec.network_interfaces
    inherited = (
        {it.name for it in machine.spec.class_.network.interfaces} if machine.spec.class_ else set()
    )
    named = {nic.name for nic in nics}
    return inherited <= named and all(nic.connected is False for nic in nics)


def _seen_unplugged(machine: Machine) -> bool:
    seen = machine.status.interfaces
    if seen is None:
        return not machine.spec.network_interfaces
    wanted = {nic.name for nic in machine.spec.network_interfaces}
    return wanted <= {nic.name for nic in seen} and not any(nic.connected for nic in seen)


def _seen_plugged(machine: Machine) -> bool:
    seen = machine.status.interfaces
    return caught_up(machine) if seen is None else all(nic.connected for nic in seen)


def _closed(now: Situation, incoming: Machine) -> bool:
    """Whether the spec keeps the new machine off the network."""
    if now.fresh:
        return unplugged(incoming)
    return incoming.spec.power_state is _OFF


def _opened(now: Situation, incoming: Machine) -> bool:
    """Whether the spec lets the new machine onto the network."""
    if now.fresh:
        return all(nic.connected is not False for nic in incoming.spec.network_interfaces)
    return incoming.spec.wanted_power_state is now.power


def _absent(now: Situation) -> Next:
    if now.undone:
        current = now.current
        held_off = (
            now.switched
            and now.power is not _OFF
            and (current is None or current.spec.power_state is _OFF)
        )
        # Its object was torn out while the two changed over: it may run, so it is taken up again
        # and shut off before the old one may start.
        return Next(Step.POST if held_off and now.fresh else Step.FORGET)
    return Next(Step.POST if now.fresh else Step.FORGET)


def _leaving(now: Situation, incoming: Machine) -> Next:
    """Somebody deleted the object, or we did to undo the move."""
    intent = incoming.spec.teardown
    ours = (
        intent is not None
        and intent.uid == incoming.metadata.uid
        and intent.mode is TeardownMode.DESTROY
    )
    if committed(incoming) or not now.fresh:
        return Next(Step.LET_GO)
    if ours:
        return Next(Step.AWAIT, "the new machine is being removed")
    return Next(Step.REMOVE if now.undone and not _may_be_live(now) else Step.LET_GO)


def _may_be_live(now: Situation) -> bool:
    """Whether the old machine is held off because the new one may have its addresses."""
    current = now.current
    return now.switched and (current is None or current.spec.power_state is _OFF)


def _finish(now: Situation, incoming: Machine) -> Next:
    if incoming.spec.role is not MoveRole.CURRENT:
        return Next(Step.COMMIT)
    if not _opened(now, incoming):
        return Next(Step.OPEN)
    if incoming.status.move != Move(epoch=incoming.spec.epoch, role=MoveRole.CURRENT):
        return Next(Step.AWAIT, "its provider makes it the current one")
    current = now.current
    if current is not None and current.spec.instance is not None:
        left = current.spec.role is MoveRole.PREVIOUS and current.spec.power_state is _OFF
        if not left:
            return Next(Step.LEAVE)
    return Next(Step.FINISH)


def _forward(now: Situation, incoming: Machine) -> Next:
    if not now.fresh and (
        incoming.spec.role is MoveRole.PREVIOUS or incoming.spec.epoch != now.record.epoch
    ):
        return Next(Step.TAKE_BACK)
    if redoable(incoming):
        return Next(Step.REPLACE)
    if now.fixed:
        first = _take_turns(now, incoming)
        if first is not None:
            return first
    if not _opened(now, incoming):
        return Next(Step.OPEN)
    if not is_ready(now, incoming):
        return _in_time(now, "the new machine is not Ready yet")
    return Next(Step.COMMIT)


def _take_turns(now: Situation, incoming: Machine) -> Next | None:
    """What comes before the new machine may be on the network with the old one's addresses."""
    if now.switched:
        return None if seen_off(now.current) else _in_time(now, "the old machine has to stop first")
    if not _closed(now, incoming):
        return Next(Step.CLOSE)
    if not _waits_closed(now, incoming):
        return _in_time(now, "the new machine is not there yet")
    return Next(Step.SWITCH)


def _in_time(now: Situation, waits_for: str) -> Next:
    """Wait; in a switch only for so long, as nothing runs meanwhile."""
    deadline, since = now.deadline, now.record.started_at
    if deadline is not None and now.now >= deadline:
        return Next(Step.FAIL, waits_for)
    if deadline is None and since is not None:
        deadline = since + timedelta(seconds=PATIENCE_SECONDS)
    return Next(Step.AWAIT, waits_for, deadline)


def _marked(machine: Machine) -> bool:
    """Whether the mark on the backend says what the object does."""
    told, spec = machine.status.move, machine.spec
    return told is not None and (told.epoch, told.role) == (spec.epoch, spec.role)


def _waits_closed(now: Situation, incoming: Machine) -> bool:
    """Whether the new machine was seen in wait: there, and not on the network."""
    if not _provisioned(incoming) or not caught_up(incoming) or not _marked(incoming):
        return False
    if now.fresh:
        return incoming.status.power_state is incoming_power(now) and _seen_unplugged(incoming)
    return seen_off(incoming)


def is_ready(now: Situation, incoming: Machine) -> bool:
    """Whether the new machine is what the user waits for: there, running, its gates passed."""
    status = incoming.status
    if not _provisioned(incoming) or not caught_up(incoming) or not _marked(incoming):
        return False
    if status.power_state is not now.power or status.missing is not None:
        return False
    if status.interfaces is not None and not all(nic.connected for nic in status.interfaces):
        return False
    if now.power is not PowerState.POWERED_ON:
        return True
    if ReadinessGate.ADDRESSES_AVAILABLE in now.gates and not status.addresses:
        return False
    return ReadinessGate.GUEST_BOOTSTRAPPED not in now.gates or now.guest_bootstrapped


def _provisioned(machine: Machine) -> bool:
    settled = machine.status.initialization
    return machine.spec.provider_id is not None and settled is not None and settled.provisioned


def _held_off(now: Situation) -> bool:
    """Whether the old machine still has to be let run again."""
    current = now.current
    return (
        now.switched
        and now.power is not _OFF
        and (current is None or current.spec.power_state is not now.power)
    )


def _undo(now: Situation, incoming: Machine) -> Next:
    """A new machine goes; the old one runs again, once the new one cannot have its addresses."""
    if not _held_off(now):
        return Next(Step.REMOVE)
    if not (unplugged(incoming) and incoming.spec.power_state is _OFF):
        return Next(Step.FENCE)
    shut = caught_up(incoming) and (
        incoming.status.power_state is _OFF or _seen_unplugged(incoming)
    )
    # An object that was made again has no identity yet, and its VM may run: its provider has to
    # find that first. Where the Provider is gone for good, deleting the object is its user's word.
    given_up = now.target_gone and incoming.spec.instance is None
    if not (shut or given_up or incoming.status.missing is not None):
        return Next(Step.AWAIT, "the new machine has to be off the network first")
    if now.current is None:
        return Next(Step.AWAIT, "the old machine is being taken up again")
    return Next(Step.TURN_ON)


def _undo_return(now: Situation, incoming: Machine) -> Next:
    """An earlier machine stays left behind after all; it is off, and nothing of it is lost."""
    current = now.current
    if current is None:
        return Next(Step.AWAIT, "the current machine is being taken up again")
    if incoming.spec.power_state is not _OFF:
        return Next(Step.FENCE)
    if incoming.spec.role is MoveRole.INCOMING:
        return _step_back(current, incoming)
    if not _held_off(now):
        return Next(Step.RETAIN)
    if not seen_off(incoming):
        return Next(Step.AWAIT, "the machine that was to come back has to be off first")
    return Next(Step.TURN_ON)


def _step_back(current: Machine, incoming: Machine) -> Next:
    """The machine with the latest epoch is the current one, so that comes first."""
    if current.spec.epoch <= incoming.spec.epoch:
        return Next(Step.OVERTAKE)
    if not _marked(current):
        return Next(Step.AWAIT, "the current machine has to be marked as the later one")
    return Next(Step.STEP_BACK)
