"""A Provider lists the disks that outlived their machines."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from banlieue.api.reasons import Reason
from banlieue.sdk.driver import MachineRef, Task
from banlieue.sdk.errors import Transient, Unreachable
from banlieue.sdk.identity import Owner
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.powers import KeptDisk
from banlieue.sdk.reconcile import Change, Request
from banlieue.sdk.testing import scripted
from banlieue.sdk.testing.scripted import MACHINES, ScriptedDriver
from test.kit.providerbench import KEY, ProviderBench


@pytest.fixture
async def bench() -> Any:  # noqa: ANN401 - a generator of a bench
    bench = ProviderBench()
    yield bench
    await bench.stop()


class Keeper:
    """What is kept, as every session of the scripted backend tells it."""

    def __init__(self) -> None:
        self.disks: list[KeptDisk] = []
        self.broken = False

    def kept(self, installation_id: str) -> list[KeptDisk]:
        assert installation_id == "inst"
        if self.broken:
            raise Transient(Reason.PROVIDER_BUSY, "later")
        return self.disks


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Keeper:
    keeper = Keeper()

    class KeepingDriver(ScriptedDriver):
        """A scripted driver that keeps disks, too."""

        def keep_disks(self, ref: MachineRef, disks: Mapping[str, str]) -> Task | None:
            del ref, disks
            return None

        def kept_disk(self, owner: Owner, disk: str) -> KeptDisk | None:
            del owner, disk
            return None

        def kept_disks(self, installation_id: str) -> Sequence[KeptDisk]:
            return keeper.kept(installation_id)

    monkeypatch.setattr(scripted, "ScriptedDriver", KeepingDriver)
    return keeper


async def test_kept_disks_are_listed_with_whose_they_are(
    bench: ProviderBench, keeper: Keeper
) -> None:
    domain = next(iter(bench.endpoint.domains)).id
    keeper.disks = [
        KeptDisk("web-data-2", "team-b", None, ()),
        KeptDisk("db-data-1", "team-a", 5, (domain, "a-domain-that-is-gone")),
    ]
    await bench.run()
    listed = bench.provider.status.retained_disks
    assert [(disk.id, disk.namespace, disk.size_gib) for disk in listed] == [
        ("db-data-1", "team-a", 5),
        ("web-data-2", "team-b", None),
    ]
    names = [entry.name for entry in bench.provider.status.failure_domains]
    assert listed[0].failure_domains == [names[0]]


def changed(bench: ProviderBench, old: Sequence[str], new: Sequence[str] | None) -> list[Request]:
    """What is asked of the Provider when a machine's disks of those ids become these; it goes."""

    def machine(ids: Sequence[str]) -> Obj:
        obj = bench.add_machine("m", instance={"uuid": "u", "name": "m"})
        disks = [{"name": f"d{place}", "retainId": id_} for place, id_ in enumerate(ids)]
        return {**obj, "status": {"resources": {"disks": disks}}}

    controller = bench.reconciler.controller()
    (watch,) = [it for it in controller.watches if it.resource == MACHINES]
    after = None if new is None else machine(new)
    found = list(watch.map(Change(MACHINES, Key("ns", "m"), machine(old), after)))
    bench.api.drop(MACHINES, Key("ns", "m"))
    return found


@pytest.mark.parametrize("new", [[], None], ids=["taken off", "machine gone"])
async def test_a_disk_that_a_machine_let_go_of_is_listed_soon(
    bench: ProviderBench, keeper: Keeper, new: list[str] | None
) -> None:
    await bench.run_for(120)
    keeper.disks = [KeptDisk("m-data-1", "team-a", 5, ())]
    first, *_ = sorted(changed(bench, ["m-data-1"], new), key=lambda it: it.delay)
    assert first.key == KEY
    assert first.delay <= 10
    result = await bench.run(after=first.delay)
    if not bench.provider.status.retained_disks:  # the list was read a moment before
        assert result.requeue_after is not None
        assert result.requeue_after <= 10
        await bench.run(after=result.requeue_after)
    assert [disk.id for disk in bench.provider.status.retained_disks] == ["m-data-1"]


async def test_a_machine_that_keeps_its_disks_asks_for_no_list(bench: ProviderBench) -> None:
    await bench.run()
    assert not changed(bench, ["m-data-1"], ["m-data-1", "m-log-1"])


async def test_an_outage_is_not_asked_again_each_second_for_a_list(
    bench: ProviderBench, keeper: Keeper
) -> None:
    await bench.run()
    changed(bench, ["m-data-1"], [])
    keeper.broken = True
    bench.endpoint.fail["about"] = Unreachable("no answer")
    for _ in range(10):
        result = await bench.run(after=60)
    assert result.requeue_after is not None
    assert result.requeue_after > 5


async def test_a_list_that_cannot_be_read_stays_as_it_was(
    bench: ProviderBench, keeper: Keeper
) -> None:
    keeper.disks = [KeptDisk("db-data-1", "team-a", 5, ())]
    await bench.run()
    keeper.broken, keeper.disks = True, []
    await bench.run_for(60)
    assert [disk.id for disk in bench.provider.status.retained_disks] == ["db-data-1"]
    assert bench.ready[0] == "True"
    keeper.broken = False
    await bench.run_for(120)
    assert bench.provider.status.retained_disks == []


async def test_a_backend_that_keeps_none_lists_none(bench: ProviderBench) -> None:
    await bench.run()
    assert bench.provider.status.retained_disks == []
