"""Fields that only one backend has: what differs, what lacks, what a machine is made from."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic import Field

from banlieue.api.meta import ResourceObject
from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDERS
from banlieue.sdk.driver import MachineState
from banlieue.sdk.errors import FieldLacks
from banlieue.sdk.simulated.models import (
    SIMULATED_MACHINES,
    SimulatedMachine,
    SimulatedMachineSpec,
)
from test.kit.machinebench import MACHINE, PROVIDER, MachineBench

RED = {"color": "red", "color[inner]": "red"}


class Spec(SimulatedMachineSpec):
    """A machine with fields of its own."""

    template: str | None = None
    color: str | None = None

    @property
    def own_image(self) -> str | None:
        return self.template


class OwnMachine(SimulatedMachine):
    """A kind with these fields."""

    spec: Spec = Field(description="What the machine should be.")


class Painter:
    """A driver that can paint, or is not allowed to."""

    def __init__(self, driver: Any) -> None:  # noqa: ANN401 - any driver
        self._driver = driver
        self.facts: dict[str, str] = {"color": "white"}
        self.allowed = True

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the driver has it
        return getattr(self._driver, name)

    def observe(self, ref: Any) -> MachineState | None:  # noqa: ANN401 - a MachineRef
        seen: MachineState | None = self._driver.observe(ref)
        return replace(seen, facts=dict(self.facts)) if seen else None

    def update(self, plan: Any, seen: MachineState) -> Any:  # noqa: ANN401 - as drivers have it
        task = self._driver.update(plan, seen)
        if task is None and plan.spec.color and not self.allowed:
            raise FieldLacks(
                "color", Reason.PROVIDER_PERMISSION_DENIED, "no right to paint; grant it"
            )
        if task is None and plan.spec.color:
            self.facts = dict(RED)
        return task


def _differs(spec: Any, seen: MachineState) -> tuple[str, ...]:  # noqa: ANN401 - a Spec
    return ("color",) if spec.color and seen.facts.get("color") != spec.color else ()


def _bench() -> tuple[MachineBench, Painter]:
    bench = MachineBench()
    different: Callable[[Any, MachineState], tuple[str, ...]] = _differs
    others = (it for it in bench.backend.kinds if it is not SimulatedMachine)
    kinds: tuple[type[ResourceObject], ...] = (OwnMachine, *others)
    bench.backend = replace(bench.backend, machine_spec=Spec, kinds=kinds, differing=different)
    allowed = {"template": ["*"], "color": ["*"]}
    bench.api.edit(
        PROVIDERS, PROVIDER, lambda obj: obj["spec"].update(policy={"concreteFields": allowed})
    )
    bench.restart()
    painter = Painter(bench.served.driver)
    bench.served.driver = painter
    return bench, painter


def _status(bench: MachineBench) -> dict[str, Any]:
    return dict(bench.machine()["status"])


async def test_what_differs_of_them_is_put_right_and_told() -> None:
    bench, painter = _bench()
    bench.make_machine(color="red")
    await bench.run()
    assert painter.facts == RED
    assert bench.condition("UpToDate")[0] == "True"
    assert _status(bench)["facts"] == {"color": "red"}, "what has an index is not for people"


async def test_a_field_that_lacks_is_told_and_the_machine_is_ready() -> None:
    bench, painter = _bench()
    painter.allowed = False
    bench.make_machine(color="red")
    await bench.run()
    assert bench.condition("Ready")[0] == "True"
    assert bench.condition("UpToDate") == ("False", "ProviderPermissionDenied")
    assert "color" in _status(bench)["pendingChanges"]
    bench.clock.advance(400)
    await bench.run()  # the guest came up meanwhile
    writes = len(bench.api.writes())
    for _ in range(5):
        bench.clock.advance(400)
        await bench.run()
    assert len(bench.api.writes()) == writes, "what lacks the same way is told once"
    painter.allowed = True
    bench.clock.advance(400)
    await bench.run()
    assert bench.condition("UpToDate")[0] == "True"


async def test_a_machine_is_made_from_what_it_names_itself() -> None:
    bench, _ = _bench()
    bench.make_machine(imageRef=None, template="ubuntu-24.04")
    await bench.run()
    assert len(bench.vms()) == 1
    assert bench.condition("Ready")[0] == "True"


async def test_what_it_names_itself_and_is_not_there_is_told() -> None:
    bench, _ = _bench()
    bench.make_machine(template="nothing")
    await bench.run(passes=3)
    assert not bench.vms()
    assert bench.condition("Ready") == ("False", "ImageNotAvailable")
    bench.api.edit(
        SIMULATED_MACHINES, MACHINE, lambda obj: obj["spec"].update(template="ubuntu-24.04")
    )
    bench.clock.advance(600)
    await bench.run()
    assert len(bench.vms()) == 1
