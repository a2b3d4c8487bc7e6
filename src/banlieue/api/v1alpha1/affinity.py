"""Which nodes a provider's pod prefers or needs, as in a pod's spec."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.meta import Model, Selector
from banlieue.api.types import LabelKey, NamespaceName

_Weight = Annotated[int, Field(ge=1, le=100)]


class NodeSelectorOperator(StrEnum):
    """How a node's label or field is compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class NodeRequirement(Model):
    """One requirement on a node."""

    key: LabelKey = Field(description="Label, or field of the node.")
    operator: NodeSelectorOperator = Field(description="How it is compared.")
    values: Annotated[list[Annotated[str, MaxLen(253)]], MaxLen(32)] = Field(
        default_factory=list, description="Values to compare with; none for Exists."
    )


class NodeSelectorTerm(Model):
    """Requirements on a node that hold together."""

    match_expressions: Annotated[list[NodeRequirement], MaxLen(16)] = Field(
        default_factory=list, description="Requirements on labels."
    )
    match_fields: Annotated[list[NodeRequirement], MaxLen(16)] = Field(
        default_factory=list, description="Requirements on fields, such as `metadata.name`."
    )


class NodeSelector(Model):
    """Nodes, by terms of which one has to hold."""

    node_selector_terms: Annotated[list[NodeSelectorTerm], MaxLen(16)] = Field(
        min_length=1, description="Terms, one of which has to hold."
    )


class PreferredNode(Model):
    """Nodes that are preferred."""

    weight: _Weight = Field(description="How much, from 1 to 100.")
    preference: NodeSelectorTerm = Field(description="The nodes.")


class NodeAffinity(Model):
    """Nodes the pod needs, and nodes it prefers."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = Field(
        default=None, description="Nodes the pod may be placed on. Absent: all."
    )
    preferred_during_scheduling_ignored_during_execution: Annotated[
        list[PreferredNode], MaxLen(16)
    ] = Field(default_factory=list, description="Nodes the pod is rather placed on.")


class PodAffinityTerm(Model):
    """Pods that run in the same place."""

    label_selector: Selector | None = Field(default=None, description="Labels of the pods.")
    topology_key: LabelKey = Field(description="Node label whose value makes a place.")
    namespaces: Annotated[list[NamespaceName], MaxLen(32)] = Field(
        default_factory=list, description="Namespaces of the pods. Default: the workload's."
    )
    namespace_selector: Selector | None = Field(
        default=None, description="Labels of further namespaces of the pods."
    )


class PreferredPods(Model):
    """Pods whose place is preferred, or avoided."""

    weight: _Weight = Field(description="How much, from 1 to 100.")
    pod_affinity_term: PodAffinityTerm = Field(description="The pods.")


class PodAffinity(Model):
    """Pods whose place the pod needs or prefers; in `podAntiAffinity`, whose place it avoids."""

    required_during_scheduling_ignored_during_execution: Annotated[
        list[PodAffinityTerm], MaxLen(16)
    ] = Field(default_factory=list, description="Terms, all of which have to hold.")
    preferred_during_scheduling_ignored_during_execution: Annotated[
        list[PreferredPods], MaxLen(16)
    ] = Field(default_factory=list, description="Terms that rank places.")


class Affinity(Model):
    """Where the pod is placed (as in a pod's spec)."""

    node_affinity: NodeAffinity | None = Field(default=None, description="By nodes.")
    pod_affinity: PodAffinity | None = Field(default=None, description="Near other pods.")
    pod_anti_affinity: PodAffinity | None = Field(default=None, description="Away from other pods.")
