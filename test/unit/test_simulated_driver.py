"""The driver over a simulated world, under a clock that moves when it is told to."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pydantic import SecretStr

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerOffMode, PowerState
from banlieue.sdk.driver import AddressPlan, Connection, DiskPlan, MachineRef, NicPlan
from banlieue.sdk.errors import (
    AbsenceUnproven,
    DriverError,
    Foreign,
    InvalidSpec,
    NeedsOperator,
    Refused,
    Transient,
    Unreachable,
)
from banlieue.sdk.identity import Mark
from banlieue.sdk.simulated.backend import BACKEND, simulated_backend
from banlieue.sdk.simulated.connect import MEMORY, Connector, Worlds
from banlieue.sdk.simulated.driver import SimulatedDriver
from banlieue.sdk.simulated.faults import Code, Effect
from banlieue.sdk.simulated.records import Latencies, default_state
from banlieue.sdk.simulated.world import PASSWORD, USERNAME, World, account
from banlieue.sdk.testing.conformance_target import AnyPlan, Bench, seen, unminted
from banlieue.sdk.testing.fakes import FakeClock
from banlieue.sdk.testing.simulated_target import SimulatedTarget
from test.kit.simulated import PLANTED_PASSWORD

CALL_TIMEOUT = 10.0


class Rig:
    """A world under a virtual clock, and a driver on it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        rng = random.Random(1)
        state = default_state("here")
        state.accounts[USERNAME] = account(PLANTED_PASSWORD, rng)
        state.latencies = Latencies(create=10, power=1, shutdown=2, boot=5, delete=3, jitter=0)
        self.world = World(state, clock=self.clock, rng=rng, sleep=None)
        worlds = Worlds()
        worlds.put("here", self.world)
        self.backend = simulated_backend(
            Connector(worlds, monotonic=self.clock.monotonic, call_timeout=CALL_TIMEOUT)
        )
        self.target = SimulatedTarget(self.backend, f"{MEMORY}here", self.world, PLANTED_PASSWORD)
        self._open = self.backend.connect(self.target.connection())
        driver = self._open.__enter__()
        assert isinstance(driver, SimulatedDriver)
        self.driver = driver
        self.plan = Bench(self.target, driver).plan()

    def control(self, method: str, **params: object) -> Any:  # noqa: ANN401 - JSON
        return self.world.control(method, params)

    def inject(self, effect: Effect, **rule: object) -> None:
        self.control("inject", rule={"effect": effect, **rule})

    def made(self, plan: AnyPlan | None = None) -> MachineRef:
        plan = plan or self.plan
        task = self.driver.create(plan)
        assert task is not None
        self.clock.advance(15)
        assert self.driver.poll(task) is None
        state = self.driver.observe(plan.ref)
        assert state is not None
        return seen(plan, state)

    def step(self, plan: AnyPlan, seconds: float = 5) -> str | None:
        """One step of update; what it started."""
        state = self.driver.observe(plan.ref)
        assert state is not None
        task = self.driver.update(plan, state)
        self.clock.advance(seconds)
        return task.operation if task else None


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made._open.__exit__(None, None, None)


# Absence


@pytest.mark.identity("5.3")
@pytest.mark.parametrize("effect", [Effect.CUT, Effect.LATE, Effect.LOSE_REPLY])
def test_after_a_lost_create_absence_needs_twice_the_timeout(rig: Rig, effect: Effect) -> None:
    rig.inject(effect, method="create", seconds=15)
    with pytest.raises(Unreachable):
        rig.driver.create(rig.plan)
    for _ in range(4):
        with pytest.raises(AbsenceUnproven):
            rig.driver.observe(rig.plan.ref)
        with pytest.raises(AbsenceUnproven):
            rig.driver.delete(rig.plan.ref)
        rig.clock.advance(2)
    rig.clock.advance(2 * CALL_TIMEOUT + 10)
    state = rig.driver.observe(rig.plan.ref)
    assert (state is None) == (effect is Effect.CUT)


def test_an_unresolved_create_outlives_its_session(rig: Rig) -> None:
    rig.inject(Effect.CUT, method="create")
    with pytest.raises(Unreachable):
        rig.driver.create(rig.plan)
    with rig.backend.connect(rig.target.connection()) as again:
        with pytest.raises(AbsenceUnproven):
            again.observe(rig.plan.ref)
        other = Bench(rig.target, again).plan("other")
        assert again.observe(other.ref) is None, "other machines are not held up"
        rig.clock.advance(2 * CALL_TIMEOUT + 1)
        assert again.observe(rig.plan.ref) is None


def test_a_seen_machine_does_not_wait_for_lost_creates(rig: Rig) -> None:
    ref = rig.made()
    rig.control("remove", vm=ref.backend_id)
    rig.inject(Effect.CUT, method="create")
    with pytest.raises(Unreachable):
        rig.driver.create(rig.plan)
    assert rig.driver.observe(ref) is None


@pytest.mark.identity("5.3")
def test_absence_is_not_proven_while_a_create_runs(rig: Rig) -> None:
    rig.driver.create(rig.plan)
    for ref in (rig.plan.ref, unminted(rig.plan)):
        with pytest.raises(AbsenceUnproven):
            rig.driver.observe(ref)
    with pytest.raises(AbsenceUnproven):
        rig.driver.delete(rig.plan.ref)
    rig.clock.advance(10)
    assert rig.driver.observe(rig.plan.ref)


def test_a_failed_create_leaves_provable_absence(rig: Rig) -> None:
    rig.inject(Effect.FAIL_TASK, method="create", code=Code.GENERAL)
    task = rig.driver.create(rig.plan)
    assert task is not None
    rig.clock.advance(10)
    with pytest.raises(Transient) as failure:
        rig.driver.poll(task)
    assert failure.value.reason is Reason.PROVISIONING_FAILED
    assert rig.driver.observe(rig.plan.ref) is None


@pytest.mark.identity("5.2")
def test_a_vm_with_a_changed_uuid_is_not_gone(rig: Rig) -> None:
    ref = rig.made()
    rig.control("rename", vm=ref.backend_id, name="other")
    rig.control("set_uuid", vm=ref.backend_id, uuid="changed")
    with pytest.raises(AbsenceUnproven):
        rig.driver.observe(ref)


@pytest.mark.identity("5.5")
def test_an_outage_is_no_absence(rig: Rig) -> None:
    ref = rig.made()
    rig.inject(Effect.CUT, count=None)
    with pytest.raises(Unreachable):
        rig.driver.observe(ref)
    with pytest.raises(Unreachable):
        rig.driver.delete(ref)
    assert len(rig.control("vms")) == 1


# Identity


@pytest.mark.identity("2.2")
def test_a_renamed_and_moved_vm_is_still_ours(rig: Rig) -> None:
    ref = rig.made()
    rig.control("rename", vm=ref.backend_id, name="renamed")
    rig.control("move", vm=ref.backend_id, domain="domain-b")
    for look in (ref, unminted(rig.plan), rig.plan.ref):
        state = rig.driver.observe(look)
        assert state is not None
        assert (state.backend_id, state.failure_domain) == (ref.backend_id, "domain-b")


@pytest.mark.identity("0.5")
def test_two_vms_of_one_uuid_are_left_alone(rig: Rig) -> None:
    ref = rig.made()
    rig.control("copy", vm=ref.backend_id, name="restored", keep_uuid=True)
    for look in (ref, unminted(rig.plan)):
        with pytest.raises(Foreign):
            rig.driver.observe(look)
    with pytest.raises(Foreign):
        rig.driver.delete(ref)
    assert len(rig.control("vms")) == 2


def test_a_valid_mark_beats_a_mere_name(rig: Rig) -> None:
    ref = rig.made()
    rig.control("copy", vm=ref.backend_id, name=rig.plan.ref.name, domain="domain-b")
    state = rig.driver.observe(unminted(rig.plan))
    assert state is not None
    assert state.backend_id == ref.backend_id


def test_a_damaged_mark_is_no_mark(rig: Rig) -> None:
    ref = rig.made()
    rig.control("set_mark", vm=ref.backend_id, mark="{damaged")
    state = rig.driver.observe(ref)
    assert state is not None
    assert state.mark is None
    assert rig.driver.marked() == []


def test_a_foreign_vm_elsewhere_does_not_stand_in_the_way(rig: Rig) -> None:
    rig.control("make_foreign", name=rig.plan.ref.name, domain="domain-b")
    assert rig.driver.observe(rig.plan.ref) is None
    before = rig.driver.observe(unminted(rig.plan))
    assert before is not None
    assert before.mark is None
    rig.made()


def test_a_foreign_create_of_our_name_is_a_conflict(rig: Rig) -> None:
    rig.driver.create(replace(rig.plan, ref=replace(rig.plan.ref, uuid="another")))
    with pytest.raises(Foreign):
        rig.driver.create(rig.plan)


def test_a_name_held_by_a_hidden_vm_proves_nothing(rig: Rig) -> None:
    ref = rig.made()
    rig.control("hide", vm=ref.backend_id)
    with pytest.raises(AbsenceUnproven):
        rig.driver.create(rig.plan)


def test_a_vm_without_mint_is_not_deleted(rig: Rig) -> None:
    rig.made()
    assert rig.driver.delete(unminted(rig.plan)) is None
    assert len(rig.control("vms")) == 1


def test_an_update_never_touches_another_vm(rig: Rig) -> None:
    rig.made()
    foreign = rig.control("make_foreign", name="foreign", domain="domain-a", power="PoweredOff")
    state = rig.driver.observe(replace(rig.plan.ref, uuid=foreign["uuid"]))
    assert state is not None
    with pytest.raises(Foreign):
        rig.driver.update(rig.plan, state)


# Steps


def test_update_takes_power_before_hardware(rig: Rig) -> None:
    rig.made()
    plan = replace(rig.plan, cpus=1, memory_mib=256, power=PowerState.POWERED_OFF)
    assert [rig.step(plan) for _ in range(3)] == ["shutdown", "reconfigure", None]
    assert rig.step(rig.plan) == "power-on"


def test_a_running_vm_that_should_shrink_needs_a_restart(rig: Rig) -> None:
    rig.made()
    with pytest.raises(NeedsOperator) as failure:
        rig.step(replace(rig.plan, memory_mib=256))
    assert failure.value.reason is Reason.RESTART_REQUIRED


def test_disks_grow_and_are_added_and_interfaces_are_unplugged(rig: Rig) -> None:
    rig.made()
    root = replace(rig.plan.disks[0], size_gib=20)
    more = DiskPlan("more", 3, {"pool": "slow"})
    nic = replace(rig.plan.nics[0], connected=False)
    plan = replace(rig.plan, disks=(root, more), nics=(nic,))
    assert [rig.step(plan), rig.step(plan)] == ["reconfigure", None]
    state = rig.driver.observe(plan.ref)
    assert state is not None
    assert [(disk.name, disk.size_gib) for disk in state.disks] == [("root", 20), ("more", 3)]
    assert [address.type for address in state.addresses] == ["Hostname"]


@pytest.mark.parametrize(
    ("mode", "operation", "power"),
    [
        (PowerOffMode.HARD, "power-off", PowerState.POWERED_OFF),
        (PowerOffMode.TRY_SOFT, "shutdown", PowerState.POWERED_OFF),
        (PowerOffMode.SOFT, "shutdown", PowerState.POWERED_ON),
    ],
)
def test_a_hung_guest(rig: Rig, mode: PowerOffMode, operation: str, power: PowerState) -> None:
    ref = rig.made()
    rig.control("hang_guest", vm=ref.backend_id)
    plan = replace(
        rig.plan, power=PowerState.POWERED_OFF, power_off_mode=mode, power_off_timeout=30
    )
    state = rig.driver.observe(ref)
    assert state is not None
    task = rig.driver.update(plan, state)
    assert task is not None
    assert task.operation == operation
    rig.clock.advance(31)
    if mode is PowerOffMode.SOFT:
        with pytest.raises(Transient) as failure:
            rig.driver.poll(task)
        assert failure.value.reason is Reason.SHUTDOWN_TIMED_OUT
    after = rig.driver.observe(ref)
    assert after is not None
    assert after.power == power


def test_suspend_and_wake(rig: Rig) -> None:
    rig.made()
    asleep = replace(rig.plan, power=PowerState.SUSPENDED)
    assert [rig.step(asleep), rig.step(asleep)] == ["suspend", None]
    assert rig.step(rig.plan) == "power-on"


def test_a_step_under_way_is_taken_up_again(rig: Rig) -> None:
    ref = rig.made()
    first = rig.driver.delete(ref)
    assert first is not None
    again = rig.driver.delete(ref)
    assert again is not None
    assert again.handle == first.handle
    rig.clock.advance(1)
    destroy = rig.driver.delete(ref)
    assert destroy is not None
    assert destroy.operation == "delete"
    rig.clock.advance(3)
    assert rig.driver.delete(ref) is None


def test_nothing_is_done_while_a_foreign_task_runs(rig: Rig) -> None:
    ref = rig.made()
    rig.control("run_task", vm=ref.backend_id, seconds=60)
    state = rig.driver.observe(ref)
    assert state is not None
    assert state.foreign_task
    off = replace(rig.plan, power=PowerState.POWERED_OFF)
    acts: tuple[Callable[[], object], ...] = (
        partial(rig.driver.delete, ref),
        partial(rig.driver.update, off, state),
        partial(rig.driver.detach_disks, ref, state.disks),
        partial(rig.driver.remove_mark, ref),
    )
    for act in acts:
        with pytest.raises(Transient) as failure:
            act()
        assert failure.value.reason is Reason.PROVIDER_BUSY


def test_a_retained_disk_is_attached_again(rig: Rig) -> None:
    data = DiskPlan("data", 5, {"pool": "fast"}, retain=True)
    plan = replace(rig.plan, disks=(*rig.plan.disks, data))
    ref = rig.made(plan)
    state = rig.driver.observe(ref)
    assert state is not None
    kept = state.disks[1]
    rig.driver.keep_disks(ref, {"data": "web-data-1"})
    rig.clock.advance(1)
    assert rig.driver.keep_disks(ref, {"data": "web-data-1"}) is None
    other = Bench(rig.target, rig.driver).plan("other")
    again = replace(other, disks=(*other.disks, replace(data, name="old", existing="web-data-1")))
    again = replace(
        again,
        ref=replace(
            again.ref, owner=replace(again.ref.owner, installation_id=ref.owner.installation_id)
        ),
    )
    rig.made(again)
    found = rig.driver.observe(again.ref)
    assert found is not None
    assert [(disk.id, disk.name) for disk in found.disks][1] == (kept.id, "old")
    assert rig.step(again) is None


def test_static_addresses_are_kept_and_leases_are_given(rig: Rig) -> None:
    static = AddressPlan("IPv4", "static", "10.0.0.7", 24)
    nics = (
        NicPlan("eth0", {"network": "lan"}, addresses=(static,), mac_address="02:00:00:00:00:01"),
        NicPlan("eth1", {"network": "dmz"}, addresses=(AddressPlan("IPv4", "dhcp"),)),
    )
    rig.made(replace(rig.plan, nics=nics))
    state = rig.driver.observe(rig.plan.ref)
    assert state is not None
    addresses = [found.address for found in state.addresses if found.type == "InternalIP"]
    assert addresses[0] == "10.0.0.7"
    assert len(addresses) == 2


def test_a_vm_planned_off_is_made_off(rig: Rig) -> None:
    rig.made(replace(rig.plan, power=PowerState.POWERED_OFF))
    state = rig.driver.observe(rig.plan.ref)
    assert state is not None
    assert (state.power, state.addresses) == (PowerState.POWERED_OFF, ())


def test_a_create_needs_an_image(rig: Rig) -> None:
    with pytest.raises(NeedsOperator) as failure:
        rig.driver.create(replace(rig.plan, image=None))
    assert failure.value.reason is Reason.IMAGE_NOT_AVAILABLE


# The place


def test_only_classes_that_are_there_are_published(rig: Rig) -> None:
    rig.control(
        "set_domain",
        domain={
            "id": "domain-c",
            "path": ["sim", "c"],
            "hosts": [{"name": "host-c1", "maintenance": True}],
            "pools": ["slow"],
            "networks": ["lan", "dmz"],
            "images": [],
        },
    )
    (there,) = [domain for domain in rig.driver.failure_domains() if domain.id == "domain-c"]
    assert (there.storage_classes, there.network_classes) == ((), ("prod", "test"))
    assert there.problems == ("storage class gold needs the pool fast, which is not there",)
    assert not there.schedulable
    assert rig.driver.find_image(rig.target.image_source(), there) is None


def test_capacity_counts_what_is_used(rig: Rig) -> None:
    def free() -> int:
        capacity = rig.driver.failure_domains()[0].capacity
        assert capacity is not None
        return capacity.free_memory_mib

    before = free()
    rig.made()
    assert before - free() == rig.plan.memory_mib


# Sessions and errors


def test_an_ended_session_is_opened_again(rig: Rig) -> None:
    ref = rig.made()
    rig.control("expire_sessions")
    assert rig.driver.observe(ref)
    assert rig.control("calls")["login"] == 2


def test_a_changed_password_is_an_error_for_the_operator(rig: Rig) -> None:
    new = account("changed", random.Random(2))
    rig.control("set_password", username=USERNAME, salt=new.salt, digest=new.digest)
    with pytest.raises(NeedsOperator) as failure:
        rig.driver.about()
    assert failure.value.reason is Reason.PROVIDER_AUTH_FAILED


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        (Code.NO_MEMORY, Refused, Reason.INSUFFICIENT_CAPACITY),
        (Code.NO_SPACE, Refused, Reason.INSUFFICIENT_STORAGE),
        (Code.NO_PERMISSION, NeedsOperator, Reason.PROVIDER_PERMISSION_DENIED),
        (Code.INVALID_ARGUMENT, InvalidSpec, Reason.INVALID_CONFIGURATION),
        (Code.BUSY, Transient, Reason.PROVIDER_BUSY),
        (Code.GENERAL, Transient, Reason.PROVISIONING_FAILED),
        ("SomethingNew", Transient, Reason.PROVISIONING_FAILED),
    ],
)
def test_faults_have_uniform_reasons(
    rig: Rig, code: str, kind: type[DriverError], reason: Reason
) -> None:
    rig.inject(Effect.REFUSE, method="create", code=code, message="native words")
    with pytest.raises(kind) as failure:
        rig.driver.create(rig.plan)
    assert type(failure.value) is kind
    assert failure.value.reason is reason
    assert "native" not in failure.value.message
    assert failure.value.native is not None
    assert failure.value.native.code == code


@pytest.mark.parametrize(
    ("operation", "reason"),
    [("delete", Reason.DELETION_FAILED), ("update", Reason.UPDATE_FAILED)],
)
def test_an_unknown_fault_is_named_for_what_was_tried(
    rig: Rig, operation: str, reason: Reason
) -> None:
    off = replace(rig.plan, power=PowerState.POWERED_OFF)
    ref = rig.made(off)
    state = rig.driver.observe(ref)
    assert state is not None
    rig.inject(Effect.FAIL_TASK, code="SomethingNew", method="[dp]*")
    task = rig.driver.delete(ref) if operation == "delete" else rig.driver.update(rig.plan, state)
    assert task is not None
    rig.clock.advance(5)
    with pytest.raises(Transient) as failure:
        rig.driver.poll(task)
    assert failure.value.reason is reason


def connection(**changes: Any) -> Connection:  # noqa: ANN401 - fields of a connection
    login = {"username": SecretStr(USERNAME), "password": SecretStr(PASSWORD)}
    whole = Connection("ns", "sim", (f"{MEMORY}driver-test",), login, SimulatedTarget.capabilities)
    return replace(whole, **changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"credentials": {"username": SecretStr("u")}}, Reason.SECRET_INVALID),
        ({"endpoints": ()}, Reason.INVALID_CONFIGURATION),
        ({"endpoints": ("ftp://elsewhere",)}, Reason.INVALID_CONFIGURATION),
        ({"endpoints": ("http://",)}, Reason.INVALID_CONFIGURATION),
        ({"endpoints": ("http://elsewhere:port",)}, Reason.INVALID_CONFIGURATION),
    ],
)
def test_a_connection_that_cannot_be_is_explained(changes: dict[str, Any], reason: Reason) -> None:
    with pytest.raises(NeedsOperator) as failure, BACKEND.connect(connection(**changes)):
        pass
    assert failure.value.reason is reason


def test_the_first_endpoint_that_answers_is_used() -> None:
    endpoints = ("http://127.0.0.1:1", f"{MEMORY}driver-test")
    with BACKEND.connect(connection(endpoints=endpoints)) as driver:
        assert driver.about().identity == "memory-driver-test"


def test_the_backend_says_what_it_is() -> None:
    assert BACKEND.provider_id("u") == "simulated://u"
    assert BACKEND.storage_target_keys == {"pool"}
    assert BACKEND.network_target_keys == {"network"}
    assert BACKEND.machine in {kind.resource for kind in BACKEND.kinds}


def test_a_mark_of_a_later_epoch_is_not_ours(rig: Rig) -> None:
    ref = rig.made()
    moved = Mark(rig.plan.ref.owner, ref.uuid or "", epoch=1)
    rig.control("set_mark", vm=ref.backend_id, mark=moved.encode())
    rig.control("rename", vm=ref.backend_id, name="moved")
    assert rig.driver.observe(unminted(rig.plan)) is None
