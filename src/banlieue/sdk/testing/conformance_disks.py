"""Conformance: disks come, grow, go, are kept and attached again; data is never lost unasked."""
# ruff: noqa: S101 - a test kit asserts

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerOffMode, PowerState
from banlieue.sdk.driver import DiskPlan, DiskRemoval, DiskState, Task
from banlieue.sdk.errors import NeedsOperator, Transient
from banlieue.sdk.identity import Mark, backend_name
from banlieue.sdk.powers import DiskKeeper, KeptDisk
from banlieue.sdk.testing.conformance_target import AnyPlan, Bench, Benched, seen

_LARGE = 3
"""GiB, where most disks here have one."""


class DiskConformance(Benched):
    """Disks of a VM follow its plan, and nobody else's are touched."""

    def test_a_disk_is_added_to_a_running_vm(self, bench: Bench) -> None:
        plan = _running(bench, bench.plan())
        more = with_disks(plan, data=_LARGE)
        follow(bench, more)
        assert _sizes(bench, plan)["data"] == _LARGE
        assert bench.state(plan).power == PowerState.POWERED_ON
        assert bench.driver.update(more, bench.state(plan)) is None

    def test_more_disks_than_one_controller_holds_keep_their_order(self, bench: Bench) -> None:
        plan = with_disks(bench.plan(), **{f"d{number}": 1 for number in range(20)})
        bench.ensure(plan)
        names = [disk.name for disk in bench.state(plan).disks]
        assert names == [disk.name for disk in plan.disks]
        assert bench.driver.update(plan, bench.state(plan)) is None

    def test_disks_of_no_storage_class_are_where_the_backend_puts_them(self, bench: Bench) -> None:
        """A machine of Cluster API may name none; with a class every disk has one."""
        plan = with_disks(bench.plan(), data=1)
        plan = replace(plan, disks=tuple(replace(disk, storage={}) for disk in plan.disks))
        bench.ensure(plan)
        assert set(_sizes(bench, plan)) == {"root", "data"}
        assert bench.driver.update(plan, bench.state(plan)) is None

    def test_a_disk_grows_under_a_running_vm(self, bench: Bench) -> None:
        plan = _running(bench, with_disks(bench.plan(), data=1))
        before = _named(bench, plan, "data")
        follow(bench, with_disks(plan, data=_LARGE))
        assert _sizes(bench, plan)["data"] == _LARGE
        assert _named(bench, plan, "data").id == before.id
        assert bench.state(plan).power == PowerState.POWERED_ON

    def test_no_disk_ever_shrinks(self, bench: Bench) -> None:
        plan = with_disks(bench.plan(), data=_LARGE)
        bench.ensure(plan)
        follow(bench, replace(with_disks(plan, data=1), cpus=2))
        assert _sizes(bench, plan)["data"] == _LARGE

    def test_a_snapshot_blocks_growth_until_it_is_gone(self, bench: Bench) -> None:
        plan = _running(bench, with_disks(bench.plan(), data=1))
        vm = bench.state(plan).backend_id
        bench.target.snapshot(vm)
        wanted = with_disks(plan, data=_LARGE)
        with pytest.raises(NeedsOperator) as refusal:
            follow(bench, wanted)
        assert refusal.value.reason is Reason.BLOCKED_BY_SNAPSHOT
        assert _sizes(bench, plan)["data"] == 1
        off = replace(wanted, power=PowerState.POWERED_OFF, power_off_mode=PowerOffMode.HARD)
        bench.until("it is stopped all the same", lambda: _is_off(bench, off))
        bench.target.drop_snapshots(vm)
        follow(bench, off)
        assert _sizes(bench, plan)["data"] == _LARGE

    def test_a_disk_that_is_to_go_is_destroyed_or_kept_as_told(self, bench: Bench) -> None:
        keeper = _keeper(bench)
        plan = _running(bench, with_disks(bench.plan(), scratch=1, data=1))
        scratch = _named(bench, plan, "scratch")
        less = replace(
            plan,
            disks=plan.disks[:1],
            removals=(DiskRemoval("scratch", None), DiskRemoval("data", "web-data-1")),
        )
        follow(bench, less)
        assert [disk.name for disk in bench.state(plan).disks] == ["root"]
        assert not bench.state(plan).lost_disks, "what was taken off as asked is not lost"
        assert not bench.target.disk_exists(scratch.id), "the disk was not destroyed"
        assert _kept(bench, keeper, plan) == {"web-data-1"}

    def test_a_disk_that_nobody_asks_about_stays(self, bench: Bench) -> None:
        plan = with_disks(bench.plan(), data=1)
        ref = seen(plan, bench.ensure(plan))
        foreign = bench.target.attach_foreign_disk(ref.backend_id or "")
        less = replace(plan, disks=plan.disks[:1], cpus=2)
        follow(bench, less)
        assert {disk.name for disk in bench.state(plan).disks} == {"root", "data", None}
        gone = replace(less, removals=(DiskRemoval(foreign, None),))
        follow(bench, gone)
        assert bench.target.disk_exists(foreign)

    def test_a_disk_that_somebody_took_off_is_never_made_anew_and_outlives_the_vm(
        self, bench: Bench
    ) -> None:
        """No VM refers to it any more, which is no reason to destroy it (identity 6.9)."""
        plan = with_disks(bench.plan(), data=1)
        ref = seen(plan, bench.ensure(plan))
        data = _named(bench, plan, "data")
        bench.target.take_off_disk(ref.backend_id or "", data.id)
        bench.until("it is missed", lambda: bench.state(plan).lost_disks == ("data",))
        follow(bench, replace(plan, cpus=2))
        assert [disk.name for disk in bench.state(plan).disks] == ["root"]
        assert bench.target.disk_exists(data.id)
        bench.delete(ref, plan)
        assert bench.named(plan) == []
        assert bench.target.disk_exists(data.id), "it was destroyed with the VM"


class KeptDiskConformance(Benched):
    """What is kept outlives its VM, is found by its own namespace, and is had by one at a time."""

    def test_a_kept_disk_is_attached_again(self, bench: Bench) -> None:
        keeper = _keeper(bench)
        plan = with_disks(bench.plan(), data=1)
        _destroy(bench, keeper, plan, {"data": "web-data-1"})
        (kept,) = _listed(bench, keeper, plan.ref.owner.installation_id)
        assert (kept.id, kept.namespace) == ("web-data-1", "tests")
        assert plan.failure_domain.id in kept.failure_domains
        other = with_existing(bench, plan, "other", "web-data-1", size=_LARGE)
        bench.ensure(other)
        follow(bench, other)
        assert _named(bench, other, "old").size_gib == _LARGE, "it did not grow as asked"
        assert bench.state(other).power == PowerState.POWERED_ON
        assert _kept(bench, keeper, plan) == set(), "what is attached is not kept as well"
        _destroy(bench, keeper, other, {"old": "web-data-1"})
        assert _kept(bench, keeper, plan) == {"web-data-1"}, "it is found by the same id again"

    def test_nobody_elses_disk_is_found(self, bench: Bench) -> None:
        keeper = _keeper(bench)
        plan = with_disks(bench.plan(), data=1)
        _destroy(bench, keeper, plan, {"data": "web-data-1"})
        owner = plan.ref.owner
        for stranger in (
            replace(owner, namespace="others"),
            replace(owner, installation_id="another-installation"),
        ):
            assert keeper.kept_disk(stranger, "web-data-1") is None
        assert keeper.kept_disk(owner, "web-data-2") is None
        assert keeper.kept_disk(owner, f"../{owner.namespace}/web-data-1") is None
        assert keeper.kept_disk(replace(owner, name="any"), "web-data-1") is not None
        assert not _listed(bench, keeper, "another-installation")

    def test_a_vm_never_starts_without_a_disk_that_is_not_there(self, bench: Bench) -> None:
        _keeper(bench)
        wanted = with_existing(bench, bench.plan(), "other", "web-data-9")
        assert not _gets(bench, wanted)
        state = bench.look(wanted.ref)
        assert state is None or state.power == PowerState.POWERED_OFF

    def test_only_one_of_two_vms_gets_a_disk(self, bench: Bench) -> None:
        keeper = _keeper(bench)
        plan = with_disks(bench.plan(), data=1)
        _destroy(bench, keeper, plan, {"data": "web-data-1"})
        rivals = [with_existing(bench, plan, name, "web-data-1") for name in ("one", "two")]
        won = [rival for rival in rivals if _gets(bench, rival)]
        assert len(won) == 1, f"{len(won)} VMs got the one disk"

    def test_keeping_survives_the_death_of_a_process(self, bench: Bench) -> None:
        """The next process finishes what was begun, whoever asks it for what."""
        keeper = _keeper(bench)
        plan = with_disks(bench.plan(), data=1)
        ref = seen(plan, bench.ensure(plan))
        _stop(bench, plan)
        task = keeper.keep_disks(ref, {"data": "web-data-1"})
        assert task is not None
        bench.finish(task)
        with bench.connect() as later:
            again = Bench(bench.target, later)
            again.delete(ref, plan)
            assert again.named(plan) == []
            assert _kept(again, _keeper(again), plan) == {"web-data-1"}


# What these tests do again and again


def with_disks(plan: AnyPlan, **sizes: int) -> AnyPlan:
    """The plan with data disks of these names and sizes, and no others."""
    root = plan.disks[0]
    disks = tuple(DiskPlan(name, size, root.storage) for name, size in sizes.items())
    return replace(plan, disks=(root, *disks))


def with_existing(
    bench: Bench, plan: AnyPlan, name: str, kept: str, size: int | None = None
) -> AnyPlan:
    """A plan of another machine of the same namespace that has a kept disk as its disk `old`."""
    made = bench.plan(name)
    owner = replace(made.ref.owner, installation_id=plan.ref.owner.installation_id)
    ref = replace(made.ref, owner=owner, name=backend_name(owner, 0))
    old = DiskPlan("old", size, made.disks[0].storage, existing=kept)
    mark = Mark(owner, ref.uuid or "")
    return replace(made, ref=ref, mark=mark, disks=(*made.disks, old))


def follow(bench: Bench, plan: AnyPlan) -> None:
    """Take all steps towards a plan; a size that comes into force with a restart may be left."""

    def step() -> Task | None:
        try:
            return bench.driver.update(plan, bench.state(plan))
        except NeedsOperator as refusal:
            if refusal.reason is not Reason.RESTART_REQUIRED:
                raise
            return None

    bench.run(plan, step)


def _running(bench: Bench, plan: AnyPlan) -> AnyPlan:
    bench.ensure(plan)
    bench.until("the VM is on", lambda: bench.state(plan).power == PowerState.POWERED_ON)
    return plan


def _is_off(bench: Bench, plan: AnyPlan) -> bool:
    """Take steps until it is off, whatever else of the plan is blocked."""
    state = bench.state(plan)
    if state.power == PowerState.POWERED_OFF:
        return True
    try:
        bench.finish(bench.driver.update(plan, state))
    except Transient:
        return False
    return False


def _stop(bench: Bench, plan: AnyPlan) -> None:
    off = replace(plan, power=PowerState.POWERED_OFF, power_off_mode=PowerOffMode.HARD)
    follow(bench, off)


def _sizes(bench: Bench, plan: AnyPlan) -> dict[str | None, int | None]:
    return {disk.name: disk.size_gib for disk in bench.state(plan).disks}


def _named(bench: Bench, plan: AnyPlan, name: str) -> DiskState:
    return next(disk for disk in bench.state(plan).disks if disk.name == name)


def _keeper(bench: Bench) -> DiskKeeper:
    if not isinstance(bench.driver, DiskKeeper):
        pytest.skip("the driver keeps no disks: it lacks the methods of sdk.powers.DiskKeeper")
    return bench.driver


def _listed(bench: Bench, keeper: DiskKeeper, installation_id: str) -> Sequence[KeptDisk]:
    """The kept disks of an installation, asked for until the driver has found out."""
    found: list[Sequence[KeptDisk]] = []

    def known() -> bool:
        answer = keeper.kept_disks(installation_id)
        found.extend(() if answer is None else (answer,))
        return answer is not None

    bench.until("the kept disks are listed", known)
    return found[-1]


def _kept(bench: Bench, keeper: DiskKeeper, plan: AnyPlan) -> set[str]:
    """Ids of the disks kept for the owner's installation, as the owner itself finds them too."""
    owner = plan.ref.owner
    found = _listed(bench, keeper, owner.installation_id)
    listed = {disk.id for disk in found if disk.namespace == owner.namespace}
    assert all(keeper.kept_disk(owner, disk) for disk in listed), "a listed disk is not found"
    return listed


def _destroy(bench: Bench, keeper: DiskKeeper, plan: AnyPlan, kept: Mapping[str, str]) -> None:
    """Destroy a VM as the machine reconciler does, with the disks that are kept."""
    ref = seen(plan, bench.ensure(plan))
    bench.run(plan, lambda: keeper.keep_disks(ref, kept))
    bench.delete(ref, plan)
    assert bench.named(plan) == []


def _gets(bench: Bench, plan: AnyPlan) -> bool:
    try:
        bench.ensure(plan)
        follow(bench, plan)
    except NeedsOperator as error:
        if error.reason in {Reason.DISK_NOT_FOUND, Reason.DISK_IN_USE}:
            return False
        raise
    return True
