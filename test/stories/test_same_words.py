"""Every backend tells the same story in the same words.

Two backends are at work in one installation, and the same is done on both at the same time: what
the VirtualMachines said meanwhile is compared.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from banlieue.sdk.powers import Adoption
from banlieue.sdk.testing.conformance_target import RawVm
from test.kit.backend_admin import admin_of
from test.kit.controlplane import ControlPlane
from test.kit.stack import Object, condition
from test.kit.story import STORAGE, Story, joined_by, told_on
from test.kit.targets import SIMULATED, VSPHERE, new_target
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

SLOW_TASKS: Final = 2.0
SLOW_GUESTS: Final = 4.0
"""Seconds that tasks and guests take longer, so that all that happens is told."""
MINUTES: Final = 120.0

LARGE = """
    apiVersion: banlieue.io/v1alpha1
    kind: VMClass
    metadata: {name: large}
    spec:
      hardware:
        cpus: 2
        memoryMiB: 1024
        disks: [{name: root, storageClass: standard}]
      network: {interfaces: [{name: eth0, networkClass: lan}]}
"""


@dataclass(frozen=True)
class Side:
    """One of the backends."""

    story: Story
    backend: str
    provider: str

    def name(self, life: str) -> str:
        """The VirtualMachine that leads a life here."""
        return f"{life}-{self.backend}"

    def vm(self, life: str, **spec: Any) -> None:  # noqa: ANN401 - JSON
        """Apply a VirtualMachine that stays on this side."""
        pin = {"namespace": self.story.registered.stack.namespace, "name": self.provider}
        self.story.vm(self.name(life), providerRef=pin, **spec)

    def existing(self) -> RawVm:
        """A VM that somebody made long ago, and whose guest runs."""
        target = self.story.registered.target
        with target.backend.connect(target.connection()) as driver:
            made = target.make_existing("legacy", target.failure_domain(driver))
            if not isinstance(driver, Adoption):
                raise TypeError(f"backend {self.backend} cannot adopt")
            adoption: Adoption = driver
            (found,) = [it for it in target.vms() if it.id == made]

            def up() -> bool:
                seen = adoption.find(found.uuid)
                return seen is not None and bool(seen.state.addresses)

            wait_until(up, MINUTES, "the guest to have booted")
        return found

    def said(self, life: str) -> str:
        """What its VirtualMachine said, one thing after the other."""
        found = self.story.watched.status.values("VirtualMachine", self.name(life), _words)
        return "\n".join(found)


@dataclass(frozen=True)
class Both:
    """Both backends, and what is done to a life on each of them."""

    sides: tuple[Side, ...]

    def vm(self, life: str, **spec: Any) -> None:  # noqa: ANN401 - JSON
        """Apply a VirtualMachine."""
        for side in self.sides:
            side.vm(life, **spec)

    def edit(self, life: str, **spec: Any) -> None:  # noqa: ANN401 - JSON
        """Edit its spec."""
        for side in self.sides:
            side.story.edit(side.name(life), **spec)

    def sees(self, life: str, what: Callable[[Object], object], told: str) -> None:
        """Wait until it is so, and the spec is met."""

        def so(vm: Object) -> bool:
            met = (vm.get("status") or {}).get("observedGeneration") == vm["metadata"]["generation"]
            return bool(met and what(vm))

        for side in self.sides:
            side.story.sees(side.name(life), so, MINUTES, told=f"{side.name(life)} {told}")

    def says(self, life: str, kind: str, status: str, reason: str) -> None:
        """Wait until a condition is so."""
        self.sees(life, lambda vm: condition(vm, kind) == (status, reason), f"{kind} {reason}")

    def phase(self, life: str, phase: str) -> None:
        """Wait for a phase."""
        self.sees(life, lambda vm: vm["status"]["phase"] == phase, phase)

    def settled(self, life: str) -> None:
        """Wait until it runs, has its addresses, and nothing is left to do."""

        def so(vm: Object) -> bool:
            kinds = ("Ready", "UpToDate", "AddressesAvailable", "PowerStateSynced")
            return vm["status"]["phase"] == "Running" and all(
                condition(vm, kind)[0] == "True" for kind in kinds
            )

        self.sees(life, so, "settled")

    def delete(self, life: str) -> None:
        """Delete it and see it go."""
        for side in self.sides:
            side.story.kube.delete("virtualmachines", side.name(life), side.story.team)
        for side in self.sides:
            side.story.registered.gone(side.name(life))


def hello(both: Both) -> None:
    """Made, stopped, started and destroyed."""
    both.settled("hello")
    both.edit("hello", desiredPowerState="PoweredOff", powerOffMode="Hard")
    both.phase("hello", "Stopped")
    both.edit("hello", desiredPowerState="PoweredOn")
    both.settled("hello")
    both.delete("hello")


def grow(both: Both) -> None:
    """A disk grows while it runs, and it gets another size while it is off."""
    data = {"name": "data", "sizeGiB": 1, "storageClass": STORAGE}
    both.settled("grow")
    both.edit("grow", disks=[{**data, "sizeGiB": 2}])
    both.sees("grow", lambda vm: _disk(vm) == 2, "has the larger disk")
    both.settled("grow")
    both.edit("grow", desiredPowerState="PoweredOff", powerOffMode="Hard")
    both.phase("grow", "Stopped")
    both.edit("grow", classRef={"name": "large"})
    both.sees("grow", lambda vm: _size(vm) == (2, 1024), "is large")
    both.says("grow", "UpToDate", "True", "UpToDate")
    both.edit("grow", desiredPowerState="PoweredOn")
    both.settled("grow")
    # Less memory is what no backend takes away from a guest that runs.
    both.edit("grow", classRef={"name": "small"})
    both.says("grow", "UpToDate", "False", "RestartRequired")


def plug_pulled(both: Both) -> None:
    """Somebody pulls the plug."""
    for side in both.sides:
        vm = side.story.registered.vms_of(side.name("drift"))[0]
        side.story.admin.power_off(vm.id)
    both.says("drift", "PowerStateSynced", "False", "DriftDetected")


def put_right(both: Both) -> None:
    """It is started again."""
    both.settled("drift")
    for side in both.sides:
        side.story.hears(side.name("drift"), "DriftCorrected")


def adopt(both: Both) -> None:
    """A VM is told of, taken over, and let go."""
    both.sees("adopt", lambda vm: vm["status"].get("resources"), "is told of")
    both.says("adopt", "Ready", "False", "AdoptionPending")
    both.edit("adopt", adopt={"accepted": True})
    both.settled("adopt")
    both.delete("adopt")


@pytest.fixture(scope="module")
def told(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Side, ...]]:
    """What both said when all of it had happened."""
    directory = tmp_path_factory.mktemp("same-words")
    with (
        new_target(VSPHERE, directory) as target,
        new_target(SIMULATED, directory) as second,
        told_on(target, control_plane, directory) as story,
    ):
        other = joined_by(story, second, "other")
        story.watched.planted.extend(second.secrets)
        running = replace(story.running, registered=other)
        sides = (
            Side(story, VSPHERE, story.registered.provider),
            Side(replace(story, running=running, admin=admin_of(second)), SIMULATED, "other"),
        )
        _live(Both(sides))
        wait_until(story.watched.status.caught_up, 30, "the watch")
        yield sides
        story.ended()


def _live(both: Both) -> None:
    """Every life, side by side: what waits for the one goes on in the others."""
    story = both.sides[0].story
    story.given(LARGE)
    for side in both.sides:
        name, namespace = side.provider, side.story.registered.stack.namespace
        policy = {"adoption": {"allowedNamespaces": {"from": "All"}}}
        side.story.kube.patch("providers", name, {"spec": {"policy": policy}}, namespace)
    before = {side.backend: side.existing() for side in both.sides}
    with ExitStack() as slow:
        for side in both.sides:
            side.story.admin.slow_guests(SLOW_GUESTS)
            slow.enter_context(side.story.registered.target.slow_tasks(SLOW_TASKS))
        both.vm("drift")
        both.vm("hello")
        both.vm("grow", disks=[{"name": "data", "sizeGiB": 1, "storageClass": STORAGE}])
        for side in both.sides:
            _take_over(side, before[side.backend])
        both.settled("drift")
        plug_pulled(both)
        # It is put right after half a minute.
        hello(both)
        adopt(both)
        grow(both)
        put_right(both)


def _take_over(side: Side, vm: RawVm) -> None:
    side.story.kube.apply(
        {
            "apiVersion": "banlieue.io/v1alpha1",
            "kind": "VirtualMachine",
            "metadata": {"namespace": side.story.team, "name": side.name("adopt")},
            "spec": {
                "providerRef": {
                    "namespace": side.story.registered.stack.namespace,
                    "name": side.provider,
                },
                "adopt": {"id": vm.uuid},
            },
        }
    )


@pytest.mark.parametrize("life", ["hello", "grow", "drift", "adopt"])
def test_a_life_is_told_in_the_same_words_on_every_backend(
    told: tuple[Side, ...], life: str
) -> None:
    """Story 1: hello, and the transcripts of its status compared, as of other lives."""
    first, *others = (side.said(life) for side in told)
    assert first.count("Ready=True/Ready"), "it never was ready"
    for other in others:
        assert other == first


def _disk(vm: Object) -> object:
    disks = vm["status"].get("resources", {}).get("disks", [])
    return next((it["sizeGiB"] for it in disks if it["name"] == "data"), None)


def _size(vm: Object) -> tuple[object, object]:
    found = vm["status"]["resources"]
    return found["cpus"], found["memoryMiB"]


def _words(vm: Object) -> str:
    """Phase, and status and reason of each condition, in a text that can be compared by eye."""
    status = vm.get("status") or {}
    conditions = sorted(status.get("conditions") or (), key=lambda it: it["type"])
    said = [f"{it['type']}={it['status']}/{it['reason']}" for it in conditions]
    return "\n  ".join([status.get("phase", ""), *said])
