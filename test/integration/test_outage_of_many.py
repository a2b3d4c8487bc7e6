"""A backend with hundreds of VMs is away for minutes: hardly anything is written about it.

Everything runs in this process under a virtual clock, so the minutes cost seconds.
"""

from collections import Counter
from collections.abc import Iterable

import pytest

from banlieue.sdk.kube import Obj
from banlieue.sdk.simulated.records import Vm
from test.kit.manyvms import PROVIDER, ManyVms

pytestmark = pytest.mark.slow

OUTAGE_SECONDS = 300.0
RECOVERY_SECONDS = 60.0
SETTLED_SECONDS = 60.0
EVENTS_PER_VM = 1
WRITES_PER_VM = 4


@pytest.mark.parametrize(("vms", "silent"), [(500, False), (30, True)])
def test_an_outage_costs_little_and_ends_by_itself(vms: int, *, silent: bool) -> None:
    names = [f"vm-{number}" for number in range(vms)]
    leaving, stopped, drifting = names[:10], names[10:15], names[15:18]
    late = [f"late-{number}" for number in range(5)]
    staying = [name for name in names if name not in {*leaving, *stopped, *drifting}]

    async def story(many: ManyVms) -> None:
        await many.until(lambda: many.provider_ready() == ("True", "Ready"), 60, "the Provider")
        for name in names:
            many.create(name)
        await many.until(lambda: many.all_ready(names), 600, "all to be Ready")
        await many.pass_time(SETTLED_SECONDS)
        placed = {name: identity(many, name) for name in names}
        wrote, told = many.positions()

        many.go_away(silent=silent)
        for name in leaving:
            many.delete(name)
        for name in stopped:
            many.edit(name, desiredPowerState="PoweredOff")
        for name in late:
            many.create(name)
        for name in drifting:
            many.world.act("set_power", vm=vm_of(many, name).id, power="PoweredOff")
        await many.pass_time(OUTAGE_SECONDS)
        assert many.provider_ready() == ("False", "ProviderUnreachable")
        assert {name: identity(many, name) for name in names} == placed, "nothing is placed anew"
        assert all(many.vm(name) for name in leaving), "a deletion waits for its backend"

        many.come_back()
        await many.until(lambda: settled(many), RECOVERY_SECONDS, "everything to be as it should")
        await many.pass_time(SETTLED_SECONDS)
        assert settled(many)

        writes, events = many.writes(wrote), many.events(told)
        for name in staying:
            assert len(events.get(name, ())) <= EVENTS_PER_VM, events[name]
            assert writes.get(name, Counter()).total() <= WRITES_PER_VM, writes[name]
            assert identity(many, name) == placed[name]
        assert [it.partition(":")[0] for it in events[PROVIDER]] == [
            "ProviderUnreachable",
            "ProviderRecovered",
        ]
        assert [many.controller.dead, many.provider.dead] == [False, False]

    def settled(many: ManyVms) -> bool:
        return (
            many.provider_ready() == ("True", "Ready")
            and not any(many.vm(name) or many.machine(name) for name in leaving)
            and many.all_ready([*staying, *drifting, *late])
            and powers(many, stopped) == {"PoweredOff"}
            and powers(many, drifting) == {"PoweredOn"}
            and len(many.vms()) == len(names) - len(leaving) + len(late)
        )

    ManyVms().play(story)


def identity(many: ManyVms, name: str) -> tuple[object, ...]:
    """What a VM that was placed anew, or lost, would have of another kind."""
    vm, machine = many.vm(name), many.machine(name)
    status: Obj = vm.get("status") or {}
    return status.get("scheduled"), machine["metadata"]["uid"], machine["spec"].get("providerID")


def powers(many: ManyVms, names: Iterable[str]) -> set[str]:
    return {vm_of(many, name).power for name in names}


def vm_of(many: ManyVms, name: str) -> Vm:
    uuid = many.machine(name)["spec"]["instance"]["uuid"]
    return next(vm for vm in many.vms() if vm.uuid == uuid)
