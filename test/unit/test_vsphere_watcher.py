import pytest
from pyVmomi import vim, vmodl

from banlieue.providers.vsphere.watching.records import MARK
from banlieue.sdk.powers import Changes
from test.kit.watchbench import (
    PC,
    TIMINGS,
    UUID,
    Bench,
    Native,
    about_task,
    about_vm,
    update,
)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_first_answer_asks_for_everything_and_builds_one_filter(bench: Bench) -> None:
    bench.started("vm-1", "vm-2")
    assert bench.server.edits == [(["vm-1", "vm-2"], [])]
    assert bench.server.calls["CreateFilter"] == 1
    assert bench.watcher.healthy
    assert bench.told() == Changes()


def test_the_watch_is_current_only_when_all_was_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is built anew, what is known from before may have changed meanwhile."""
    seen: list[tuple[bool, bool]] = []
    ask = bench.server.on_WaitForUpdatesEx

    def watched(*args: Native) -> Native:
        seen.append((bench.watcher.healthy, bench.watcher.building))
        return ask(*args)

    monkeypatch.setattr(bench.server, "on_WaitForUpdatesEx", watched)
    bench.started("vm-1")
    bench.told()
    bench.server.updates.append(vmodl.query.InvalidCollectorVersion())
    assert bench.told().everything
    assert seen == [(False, True), (True, False), (True, False), (False, True)]
    assert bench.watcher.healthy
    assert not bench.watcher.building


def test_what_is_not_told_again_is_not_known_from_before(bench: Bench) -> None:
    bench.started("vm-1", "vm-2")
    bench.told(update(about_vm("vm-1", uuid=UUID), about_vm("vm-2", uuid="u-2")))
    again = update(about_vm("vm-1", uuid=UUID))
    bench.told(vmodl.query.InvalidCollectorVersion(), again)
    records = [bench.records.get(key) for key in ("vm-1", "vm-2")]
    assert [record.dirty for record in records if record] == [False, True]


def test_a_watch_that_cannot_be_built_is_not_waited_for(bench: Bench) -> None:
    with bench.watcher.preparing():
        assert bench.watcher.building
    assert not bench.watcher.building
    bench.server.updates.append(ConnectionResetError())
    with bench.watcher.preparing(), pytest.raises(ConnectionResetError):
        bench.watcher.changes(1)
    assert not bench.watcher.building
    assert not bench.watcher.healthy


def test_changes_are_told_by_uuid_and_name(bench: Bench) -> None:
    bench.started("vm-1")
    assert bench.told(update(about_vm("vm-1", uuid=UUID, name="web"))).uuids >= {UUID, "web"}
    changed = bench.told(update(about_vm("vm-1", "modify", uuid="u-2")))
    assert changed.uuids >= {UUID, "u-2"}, "who had the old UUID has to know"


def test_what_is_unset_when_a_vm_is_told_whole_is_forgotten(bench: Bench) -> None:
    bench.started("vm-1")
    bench.told(update(about_vm("vm-1", uuid=UUID, ip="10.0.0.7", memory=512)))
    bench.told(update(about_vm("vm-1", uuid=UUID, memory=1024)))
    record = bench.records.get("vm-1")
    assert record is not None
    assert (record.ip, record.memory_mib) == (None, 1024)


def test_a_mark_is_followed_whole_and_by_its_value(bench: Bench) -> None:
    bench.started("vm-1")
    whole = vim.option.OptionValue(key="banlieue.mark", value="one")
    bench.told(update(about_vm("vm-1", uuid=UUID, mark=whole)))
    record = bench.records.get("vm-1")
    assert record is not None
    assert record.mark == "one"
    part = PC.Change(name=f"{MARK}.value", op="assign", val="two")
    told = PC.ObjectUpdate(kind="modify", obj=vim.VirtualMachine("vm-1", None), changeSet=[part])
    bench.told(update(told))
    assert record.mark == "two"


def test_leaving_is_told_and_proves_nothing(bench: Bench) -> None:
    bench.started("vm-1")
    bench.told(update(about_vm("vm-1", uuid=UUID)))
    assert UUID in bench.told(update(about_vm("vm-1", "leave"))).uuids
    record = bench.records.get("vm-1")
    assert record is not None
    assert record.gone


def test_objects_that_are_not_there_are_noted_at_the_start(bench: Bench) -> None:
    bench.records.ensure("vm-1").uuid = UUID
    bench.server.unresolved = ["vm-1"]
    bench.started("vm-1")
    record = bench.records.get("vm-1")
    assert record is not None
    assert record.gone


def test_a_vm_that_went_before_it_was_watched_is_told(bench: Bench) -> None:
    bench.started()
    bench.records.ensure("vm-7").uuid = UUID
    bench.server.unresolved = ["vm-7"]
    bench.watcher.add("vm-7")
    bench.do_planned()
    assert UUID in bench.told().uuids
    assert bench.told().uuids == frozenset()


def test_a_vm_that_goes_before_the_list_was_looked_at_is_doubted(bench: Bench) -> None:
    """The server tells neither that it came nor that it went."""
    bench.started()
    bench.records.ensure("vm-7").uuid = UUID
    bench.watcher.add("vm-7")
    bench.do_planned()
    assert bench.watcher.watches("vm-7")
    assert UUID in bench.told().uuids
    record = bench.records.get("vm-7")
    assert record is not None
    assert record.dirty
    bench.told(update(about_vm("vm-7", uuid=UUID)))
    assert not record.dirty, "it was only late"
    assert bench.told() == Changes()


def test_the_create_of_a_vm_that_went_at_once_is_over(bench: Bench) -> None:
    bench.started()
    bench.watcher.add("task-1")
    bench.do_planned()
    made = about_task("task-1", "success", vim.VirtualMachine("vm-7", None))
    assert bench.told(update(made)).tasks == frozenset()
    bench.do_planned()
    assert bench.told().tasks == {"task-1"}


# Tasks


def test_a_create_is_over_when_its_vm_is_known(bench: Bench) -> None:
    bench.started()
    bench.watcher.add("task-1")
    bench.do_planned()
    made = vim.VirtualMachine("vm-7", None)
    assert bench.told(update(about_task("task-1", "running"))).tasks == frozenset()
    assert bench.told(update(about_task("task-1", "success", made))).tasks == frozenset()
    bench.do_planned()
    assert bench.server.edits[-1][0] == ["vm-7"]
    assert bench.told(update(about_vm("vm-7", uuid=UUID))).tasks == {"task-1"}
    told = bench.watcher.task("task-1")
    assert told is not None
    assert told.state == "success"


def test_vms_that_were_made_are_read_in_one_call_and_covered_later(bench: Bench) -> None:
    bench.started()
    bench.watcher.add("task-1", "task-2")
    bench.do_planned()
    bench.server.uuids = {"vm-7": UUID, "vm-8": "u-8"}
    ends = [
        about_task(f"task-{number}", "success", vim.VirtualMachine(f"vm-{number + 6}", None))
        for number in (1, 2)
    ]
    told = bench.told(update(*ends))
    assert told.tasks == {"task-1", "task-2"}
    assert told.uuids >= {UUID, "u-8"}
    assert bench.server.calls["RetrievePropertiesEx"] == 1
    assert bench.watcher.watches("vm-7"), "what was read now is current until it is covered"
    bench.do_planned()
    assert bench.server.edits[-1] == (["vm-7", "vm-8"], [])
    assert bench.told(update(about_vm("vm-7", uuid=UUID))).tasks == frozenset()
    assert bench.server.calls["RetrievePropertiesEx"] == 1, "nothing about it is new"


def test_details_that_are_due_are_read_with_vms_that_were_made(bench: Bench) -> None:
    bench.started("vm-1")
    bench.watcher.add("task-1")
    bench.do_planned()
    bench.server.uuids = {"vm-1": UUID, "vm-7": "u-7"}
    made = about_task("task-1", "success", vim.VirtualMachine("vm-7", None))
    told = bench.told(update(about_vm("vm-1", uuid=UUID, version="1"), made))
    assert bench.server.calls["RetrievePropertiesEx"] == 1
    assert told.uuids >= {UUID, "u-7"}
    for key in ("vm-1", "vm-7"):
        record = bench.records.get(key)
        assert record is not None
        assert record.details is not None


def test_a_vm_that_could_not_be_read_is_not_watched_before_it_is_covered(bench: Bench) -> None:
    bench.started()
    bench.watcher.add("task-1")
    bench.do_planned()
    bench.told(update(about_task("task-1", "success", vim.VirtualMachine("vm-7", None))))
    assert not bench.watcher.watches("vm-7")


def test_a_failed_task_is_told_at_once(bench: Bench) -> None:
    bench.started()
    bench.watcher.add("task-1")
    assert bench.told(update(about_task("task-1", "error"))).tasks == {"task-1"}


def test_what_is_settled_leaves_with_the_next_edit(bench: Bench) -> None:
    bench.started("task-1")
    bench.watcher.settle("task-1")
    assert bench.server.edits == [(["task-1"], [])]
    bench.watcher.add("vm-2")
    bench.do_planned()
    assert bench.server.edits[-1] == (["vm-2"], ["task-1"])


# Cost


def test_edits_that_come_together_are_one_call(bench: Bench) -> None:
    bench.started()
    before = len(bench.server.edits)
    for number in range(20):
        bench.watcher.add(f"task-{number}")
    assert len(bench.planned) == 1
    bench.do_planned()
    assert len(bench.server.edits) == before + 1
    assert len(bench.server.edits[-1][0]) == 20


def test_the_more_is_going_on_the_longer_it_is_gathered(bench: Bench) -> None:
    bench.started()
    bench.watcher.add("task-1")
    assert [seconds for seconds, _ in bench.planned] == [TIMINGS.coalesce]
    bench.do_planned()
    for number in range(30):
        bench.watcher.add(f"task-{number}")
    bench.do_planned()
    bench.told(update(about_task("task-2", "error")))
    bench.told(update(about_task("task-3", "error")))
    assert bench.pauses
    assert max(bench.pauses) <= TIMINGS.gather
    bench.now += 60.0
    bench.pauses.clear()
    for number in range(30):
        bench.watcher.settle(f"task-{number}")
    bench.told(update(about_vm("vm-1", uuid=UUID)))
    bench.told()
    assert bench.pauses == [], "one thing at rest is told at once"


def test_while_vms_are_made_each_round_serves_more_of_them(bench: Bench) -> None:
    bench.started()
    for number in range(8):
        bench.watcher.expect_more()
        bench.watcher.add(f"task-{number}")
        bench.told(update(about_task(f"task-{number}", "error")))
    assert bench.pauses == sorted(bench.pauses)
    assert 0 < bench.pauses[0] < bench.pauses[-1] <= TIMINGS.stream


def test_what_came_while_the_feed_rested_is_covered_when_it_asks_again(bench: Bench) -> None:
    bench.started()
    for number in range(2):
        bench.watcher.expect_more()
        bench.watcher.add(f"task-{number}")
    bench.do_planned()
    bench.told(update(about_task("task-0", "error")))
    bench.on_pause = lambda: bench.watcher.add(*(f"task-{number}" for number in range(2, 6)))
    bench.told()
    assert bench.planned == []
    assert bench.server.edits[-1][0] == [f"task-{number}" for number in range(2, 6)]


def test_details_are_read_for_many_vms_in_one_call_and_then_no_more(bench: Bench) -> None:
    vms = [f"vm-{number}" for number in range(5)]
    bench.started(*vms)
    bench.told(update(*(about_vm(vm, uuid=vm, version="1") for vm in vms)))
    assert bench.server.calls["RetrievePropertiesEx"] == 1
    for _ in range(3):
        bench.now += 25.0
        bench.told()
    assert bench.server.calls["RetrievePropertiesEx"] == 1


def test_details_are_read_again_when_the_vm_was_changed(bench: Bench) -> None:
    bench.started("vm-1")
    bench.told(update(about_vm("vm-1", uuid=UUID, version="1")))
    bench.told(update(about_vm("vm-1", "modify", version="2")))
    assert bench.server.calls["RetrievePropertiesEx"] == 2


def test_a_guest_that_tells_no_address_is_asked_again_ever_less_often(bench: Bench) -> None:
    bench.started("vm-1")
    up = about_vm("vm-1", uuid=UUID, power="poweredOn", tools="guestToolsRunning")
    bench.told(update(up))
    for _ in range(200):
        bench.now += 5.0
        bench.told()
    assert 3 <= bench.server.calls["RetrievePropertiesEx"] <= 8


def test_the_server_waits_no_longer_than_a_detail_and_never_in_a_hurry(bench: Bench) -> None:
    bench.started("vm-1")
    bench.told(timeout=600.0)
    assert bench.server.waits[-1] == TIMINGS.longest_poll
    bench.told(update(about_vm("vm-1", uuid=UUID, power="poweredOn", tools="guestToolsRunning")))
    bench.told()
    assert 1 <= bench.server.waits[-1] <= 5
    bench.told(timeout=0.2)
    assert bench.server.waits[-1] == 0


# Disturbances


def test_an_ended_session_is_renewed_and_the_watch_built_anew(bench: Bench) -> None:
    bench.started("vm-1")
    assert bench.told(vim.fault.NotAuthenticated()).everything
    assert bench.session.login.number == 2
    assert bench.server.edits[-1] == (["vm-1"], [])
    assert bench.server.calls["DestroyPropertyCollector"] == 0, "it went with its session"
    assert bench.watcher.healthy


def test_a_session_that_ended_behind_the_poll_is_seen_in_what_is_missing(bench: Bench) -> None:
    bench.started("vm-1")
    told = about_vm("vm-1", "modify")
    told.missingSet = [PC.MissingProperty(path="name", fault=vim.fault.NotAuthenticated())]
    assert bench.told(update(told)).everything
    assert bench.session.login.number == 2


@pytest.mark.parametrize(
    "fault",
    [
        vmodl.fault.ManagedObjectNotFound(),
        vmodl.fault.RequestCanceled(),
        vmodl.query.InvalidCollectorVersion(),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_a_lost_collector_is_destroyed_and_built_anew(bench: Bench, fault: Exception) -> None:
    bench.started("vm-1")
    assert bench.told(fault).everything
    assert bench.server.calls["DestroyPropertyCollector"] == 1
    assert bench.server.calls["CreatePropertyCollector"] == 2


def test_silence_is_raised_and_followed_by_everything(bench: Bench) -> None:
    bench.started("vm-1")
    with pytest.raises(TimeoutError):
        bench.told(TimeoutError())
    assert not bench.watcher.healthy
    assert bench.told().everything


def test_what_was_told_is_current_only_for_a_while(bench: Bench) -> None:
    bench.started("vm-1")
    assert bench.watcher.healthy
    bench.now += 10.0
    assert not bench.watcher.healthy
    assert bench.watcher.task("task-1") is None
