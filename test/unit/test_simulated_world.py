"""The simulated hypervisor by itself, under a clock that moves when it is told to."""

import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from banlieue.api.meta import format_time
from banlieue.sdk.simulated.faults import Code, ConnectionLost, Effect, WorldFault
from banlieue.sdk.simulated.records import OFF, ON, Latencies, State, default_state
from banlieue.sdk.simulated.statefile import StateFile
from banlieue.sdk.simulated.world import World, account
from banlieue.sdk.testing.fakes import START, FakeClock

Json = Any


class Rig:
    """A world, its clock and a login."""

    def __init__(self, seed: int = 1, state: State | None = None, **options: Json) -> None:
        self.clock = FakeClock()
        self.state = state or default_state("here")
        self.state.accounts["us"] = account("secret", Random(seed))
        self.state.latencies = Latencies(
            create=10, power=1, shutdown=2, boot=5, delete=3, reconfigure=1, jitter=0
        )
        self.world = World(self.state, clock=self.clock, rng=Random(seed), sleep=None, **options)
        login = {"username": "us", "password": "secret"}
        self.session = self.world.call("login", login)["session"]

    def call(self, method: str, **params: Json) -> Json:
        return self.world.call(method, params, session=self.session)

    def control(self, method: str, **params: Json) -> Json:
        return self.world.control(method, params)

    def inject(self, effect: Effect, **rule: Json) -> None:
        self.control("inject", rule={"effect": effect, **rule})

    def create(self, name: str = "web", **more: Json) -> Json:
        spec = {"name": name, "uuid": f"uuid-of-{name}", "domain": "domain-a", "mark": "ours"}
        disks = [{"name": "root", "pool": "fast"}, {"name": "data", "pool": "slow", "size_gib": 5}]
        nics = [{"name": "eth0", "network": "lan"}]
        return self.call(
            "create", **{**spec, "image": "debian-12", "disks": disks, "nics": nics, **more}
        )

    def made(self, name: str = "web", **more: Json) -> Json:
        self.create(name, **more)
        self.clock.advance(10)
        return self.vm(name)

    def vm(self, name: str = "web") -> Json:
        (vm,) = self.call("find", name=name)
        return vm


def fault(call: Callable[[], object]) -> str:
    with pytest.raises(WorldFault) as raised:
        call()
    return raised.value.code


def test_a_vm_appears_whole_when_its_task_ends() -> None:
    rig = Rig()
    task = rig.create()
    rig.clock.advance(9.9)
    assert rig.call("find", name="web") == []
    rig.clock.advance(0.1)
    vm = rig.vm()
    assert (vm["uuid"], vm["mark"], vm["power"]) == ("uuid-of-web", "ours", ON)
    assert vm["disks"][0]["content"] == "image:debian-12"
    assert [disk["size_gib"] for disk in vm["disks"]] == [8, 5]
    assert rig.call("task", task=task["id"])["state"] == "done"


def test_the_guest_reports_after_its_boot_time() -> None:
    rig = Rig()
    assert not rig.made()["guest_up"]
    rig.clock.advance(5)
    assert rig.vm()["guest_up"]
    rig.call("power_off", vm=rig.vm()["id"])
    rig.clock.advance(1)
    assert (rig.vm()["power"], rig.vm()["guest_up"]) == (OFF, False)


def test_what_was_due_in_between_happens_in_order() -> None:
    rig = Rig()
    rig.create()
    rig.clock.advance(1000)
    vm = rig.vm()
    assert vm["guest_up"], "the guest boots when the VM was made, not when somebody looked"
    assert vm["last_boot"] == format_time(START + timedelta(seconds=10))


@pytest.mark.parametrize("age", [0, 9, 11])
def test_a_name_is_taken_from_the_call_on(age: float) -> None:
    rig = Rig()
    rig.create()
    rig.clock.advance(age)
    assert fault(lambda: rig.create(uuid="another")) == Code.DUPLICATE_NAME
    rig.create(domain="domain-b")
    rig.clock.advance(20)
    assert len(rig.call("find", name="web")) == 2


def test_a_failed_create_gives_its_name_back() -> None:
    rig = Rig()
    rig.inject(Effect.FAIL_TASK, code=Code.NO_SPACE)
    task = rig.create()
    rig.clock.advance(10)
    assert rig.call("task", task=task["id"])["fault"]["code"] == Code.NO_SPACE
    assert rig.call("find", name="web") == []
    assert rig.made()["uuid"] == "uuid-of-web"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"image": "none"}, Code.IMAGE_NOT_FOUND),
        ({"nics": [{"name": "eth0", "network": "none"}]}, Code.NETWORK_NOT_FOUND),
        ({"disks": [{"name": "root", "pool": "none"}]}, Code.POOL_NOT_FOUND),
        ({"domain": "none"}, Code.INVALID_ARGUMENT),
        ({"memory_mib": 10**9}, Code.NO_MEMORY),
        ({"colour": "red"}, Code.INVALID_ARGUMENT),
    ],
)
def test_a_create_that_cannot_be_is_refused_at_once(wrong: dict[str, Any], code: Code) -> None:
    rig = Rig()
    assert fault(lambda: rig.create(**wrong)) == code
    assert rig.control("tasks") == []


def test_running_creates_count_against_the_memory() -> None:
    rig = Rig()
    most_of_a_host = 400 * 1024
    rig.create("one", memory_mib=most_of_a_host)
    rig.create("two", memory_mib=most_of_a_host)
    assert fault(lambda: rig.create("three", memory_mib=most_of_a_host)) == Code.NO_MEMORY


def test_hosts_in_maintenance_take_nothing() -> None:
    rig = Rig()
    rig.control("set_host", host="host-a1", maintenance=True)
    assert rig.made()["host"] == "host-a2"
    rig.control("set_host", host="host-a2", connected=False)
    assert fault(lambda: rig.create("other")) == Code.NO_MEMORY


def test_one_task_at_a_time_on_a_vm() -> None:
    rig = Rig()
    vm = rig.made()["id"]
    rig.call("power_off", vm=vm)
    assert fault(lambda: rig.call("power_off", vm=vm)) == Code.BUSY
    assert rig.vm()["task"]["operation"] == "power-off"
    rig.clock.advance(1)
    rig.control("run_task", vm=vm, seconds=4)
    assert rig.vm()["foreign_task"]
    assert rig.vm()["task"] is None
    assert fault(lambda: rig.call("destroy", vm=vm)) == Code.BUSY


def test_only_a_vm_that_is_off_is_destroyed_and_its_attached_disks_with_it() -> None:
    rig = Rig()
    vm = rig.made()
    assert fault(lambda: rig.call("destroy", vm=vm["id"])) == Code.INVALID_POWER_STATE
    rig.call("power_off", vm=vm["id"])
    rig.clock.advance(1)
    data = vm["disks"][1]
    rig.call("detach", vm=vm["id"], disks=[data["id"]])
    rig.clock.advance(1)
    rig.call("destroy", vm=vm["id"])
    rig.clock.advance(3)
    assert rig.call("find", name="web") == []
    assert rig.control("detached") == {data["id"]: data}


def test_a_detached_disk_comes_back_with_its_data() -> None:
    rig = Rig()
    vm = rig.made()
    data = vm["disks"][1]
    rig.call("detach", vm=vm["id"], disks=[data["id"]])
    rig.clock.advance(1)
    disks = [{"name": "root", "pool": "fast"}]
    old = {"name": "old", "pool": "slow", "existing": data["id"]}
    again = rig.made("again", disks=[*disks, old])
    assert again["disks"][1]["content"] == data["content"]
    assert again["disks"][1]["name"] == "old"
    assert rig.control("detached") == {}
    assert fault(lambda: rig.create("third", disks=[*disks, old])) == Code.DISK_NOT_FOUND


def test_two_creates_cannot_take_the_same_disk() -> None:
    rig = Rig()
    vm = rig.made()
    kept = vm["disks"][1]["id"]
    rig.call("detach", vm=vm["id"], disks=[kept])
    rig.clock.advance(1)
    disks = [{"name": "root", "pool": "fast"}, {"name": "old", "pool": "slow", "existing": kept}]
    tasks = [rig.create(name, disks=disks)["id"] for name in ("one", "two")]
    rig.clock.advance(10)
    assert [rig.call("task", task=task)["state"] for task in tasks] == ["done", "failed"]
    assert [disk["id"] for disk in rig.vm("one")["disks"]][1] == kept


@pytest.mark.parametrize(
    ("guest", "then", "after", "power"),
    [("well", "fail", 2, OFF), ("hung", "force", 30, OFF), ("hung", "fail", 30, ON)],
)
def test_a_guest_shuts_down_or_is_waited_for(
    guest: str, then: str, after: float, power: str
) -> None:
    rig = Rig()
    vm = rig.made()["id"]
    rig.clock.advance(5)
    if guest == "hung":
        rig.control("hang_guest", vm=vm)
    task = rig.call("shutdown", vm=vm, timeout=30, force=then == "force")
    rig.clock.advance(after - 0.1)
    assert rig.vm()["power"] == ON
    rig.clock.advance(0.1)
    assert rig.vm()["power"] == power
    failed = rig.call("task", task=task["id"])["fault"]
    assert (failed or {}).get("code") == (None if power == OFF else Code.GUEST_TIMEOUT)


def test_a_guest_that_still_boots_shuts_down_once_it_is_up() -> None:
    rig = Rig()
    vm = rig.made()["id"]
    rig.control("set_latencies", boot=20.0, shutdown=5.0)
    rig.clock.advance(5)
    rig.call("power_off", vm=vm)
    rig.clock.advance(5)
    rig.call("power_on", vm=vm)
    rig.clock.advance(5)
    rig.vm()
    asked = rig.call("shutdown", vm=vm, timeout=300, force=True)
    assert 5 < asked["left"] < 40
    rig.clock.advance(asked["left"])
    assert rig.vm()["power"] == OFF


def test_a_running_vm_grows_and_never_shrinks() -> None:
    rig = Rig()
    vm = rig.made(cpus=2)
    disks = [{"name": "data", "pool": "slow", "size_gib": 9}]
    bigger = {"cpus": 4, "memory_mib": 2048, "disks": disks}
    rig.call("reconfigure", vm=vm["id"], hardware=bigger)
    rig.clock.advance(1)
    grown = rig.vm()
    assert (grown["cpus"], grown["memory_mib"]) == (4, 2048)
    assert grown["disks"][1]["size_gib"] == 9
    assert grown["disks"][1]["content"] == vm["disks"][1]["content"]
    smaller = {"cpus": 1, "memory_mib": 2048}
    assert fault(lambda: rig.call("reconfigure", vm=vm["id"], hardware=smaller)) == Code.HOT_PLUG
    disks[0]["size_gib"] = 1
    code = fault(lambda: rig.call("reconfigure", vm=vm["id"], hardware={**bigger, "disks": disks}))
    assert code == Code.INVALID_ARGUMENT


def test_a_copy_carries_the_mark_and_the_data_but_not_the_identity() -> None:
    rig = Rig()
    vm = rig.made()
    copy = rig.control("copy", vm=vm["id"], name="copy")
    assert copy["mark"] == vm["mark"]
    assert copy["uuid"] != vm["uuid"]
    assert [d["content"] for d in copy["disks"]] == [d["content"] for d in vm["disks"]]
    assert not {d["id"] for d in copy["disks"]} & {d["id"] for d in vm["disks"]}
    restored = rig.control("copy", vm=vm["id"], name="web", domain="domain-b", keep_uuid=True)
    assert restored["uuid"] == vm["uuid"]


def test_a_hidden_vm_keeps_its_name_and_the_account_lacks_a_right() -> None:
    rig = Rig()
    vm = rig.made()["id"]
    rig.control("hide", vm=vm)
    assert rig.call("find", name="web") == []
    assert fault(lambda: rig.call("find", id=vm)) == Code.NO_PERMISSION
    assert rig.call("about")["missing_privileges"] == [["Read", vm]]
    assert fault(rig.create) == Code.DUPLICATE_NAME
    rig.control("unhide", vm=vm)
    assert rig.call("about")["missing_privileges"] == []
    assert rig.vm()["id"] == vm


def test_a_missing_privilege_refuses_its_calls_only() -> None:
    rig = Rig()
    vm = rig.made()["id"]
    rig.control("deny", privilege="Power")
    assert fault(lambda: rig.call("power_off", vm=vm)) == Code.NO_PERMISSION
    rig.create("other")
    rig.control("allow")
    rig.call("power_off", vm=vm)


def test_sessions_end_and_passwords_change() -> None:
    rig = Rig()
    rig.control("expire_sessions")
    assert fault(lambda: rig.call("about")) == Code.NOT_AUTHENTICATED
    wrong = {"username": "us", "password": "guess"}
    assert fault(lambda: rig.world.call("login", wrong)) == Code.INVALID_LOGIN
    new = account("new", Random(3))
    rig.control("set_password", username="us", salt=new.salt, digest=new.digest)
    assert rig.world.call("login", {"username": "us", "password": "new"})["session"]


# Faults on the wire


def test_a_refused_call_does_nothing() -> None:
    rig = Rig()
    rig.inject(Effect.REFUSE, method="create", code=Code.NO_MEMORY, after=1)
    rig.create("passes")
    assert fault(rig.create) == Code.NO_MEMORY
    rig.create()
    assert len(rig.control("tasks")) == 2


@pytest.mark.parametrize(
    ("effect", "tasks_now", "tasks_later"),
    [(Effect.CUT, 0, 0), (Effect.LOSE_REPLY, 1, 1), (Effect.LATE, 0, 1), (Effect.HANG, 0, 1)],
)
def test_a_call_without_answer_is_carried_out_or_not(
    effect: Effect, tasks_now: int, tasks_later: int
) -> None:
    rig = Rig()
    rig.inject(effect, method="create", seconds=70)
    with pytest.raises(ConnectionLost):
        rig.create()
    assert len(rig.control("tasks")) == tasks_now
    rig.clock.advance(70)
    assert len(rig.control("tasks")) == tasks_later


def test_a_late_call_that_is_refused_bothers_nobody() -> None:
    rig = Rig()
    rig.inject(Effect.LATE, method="create", seconds=70)
    with pytest.raises(ConnectionLost):
        rig.create()
    rig.made()
    rig.clock.advance(70)
    assert [vm["name"] for vm in rig.control("vms")] == ["web"]


def test_a_late_call_arrives_in_the_order_of_events() -> None:
    rig = Rig()
    vm = rig.made()["id"]
    rig.inject(Effect.LATE, method="create", seconds=20)
    with pytest.raises(ConnectionLost):
        rig.create(uuid="late")
    rig.call("power_off", vm=vm)
    rig.clock.advance(1)
    rig.call("destroy", vm=vm)
    rig.clock.advance(1000)
    assert rig.vm()["uuid"] == "late"
    assert rig.vm()["last_boot"] == format_time(START + timedelta(seconds=10 + 20 + 10))


def test_a_late_login_is_no_call_to_keep() -> None:
    rig = Rig()
    rig.inject(Effect.LATE, method="login", seconds=1)
    with pytest.raises(ConnectionLost):
        rig.world.call("login", {"username": "us", "password": "secret"})
    assert rig.state.late == []


def test_rules_count_and_name_what_they_hit() -> None:
    rig = Rig()
    rig.inject(Effect.REFUSE, method="create", name="a*", code=Code.BUSY, count=None)
    rig.create("b1")
    assert [fault(lambda: rig.create("a1")) for _ in range(3)] == [Code.BUSY] * 3
    rig.control("heal")
    rig.create("a1")


def test_slow_tasks_take_longer() -> None:
    rig = Rig()
    rig.inject(Effect.SLOW_TASK, method="create", seconds=100)
    assert rig.create()["left"] == pytest.approx(110)


def test_calls_are_counted() -> None:
    rig = Rig()
    rig.made()
    assert rig.control("calls") == {"login": 1, "create": 1, "find": 1}


def test_a_control_call_that_does_not_exist_is_refused() -> None:
    rig = Rig()
    for method in ("nothing", "_state", "__init__"):
        assert fault(partial(rig.control, method)) == Code.INVALID_ARGUMENT
    assert fault(lambda: rig.control("hide", colour="red")) == Code.INVALID_ARGUMENT


# Changes


def test_a_listener_is_told_what_changed_since_it_asked() -> None:
    rig = Rig()
    first = rig.call("changes", cursor="", timeout=0)
    assert first["everything"]
    task = rig.create()
    rig.clock.advance(10)
    second = rig.call("changes", cursor=first["cursor"], timeout=0)
    assert (second["vms"], second["tasks"]) == (["uuid-of-web", "web"], [task["id"]])
    third = rig.call("changes", cursor=second["cursor"], timeout=0)
    assert (third["vms"], third["tasks"], third["everything"]) == ([], [], False)


def test_what_happens_behind_the_back_is_told() -> None:
    rig = Rig()
    vm = rig.made()["id"]
    cursor = rig.call("changes", cursor="", timeout=0)["cursor"]
    acts: dict[str, dict[str, Any]] = {
        "rename": {"name": "other"},
        "set_power": {"power": OFF},
        "move": {"domain": "domain-b"},
        "hide": {},
        "unhide": {},
        "attach_disk": {},
        "remove": {},
    }
    for act, params in acts.items():
        rig.control(act, vm=vm, **params)
        answer = rig.call("changes", cursor=cursor, timeout=0)
        assert "uuid-of-web" in answer["vms"], act
        cursor = answer["cursor"]


def test_a_listener_of_an_earlier_life_looks_at_everything() -> None:
    old = Rig(seed=1).call("changes", cursor="", timeout=0)["cursor"]
    assert Rig(seed=2).call("changes", cursor=old, timeout=0)["everything"]


def test_old_tasks_are_forgotten() -> None:
    rig = Rig()
    task = rig.create()["id"]
    rig.clock.advance(10 + 599)
    assert rig.call("task", task=task)["state"] == "done"
    rig.clock.advance(2)
    assert fault(lambda: rig.call("task", task=task)) == Code.NOT_FOUND


def test_the_next_event_is_known() -> None:
    rig = Rig()
    assert rig.world.next_due() is None
    rig.create()
    start = rig.clock.monotonic()
    assert rig.world.next_due() == start + 10
    rig.inject(Effect.LATE, method="create", seconds=3)
    with pytest.raises(ConnectionLost):
        rig.create("late")
    assert rig.world.next_due() == start + 3


def test_equal_seeds_make_equal_worlds() -> None:
    def story(seed: int) -> str:
        rig = Rig(seed)
        for name in ("one", "two"):
            rig.made(name)
        rig.control("make_foreign", name="three", domain="domain-b")
        return json.dumps(rig.control("vms"))

    assert story(7) == story(7)
    assert story(7) != story(8)


# State


def test_a_world_goes_on_after_its_process_was_killed(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "world.json")
    rig = Rig(save=file.save)
    rig.made("done")
    task = rig.create("half")
    rig.clock.advance(4)
    rig.call("find", name="half")
    dead = rig.control("vms")

    state = file.load(now=0.0)
    assert state is not None
    again = Rig(state=state)
    again.clock.advance(0)
    (kept,) = again.call("find", name="done")
    assert (kept["id"], kept["disks"]) == (dead[0]["id"], dead[0]["disks"])
    assert again.call("task", task=task["id"])["state"] == "running"
    again.clock.advance(20)
    assert again.vm("half")["uuid"] == "uuid-of-half"
    assert len({vm["id"] for vm in again.control("vms")}) == 2


def test_every_change_is_saved_before_it_is_told() -> None:
    saved: list[str] = []
    rig = Rig(save=lambda state: saved.append(state.model_dump_json()))
    task = rig.create()["id"]
    assert task in saved[-1]
    rig.clock.advance(10)
    vm = rig.vm()["id"]
    assert vm in saved[-1]
    rig.control("set_identity", identity="elsewhere")
    assert "elsewhere" in saved[-1]
    before = len(saved)
    rig.call("ping")
    assert len(saved) == before, "looking is no change"
    assert "secret" not in "".join(saved)


def test_no_file_is_no_state(tmp_path: Path) -> None:
    assert StateFile(tmp_path / "none.json").load(0.0) is None


# Whatever is done, disks are never lost but by a destroy, and names stay unique


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["create", "detach", "destroy", "power_off", "power_on", "advance"]),
            st.integers(0, 3),
        ),
        max_size=25,
    )
)
def test_invariants_of_any_story(story: list[tuple[str, int]]) -> None:
    rig = Rig()
    made: set[str] = set()
    for step, number in story:
        try:
            act(rig, step, number)
        except WorldFault:
            continue
        finally:
            vms = rig.control("vms")
            attached = [disk["id"] for vm in vms for disk in vm["disks"]]
            free = set(rig.control("detached"))
            assert len(attached) == len(set(attached))
            assert not free & set(attached)
            assert free >= made, "a detached disk was lost"
            made = free
            names = [(vm["name"], vm["domain"]) for vm in vms]
            assert len(names) == len(set(names))


def act(rig: Rig, step: str, number: int) -> None:
    if step == "advance":
        rig.clock.advance(number * 3)
        return
    if step == "create":
        rig.create(f"vm-{number}")
        return
    found = rig.call("find", name=f"vm-{number}")
    if not found:
        return
    disks = [disk["id"] for disk in found[0]["disks"]]
    extra = {"disks": disks[1:]} if step == "detach" else {}
    rig.call(step, vm=found[0]["id"], **extra)
