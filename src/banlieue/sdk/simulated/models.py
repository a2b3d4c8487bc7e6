"""The simulated kinds: the common machine and cluster with nothing added."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from banlieue.api.infrastructure.cluster import InfraCluster
from banlieue.api.infrastructure.machine import (
    Machine,
    MachineSpec,
    MachineTemplateSpec,
)
from banlieue.api.infrastructure.template import (
    InfraClusterTemplate,
    MachineTemplate,
    cluster_definition,
    machine_definition,
    machine_template_definition,
    template_definition,
)
from banlieue.api.markers import Definition, Rule
from banlieue.api.meta import Resource, ResourceObject
from banlieue.api.resources import infrastructure

SIMULATED_MACHINES = infrastructure("SimulatedMachine")
SIMULATED_MACHINE_TEMPLATES = infrastructure("SimulatedMachineTemplate")
SIMULATED_CLUSTERS = infrastructure("SimulatedCluster")
SIMULATED_CLUSTER_TEMPLATES = infrastructure("SimulatedClusterTemplate")


class SimulatedMachineSpec(MachineSpec):
    """What a simulated machine should be."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.imageRef) || has(self.adopt)",
            "imageRef is required without adopt: name a VMImage",
            ".imageRef",
        ),
    )


class SimulatedMachine(Machine):
    """A machine that exists in the memory of its provider, for demos and tests."""

    resource: ClassVar[Resource] = SIMULATED_MACHINES
    definition: ClassVar[Definition] = machine_definition("simm")

    spec: SimulatedMachineSpec = Field(description="What the machine should be.")


class SimulatedMachineTemplateSpec(MachineTemplateSpec):
    """What every simulated machine made from a template should be."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.imageRef)",
            "imageRef is required: name a VMImage",
            ".imageRef",
        ),
    )


class SimulatedMachineTemplate(MachineTemplate[SimulatedMachineTemplateSpec]):
    """What Cluster API makes simulated machines from. Immutable: rollouts replace it."""

    resource: ClassVar[Resource] = SIMULATED_MACHINE_TEMPLATES
    definition: ClassVar[Definition] = machine_template_definition("simmt")


class SimulatedCluster(InfraCluster):
    """A Kubernetes cluster over simulated Providers."""

    resource: ClassVar[Resource] = SIMULATED_CLUSTERS
    definition: ClassVar[Definition] = cluster_definition("simc")


class SimulatedClusterTemplate(InfraClusterTemplate):
    """What a ClusterClass makes simulated clusters from."""

    resource: ClassVar[Resource] = SIMULATED_CLUSTER_TEMPLATES
    definition: ClassVar[Definition] = template_definition("simct")


KINDS: tuple[type[ResourceObject], ...] = (
    SimulatedMachine,
    SimulatedMachineTemplate,
    SimulatedCluster,
    SimulatedClusterTemplate,
)
RESOURCES: tuple[Resource, ...] = tuple(kind.resource for kind in KINDS)
