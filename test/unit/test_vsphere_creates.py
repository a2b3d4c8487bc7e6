import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from banlieue.providers.vsphere.client.creates import (
    PER_TEMPLATE,
    PER_VCENTER,
    Create,
    Creates,
    Stage,
)
from banlieue.providers.vsphere.watching.census import Census, Entry
from banlieue.providers.vsphere.watching.coming import Cloning, Coming, activation
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Mark, Owner

NO_SESSION = cast("Any", None)
OWNER = Owner("inst", OWNER_VIRTUAL_MACHINE, "team", "web")


class Time:
    """Monotonic time that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def create(number: int, template: str = "vm-1", host: str | None = None) -> Create:
    return Create(f"web-{number}", f"uuid-{number}", template, host, 512, since=1000.0)


# Limits


def test_no_more_clones_of_a_template_than_it_takes() -> None:
    creates = Creates(Time(), 60.0)
    begun = [creates.begin(create(number)) for number in range(PER_TEMPLATE + 1)]
    assert begun == [True] * PER_TEMPLATE + [False]
    assert creates.begin(create(99, template="vm-2"))


def test_no_more_clones_than_the_vcenter_takes_and_an_end_makes_room() -> None:
    creates = Creates(Time(), 60.0)
    running = [create(number, template=f"vm-{number}") for number in range(PER_VCENTER)]
    assert all(creates.begin(item) for item in running)
    late = create(99, template="vm-99")
    assert not creates.begin(late)
    assert creates.must_wait(late.uuid)
    creates.end(running[0], Stage.MADE, "vm-500")
    assert not creates.must_wait(late.uuid)
    assert creates.begin(late)


def test_a_create_nobody_asks_about_does_not_count_for_ever() -> None:
    time = Time()
    creates = Creates(time, 60.0)
    for number in range(PER_TEMPLATE):
        creates.begin(create(number))
    time.now += 3600.0
    assert creates.begin(create(99))


def test_memory_that_is_coming_is_known_by_host() -> None:
    creates = Creates(Time(), 60.0)
    for number in range(3):
        creates.begin(create(number, host="host-1" if number else None))
    assert (creates.load("host-1"), creates.load("host-2")) == (1024, 0)


# Fate


def test_a_lost_create_is_pending_until_it_can_no_longer_arrive() -> None:
    time = Time()
    creates = Creates(time, 60.0)
    lost = create(1)
    creates.begin(lost)
    assert creates.pending("web-1") is lost
    creates.end(lost, Stage.LOST)
    time.now += 59.0
    assert creates.pending("web-1") is lost
    assert creates.lost() == [lost]
    time.now += 2.0
    assert creates.pending("web-1") is None


def test_a_create_that_ended_is_pending_no_longer_and_remembered() -> None:
    creates = Creates(Time(), 60.0)
    made = create(1)
    creates.begin(made)
    creates.running(made, "task-1")
    assert creates.of_task("task-1") is made
    creates.end(made, Stage.MADE, "vm-7")
    assert creates.pending("web-1") is None
    found = creates.get("UUID-1")
    assert found is not None
    assert found.vm == "vm-7"


def test_only_one_at_a_time_creates_a_uuid() -> None:
    creates = Creates(Time(), 60.0)
    inside, most = [0], [0]
    together = threading.Barrier(4)

    def attempt() -> None:
        together.wait(10)
        with creates.turn("uuid-1"):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            inside[0] -= 1

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(attempt) for _ in range(4)]:
            future.result(10)
    assert most == [1]


# Creates of other processes


def coming(*answers: list[Cloning], creates: Creates | None = None) -> Coming:
    left = list(answers)
    return Coming(NO_SESSION, creates or Creates(Time(), 60.0), Time(), lambda _: left.pop(0))


def test_a_task_without_a_token_may_be_anybodys() -> None:
    assert coming([Cloning("task-1", None)]).now("web-1")


def test_creates_of_ours_are_named_whoever_sent_them() -> None:
    running = [
        Cloning("task-1", activation("db-1-12345678")),
        Cloning("task-2", "somebody-elses"),
        Cloning("task-3", None),
    ]
    assert coming(running).names() == ["db-1-12345678"]


def test_a_task_with_another_machines_token_is_not_ours() -> None:
    assert not coming([Cloning("task-1", activation("web-2"))]).now("web-1")
    assert coming([Cloning("task-1", activation("web-1"))]).now("web-1")


def test_our_own_tasks_are_known_already() -> None:
    creates = Creates(Time(), 60.0)
    ours = create(1)
    creates.begin(ours)
    creates.running(ours, "task-1")
    assert not coming([Cloning("task-1", None)], creates=creates).now("web-1")


def test_where_tokens_are_kept_a_task_without_one_is_somebody_elses() -> None:
    creates = Creates(Time(), 60.0)
    ours = create(2)
    creates.begin(ours)
    creates.running(ours, "task-2")
    both = [Cloning("task-2", activation("web-2")), Cloning("task-3", None)]
    assert not coming(both, creates=creates).now("web-1")


def test_tasks_left_from_before_are_read_once_while_there_are_none() -> None:
    found = coming([])
    assert not found.left_from_before("web-1")
    assert not found.left_from_before("web-2"), "asked again, the list would be empty"


def test_tasks_left_from_before_are_followed_to_their_end() -> None:
    time = Time()
    answers = [[Cloning("task-1", None)], [Cloning("task-9", None)]]
    found = Coming(NO_SESSION, Creates(time, 60.0), time, lambda _: answers.pop(0))
    assert found.left_from_before("web-1")
    time.now += 5.0
    assert not found.left_from_before("web-1"), "a task that began later is not from before"
    assert not found.left_from_before("web-1")


# Everybody's VMs


def census(read: Callable[[], list[Entry]], time: Time | None = None) -> Census:
    return Census(NO_SESSION, time or Time(), lambda _: 0.0, lambda _: read())


def entry(moid: str, **fields: Any) -> Entry:  # noqa: ANN401 - any field
    return Entry(moid, **{"name": moid, **fields})


def test_the_census_is_kept_by_what_we_learn() -> None:
    found = census(lambda: [entry("vm-1", name="a"), entry("vm-2", name="b", folder="group-v1")])
    found.ensure()
    found.put(entry("vm-3", name="c", uuid="u3"))
    found.put(entry("vm-2", name="renamed"))
    found.drop("vm-1")
    assert {item.name for item in found.all()} == {"renamed", "c"}
    assert [item.folder for item in found.named("renamed")] == ["group-v1"]
    assert [item.moid for item in found.with_uuid("U3")] == ["vm-3"]


def test_a_mark_counts_only_on_the_vm_it_names() -> None:
    mark = Mark(OWNER, "u1")
    found = census(
        lambda: [entry("vm-1", uuid="u1", mark=mark), entry("vm-2", uuid="u2", mark=mark)]
    )
    found.ensure()
    assert [item.moid for item in found.made_for(OWNER, 0)] == ["vm-1"]
    assert found.made_for(OWNER, 1) == []
    assert len(found.marked()) == 2


def test_a_marked_vm_that_is_seen_no_longer_is_not_forgotten_until_proven_gone() -> None:
    answers = [[entry("vm-1", uuid="u1", mark=Mark(OWNER, "u1"))], [], []]
    found = census(lambda: answers.pop(0))
    for _ in range(3):
        found.refresh()
    assert [item.moid for item in found.vanished(OWNER, 0)] == ["vm-1"]
    found.drop("vm-1")
    assert found.vanished(OWNER, 0) == []


def test_what_is_learnt_during_a_read_survives_it() -> None:
    def read() -> list[Entry]:
        found.put(entry("vm-2"))
        found.drop("vm-1")
        return [entry("vm-1")]

    found = census(read)
    found.refresh()
    assert [item.moid for item in found.all()] == ["vm-2"]


def test_reads_that_are_asked_for_together_are_shared() -> None:
    reads = []
    reading, going_on = threading.Event(), threading.Event()

    def read() -> list[Entry]:
        reads.append(1)
        reading.set()
        going_on.wait(10)
        return []

    found = census(read)
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(found.refresh)
        assert reading.wait(10)
        later = [pool.submit(found.refresh) for _ in range(4)]
        going_on.set()
        for future in (first, *later):
            future.result(10)
    assert 2 <= len(reads) <= 3, "one began before the others asked; they share the next"


def test_a_young_census_is_good_enough_where_that_is_said() -> None:
    time, reads = Time(), list[int]()

    def read() -> list[Entry]:
        reads.append(1)
        return []

    found = census(read, time)
    found.refresh()
    time.now += 5.0
    found.refresh(max_age=10.0)
    assert len(reads) == 1
    found.refresh(max_age=2.0)
    assert len(reads) == 2
