"""A Provider lists the disks that outlived their machines."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from banlieue.api.reasons import Reason
from banlieue.sdk.driver import MachineRef, Task
from banlieue.sdk.errors import Transient
from banlieue.sdk.identity import Owner
from banlieue.sdk.powers import KeptDisk
from banlieue.sdk.testing import scripted
from banlieue.sdk.testing.scripted import ScriptedDriver
from test.kit.providerbench import ProviderBench


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
