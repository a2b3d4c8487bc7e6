"""Which tags a machine's VM is to have: what its spec says, and what the labels of its owner say.

A VirtualMachine's labels were mapped by the controller, into the spec. What Cluster API made has a
spec that nobody but its author writes; the labels of its Machine stand on the object itself, where
the owners of Machines (MachineSet, KubeadmControlPlane) write them and keep them up.
"""

from collections.abc import Collection

from banlieue.sdk.machine.scope import Scope
from banlieue.sdk.upkeep import TAGS


def asked(scope: Scope) -> dict[str, str]:
    """The tags that are asked for; what the spec says beats what a label says."""
    spec, labels = scope.machine.spec, scope.machine.metadata.labels
    if spec.virtual_machine_ref is not None:
        return dict(spec.tags)
    mapping = scope.open.provider.spec.tag_mapping
    mapped = {entry.tag: labels[entry.label] for entry in mapping if entry.label in labels}
    return mapped | dict(spec.tags)


def allowed(scope: Scope) -> dict[str, str]:
    """The tags that the machine's namespace may have put on its VM.

    From another namespace than the Provider's they are those its admin maps: others may give
    rights, or mean something to his own tools.
    """
    provider, tags = scope.open.provider, asked(scope)
    if provider.metadata.namespace == scope.key.namespace:
        return tags
    mapped = {entry.tag for entry in provider.spec.tag_mapping}
    return {name: value for name, value in tags.items() if name in mapped}


def refused(scope: Scope) -> Collection[str]:
    """Names of the tags that are asked for and not allowed, in order."""
    return sorted(asked(scope).keys() - allowed(scope).keys())


def unhonoured(scope: Scope) -> tuple[str, ...]:
    """Fields that the driver has no power for, as far as it was asked.

    Groups to keep apart are best effort by their definition.
    """
    return () if scope.memory.kept.able or not asked(scope) else (TAGS,)


def follow_labels(scope: Scope) -> bool:
    """Whether labels of the object itself may have been edited while nobody looked.

    An edit of a label moves no generation, so only a look tells.
    """
    mapping = scope.open.provider.spec.tag_mapping
    return scope.machine.spec.virtual_machine_ref is None and bool(mapping)
