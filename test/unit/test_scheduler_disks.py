"""A machine that is to get a retained disk goes where the disk is kept for its namespace."""

from banlieue.api.reasons import Reason
from banlieue.controller.scheduling.scheduler import schedule
from test.kit.scheduling import VM, chosen, demand, domain, refusal, site

MINE = (VM.namespace, "db-data-1")


def test_a_machine_goes_to_its_disk() -> None:
    one = site("one", domain("one-a"), domain("one-b"))
    two = site("two", domain("two-a"), domain("two-b"), kept_disks={MINE: frozenset({"two-b"})})
    assert chosen(schedule(demand(existing_disks=("db-data-1",)), [one, two], [])) == "two-b"


def test_a_disk_of_another_namespace_is_as_good_as_none() -> None:
    other = site("one", kept_disks={("team-b", "db-data-1"): frozenset({"one-a"})})
    answers = [
        refusal(schedule(demand(existing_disks=("db-data-1",)), [there], []))
        for there in (other, site("one"))
    ]
    assert answers[0].reason is Reason.DISK_NOT_FOUND
    assert answers[0].message == answers[1].message
    assert "db-data-1" in answers[0].message
    assert not answers[0].lasting, "it may be kept there at any moment"
