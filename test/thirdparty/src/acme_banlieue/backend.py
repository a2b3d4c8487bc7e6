"""The Acme backend: a kind, a translation, a driver, and what the entry point names."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.infrastructure.machine import MACHINE_RULES, Machine, MachineSpec
from banlieue.api.infrastructure.template import machine_definition
from banlieue.api.markers import Definition
from banlieue.api.meta import Resource
from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.api.v1alpha1.vmimage import ImageSource
from banlieue.sdk.backend import Backend
from banlieue.sdk.driver import (
    About,
    Connection,
    DiskState,
    Driver,
    FailureDomain,
    Image,
    MachinePlan,
    MachineRef,
    MachineState,
    Task,
)
from banlieue.sdk.errors import NeedsOperator
from banlieue.sdk.simulated.connect import Connector, Worlds
from banlieue.sdk.simulated.driver import SimulatedDriver

ACME_MACHINES = Resource("infrastructure.acme.example", "v1", "AcmeMachine", "acmemachines")

_WORDS = {"shelf": "pool", "wire": "network"}
"""Acme's words in targets, and what the simulated world calls them."""


class AcmeMachineSpec(MachineSpec):
    """What a machine on Acme should be: the common part and a rack."""

    rack: Annotated[str, MaxLen(63)] | None = Field(
        default=None, description="Rack the machine is filed under, for people."
    )


class AcmeMachine(Machine):
    """A machine on Acme."""

    resource: ClassVar[Resource] = ACME_MACHINES
    definition: ClassVar[Definition] = machine_definition("acmem")
    cel = MACHINE_RULES

    spec: AcmeMachineSpec = Field(description="What the machine should be.")


class AcmeDriver:
    """A driver with inventory, detaching and unmarking; it has no change feed."""

    def __init__(self, world: SimulatedDriver) -> None:
        self._world = world

    def about(self) -> About:
        """Who answers."""
        return self._world.about()

    def failure_domains(self) -> Sequence[FailureDomain]:
        """The failure domains, with Acme in their path."""
        return [
            replace(domain, path=("acme", *domain.path)) for domain in self._world.failure_domains()
        ]

    def find_image(self, image: ImageSource, where: FailureDomain) -> Image | None:
        """The image of that name."""
        return self._world.find_image(image, where)

    def observe(self, ref: MachineRef) -> MachineState | None:
        """The machine's VM; None proves its absence."""
        return self._world.observe(ref)

    def create(self, plan: MachinePlan[AcmeMachineSpec]) -> Task | None:
        """Start making the VM."""
        return self._world.create(_translate(plan))

    def update(self, plan: MachinePlan[AcmeMachineSpec], seen: MachineState) -> Task | None:
        """Take one step towards the plan."""
        return self._world.update(_translate(plan), seen)

    def delete(self, ref: MachineRef) -> Task | None:
        """Take one step towards "gone"."""
        return self._world.delete(ref)

    def poll(self, task: Task) -> Task | None:
        """The task while it runs."""
        return self._world.poll(task)

    def marked(self) -> Sequence[MachineState]:
        """Every VM with a mark."""
        return self._world.marked()

    def detach_disks(self, ref: MachineRef, disks: Sequence[DiskState]) -> Task | None:
        """Detach disks without deleting them."""
        return self._world.detach_disks(ref, disks)

    def remove_mark(self, ref: MachineRef) -> Task | None:
        """Take the mark off the VM."""
        return self._world.remove_mark(ref)


def _translate(plan: MachinePlan[AcmeMachineSpec]) -> MachinePlan[Any]:
    rack = {"acme-rack": plan.spec.rack} if plan.spec.rack else {}
    return replace(
        plan,
        disks=tuple(replace(disk, storage=_target(disk.storage)) for disk in plan.disks),
        nics=tuple(replace(nic, network=_target(nic.network)) for nic in plan.nics),
        tags={**plan.tags, **rack},
    )


def _target(target: Mapping[str, str | int]) -> dict[str, str | int]:
    return {_WORDS[key]: value for key, value in target.items()}


def _capabilities(declared: Capabilities) -> Capabilities:
    classes = declared.model_copy(deep=True)
    for storage in classes.storage_classes:
        storage.target = _target(storage.target)
    for network in classes.network_classes:
        network.target = _target(network.target)
    return classes


class AcmeConnect:
    """Opens sessions to Acme, which is only reached over HTTP."""

    def __init__(self, call_timeout: float = 5.0) -> None:
        self._connector = Connector(Worlds(), monotonic=time.monotonic, call_timeout=call_timeout)

    @contextmanager
    def __call__(self, to: Connection) -> Iterator[Driver[AcmeMachineSpec]]:
        """Log in; raises `DriverError`."""
        if not all(endpoint.startswith("http://") for endpoint in to.endpoints):
            raise NeedsOperator(
                Reason.INVALID_CONFIGURATION, "Acme is reached at http:// addresses only"
            )
        inner = replace(to, capabilities=_capabilities(to.capabilities))
        with self._connector(inner) as world:
            yield AcmeDriver(world)


BACKEND = Backend(
    name="acme",
    machine_spec=AcmeMachineSpec,
    machine=ACME_MACHINES,
    kinds=(AcmeMachine,),
    connect=AcmeConnect(),
    storage_target_keys=frozenset({"shelf"}),
    network_target_keys=frozenset({"wire"}),
    provider_id_scheme="acme",
)
