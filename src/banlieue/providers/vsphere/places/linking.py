"""Whether a clone shares the disks of its template, decided for each create. Pure."""

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.models import CloneMode
from banlieue.providers.vsphere.places.stores import Provisioning
from banlieue.providers.vsphere.places.templates import Template
from banlieue.sdk.driver import DiskPlan
from banlieue.sdk.errors import InvalidSpec, NeedsOperator


def grown_gib(disks: tuple[DiskPlan, ...], template: Template) -> int | None:
    """The size to grow the boot disk to in GiB; None when it keeps its size.

    Raises:
        InvalidSpec: it would shrink.
    """
    root = template.root
    wanted = disks[0].size_gib if disks else None
    if root is None or wanted is None or wanted == root.size_gib:
        return None
    if wanted < root.size_gib:
        raise InvalidSpec(
            Reason.INVALID_CONFIGURATION,
            f"disk {disks[0].name} is {wanted} GiB, and the image's is {root.size_gib} GiB; "
            "a disk only grows: ask for that or more",
        )
    return wanted


def snapshot_to_link(
    mode: CloneMode | None,
    wanted: str | None,
    disks: tuple[DiskPlan, ...],
    template: Template,
    provisioning: Provisioning | None = None,
) -> str | None:
    """The snapshot a linked clone hangs on; None for a full clone.

    Linked unless told otherwise, where there is a snapshot and the boot disk stays as it is in the
    template: of its size, deleted with its VM, and not provisioned thick.

    Args:
        mode: what the machine asks for.
        wanted: name of the snapshot it asks for.
        disks: its disks, the boot disk first.
        template: what is cloned.
        provisioning: how its boot disk's storage class has disks made.

    Raises:
        InvalidSpec: it asks for a linked clone that cannot be what else it asks for.
        NeedsOperator: the snapshot is not there.
    """
    found = _found(mode, wanted, template)
    hindrance = _hindrance(disks, template, provisioning)
    if mode is CloneMode.LINKED and found is None:
        raise NeedsOperator(
            Reason.IMAGE_NOT_AVAILABLE,
            f"template {template.name} has no snapshot to link to; make one, or use cloneMode Full",
        )
    if mode is CloneMode.LINKED and hindrance is not None:
        raise InvalidSpec(Reason.INVALID_CONFIGURATION, f"{hindrance}, or use cloneMode Full")
    return None if hindrance else found


def _found(mode: CloneMode | None, wanted: str | None, template: Template) -> str | None:
    if wanted is not None and wanted not in template.snapshots:
        raise NeedsOperator(
            Reason.IMAGE_NOT_AVAILABLE,
            f"template {template.name} has no snapshot {wanted!r}; make it, or name another",
        )
    if mode is CloneMode.FULL:
        return None
    return template.snapshot if wanted is None else template.snapshots[wanted]


def _hindrance(
    disks: tuple[DiskPlan, ...], template: Template, provisioning: Provisioning | None
) -> str | None:
    """Why a clone cannot be linked, and what to do about it; None when it can."""
    if disks and disks[0].retain:
        return (
            "the boot disk of a linked clone cannot be retained, as it hangs on its template's; "
            "use reclaimPolicy Delete"
        )
    if grown_gib(disks, template) is not None:
        return "the boot disk of a linked clone cannot be larger than its template's; keep its size"
    if provisioning in {Provisioning.THICK, Provisioning.EAGER}:
        return (
            "the boot disk of a linked clone cannot be provisioned thick; use another storage class"
        )
    return None
