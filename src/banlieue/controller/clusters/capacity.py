"""What a machine made from a template would offer, for scaling a group from no machine. Pure.

The cluster autoscaler reads `status.capacity` of machine templates as a map of strings, and only
when it has both processors and memory.
"""

from banlieue.api import names
from banlieue.api.infrastructure.machine import MachineTemplateSpec
from banlieue.api.infrastructure.template import MachineTemplateStatus, NodeInfo
from banlieue.api.v1alpha1.vmimage import VMImage


def template_status(spec: MachineTemplateSpec, image: VMImage | None) -> MachineTemplateStatus:
    """What a template's status says.

    Args:
        spec: what machines are made of.
        image: the image it names, None when it is not there.
    """
    return MachineTemplateStatus(capacity=_capacity(spec), node_info=_node(image))


def _capacity(spec: MachineTemplateSpec) -> dict[str, str]:
    if spec.cpus is None or spec.memory_mib is None:
        return {}
    found = {"cpu": str(spec.cpus), "memory": f"{spec.memory_mib}Mi"}
    root = next((disk for disk in spec.disks if disk.name == names.ROOT_DISK), None)
    if root is not None and root.size_gib is not None:
        found["ephemeral-storage"] = f"{root.size_gib}Gi"
    return found


def _node(image: VMImage | None) -> NodeInfo | None:
    if image is None:
        return None
    return NodeInfo(
        architecture=image.spec.architecture, operating_system=image.spec.os_family.value
    )
