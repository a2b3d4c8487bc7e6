"""What the controller remembers of machine objects: for how long, and what comes too late."""

from typing import Any

from banlieue.controller.infra.traces import KEEP, Traces
from banlieue.controller.scheduling.placement import Claim
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change
from banlieue.sdk.testing.fakes import FakeClock
from test.kit.controllerworld import THIS

OWNER, ONE = Key("team-a", "db-1"), Key("system", "one")
MACHINE = Key("team-a", "db-1")


def _machine(*, leaving: bool = False, **spec: Any) -> Obj:  # noqa: ANN401 - parts of a spec
    meta: Obj = {"namespace": "team-a", "name": "db-1", "uid": "m-1"}
    if leaving:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "metadata": meta,
        "spec": {
            "virtualMachineRef": {"name": "db-1"},
            "providerRef": {"name": "one", "namespace": "system"},
            "instance": {"uuid": "u-1"},
            **spec,
        },
    }


class _Seen:
    """Traces, and what is told of them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.traces = Traces(self.clock)
        self.last: Obj | None = None

    def note(self, machine: Obj | None) -> None:
        self.traces.note(Change(THIS, MACHINE, self.last, machine))
        self.last = machine

    def claims(self, *, settled: bool = True) -> dict[Key, list[Claim]]:
        return self.traces.claims(OWNER, "digest", lambda _: settled)


def test_an_object_that_vanished_counts_until_its_provider_must_have_told() -> None:
    seen = _Seen()
    seen.note(_machine(move={"epoch": 2, "role": "Current"}))
    seen.note(None)
    assert seen.claims() == {ONE: [Claim("digest", 2)]}
    seen.clock.advance(KEEP + 1)
    assert seen.claims(settled=False) == {ONE: [Claim("digest", 2)]}
    assert seen.claims() == {}


def test_an_object_the_watch_still_shows_counts_as_well() -> None:
    """The caller looked live and found none, so it only lags behind."""
    seen = _Seen()
    seen.note(_machine())
    assert seen.claims() == {ONE: [Claim("digest")]}


def test_an_object_without_identity_has_no_vm() -> None:
    seen = _Seen()
    seen.note(_machine(instance=None))
    seen.note(None)
    assert seen.claims() == {}


def test_what_is_destroyed_leaves_no_trace() -> None:
    seen = _Seen()
    seen.note(_machine())
    seen.note(_machine(leaving=True, teardown={"mode": "Destroy", "uid": "m-1"}))
    assert seen.claims() == {}
    seen.note(None)
    assert seen.claims() == {}


def test_an_intent_for_another_object_destroys_nothing() -> None:
    seen = _Seen()
    seen.note(_machine(leaving=True, teardown={"mode": "Destroy", "uid": "before the restore"}))
    seen.note(None)
    assert seen.claims() == {ONE: [Claim("digest")]}


def test_news_of_what_ended_as_its_user_wanted_come_too_late() -> None:
    seen = _Seen()
    seen.note(_machine())
    seen.traces.forget(OWNER)
    seen.note(_machine(teardown={"mode": "Release", "uid": "m-1"}))
    seen.note(_machine(leaving=True, teardown={"mode": "Release", "uid": "m-1"}))
    seen.note(None)
    assert seen.claims() == {}


def test_machines_of_nobody_are_not_kept() -> None:
    seen = _Seen()
    seen.note({"metadata": {"name": "db-1"}, "spec": {"instance": {"uuid": "u-1"}}})
    seen.note(None)
    assert seen.claims() == {}
