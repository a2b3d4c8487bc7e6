"""MAC addresses that somebody chose: who is in the way, and who is not."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.creates import Create, Creates, Stage
from banlieue.providers.vsphere.client.soap import Found
from banlieue.providers.vsphere.hardware import macs
from banlieue.providers.vsphere.hardware.macs import Macs
from banlieue.providers.vsphere.places.inventory import Network
from banlieue.providers.vsphere.watching.records import MARK
from banlieue.sdk.driver import NicPlan
from banlieue.sdk.errors import InvalidSpec, NeedsOperator
from banlieue.sdk.identity import Mark
from banlieue.sdk.testing.fakes import FakeClock
from test.kit.vsphere_places import OWNER, UUID, plan

MAC, OTHER = "00:50:56:01:02:03", "00000000-0000-4000-8000-000000000002"
PROD, TEST = Network("network-1", "prod", "group-n1"), Network("network-2", "test", "group-n1")


class World:
    """A vCenter with VMs that have one card each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.vms: dict[str, Found] = {}
        self.calls = 0
        self.clock = FakeClock()
        self.creates = Creates(self.clock.monotonic, 60.0)
        content = SimpleNamespace(root_folder="group-d1")
        session = cast("Any", SimpleNamespace(login=SimpleNamespace(content=content)))
        self.macs = Macs(session=session, creates=self.creates, monotonic=self.clock.monotonic)
        monkeypatch.setattr(macs, "walk", self._walk)
        monkeypatch.setattr(macs, "read", self._read)

    def put(
        self, vm: str, mac: str, network: Network = PROD, uuid: str = "", mark: str = ""
    ) -> None:
        card = vim.vm.device.VirtualVmxnet3(key=4000, macAddress=mac)
        values: dict[str, object] = {
            "name": vm,
            "network": [vim.Network(network.id, None)],
            "config.instanceUuid": uuid,
            "config.hardware.device": [card],
        }
        if mark:
            values[MARK] = vim.option.OptionValue(key="banlieue.mark", value=mark)
        self.vms[vm] = Found("VirtualMachine", vm, values)

    def _walk(self, *_: object) -> list[Found]:
        self.calls += 1
        return list(self.vms.values())

    def _read(self, _: object, start: Mapping[str, object], paths: object) -> list[Found]:
        assert paths
        self.calls += 1
        return [self.vms[key] for key in start]

    def check(self, uuid: str = UUID, *cards: tuple[NicPlan, Network]) -> None:
        wanted = plan()
        wanted = replace(wanted, ref=replace(wanted.ref, uuid=uuid))
        self.macs.check(wanted, cards or ((NicPlan("eth0", {}, MAC), PROD),))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_addresses_that_nobody_chose_cost_no_call(world: World) -> None:
    world.check(UUID, (NicPlan("eth0", {}), PROD))
    assert world.calls == 0


def test_a_vm_on_the_network_is_in_the_way_and_one_elsewhere_is_not(world: World) -> None:
    world.put("web", MAC.upper(), TEST)
    world.check()
    world.put("db", MAC.upper())
    with pytest.raises(NeedsOperator, match="interface eth0: VM db") as refused:
        world.check()
    assert refused.value.reason is Reason.INVALID_CONFIGURATION


def test_a_machine_is_not_in_its_own_way_nor_in_that_of_its_move(world: World) -> None:
    world.put("self", MAC, uuid=UUID.upper())
    world.put("previous", MAC, uuid=OTHER, mark=Mark(OWNER, OTHER).encode())
    world.check()
    # A copy of a VM of ours carries its mark, and is somebody else's.
    world.put("copy", MAC, uuid="another", mark=Mark(OWNER, OTHER).encode())
    with pytest.raises(NeedsOperator, match="VM copy"):
        world.check()


def test_two_cards_of_one_machine_cannot_share_one(world: World) -> None:
    second = NicPlan("eth1", {}, MAC.upper())
    with pytest.raises(InvalidSpec, match="eth0 and eth1"):
        world.check(UUID, (NicPlan("eth0", {}, MAC), PROD), (second, TEST))


def test_of_two_that_come_at_once_the_first_has_it_until_its_create_is_over(world: World) -> None:
    world.check()
    create = Create("web-abc", UUID, "vm-9", None, 512, since=world.clock.monotonic())
    assert world.creates.begin(create)
    world.check()
    world.clock.advance(300.0)
    with pytest.raises(NeedsOperator, match="being made"):
        world.check(OTHER)
    world.creates.end(create, Stage.FAILED)
    world.check(OTHER)
    with pytest.raises(NeedsOperator, match="being made"):
        world.check()


def test_one_that_never_came_to_its_create_holds_it_for_seconds(world: World) -> None:
    world.check()
    with pytest.raises(NeedsOperator, match="being made"):
        world.check(OTHER)
    world.clock.advance(11.0)
    world.check(OTHER)
