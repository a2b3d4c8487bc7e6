"""The kinds of machines there are: two, as one VM may move between two kinds of backend."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from banlieue.api.infrastructure.template import machine_definition
from banlieue.api.markers import Definition
from banlieue.api.meta import Resource
from banlieue.api.resources import infrastructure
from banlieue.sdk.backend import Backend
from banlieue.sdk.simulated.backend import simulated_backend
from banlieue.sdk.simulated.connect import Connector
from banlieue.sdk.simulated.models import (
    SIMULATED_MACHINES,
    SimulatedMachine,
    SimulatedMachineSpec,
)

OTHER_MACHINES = infrastructure("OtherMachine")


class OtherMachine(SimulatedMachine):
    """A machine of another kind of backend that does the same."""

    resource: ClassVar[Resource] = OTHER_MACHINES
    definition: ClassVar[Definition] = machine_definition("othm")


MACHINE_KINDS: tuple[Resource, ...] = (SIMULATED_MACHINES, OTHER_MACHINES)

SIMULATED = "simulated"
"""The class of Providers wherever there is no need for two."""

CLASSES: dict[str, Resource] = {SIMULATED: SIMULATED_MACHINES, "other": OTHER_MACHINES}
"""The machine kind of every ProviderClass, which is named as its backend."""

BY_NAME = {kind.kind: kind for kind in MACHINE_KINDS}


def backend(of_class: str, connector: Connector) -> Backend[SimulatedMachineSpec]:
    """The backend of a ProviderClass."""
    simulated = simulated_backend(connector)
    if of_class == simulated.name:
        return simulated
    return replace(
        simulated,
        name=of_class,
        machine=CLASSES[of_class],
        kinds=(OtherMachine,),
        provider_id_scheme=of_class,
    )
