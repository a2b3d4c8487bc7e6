"""What differs between the disks a machine asks for and those its VM has. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from banlieue.api.reasons import Reason
from banlieue.sdk.driver import MachineState


@dataclass(frozen=True, slots=True)
class DiskProblem:
    """What nobody puts right by itself: a reason of UpToDate and one sentence."""

    reason: Reason
    message: str


def differ(want: Mapping[str, int | None], removed: Collection[str], seen: MachineState) -> bool:
    """Whether there is something to do: a disk to add, to grow, or to take off.

    One that neither names is nobody's business, nor is one that is larger than asked for.
    """
    sizes = {disk.name: disk.size_gib for disk in seen.disks if disk.name is not None}
    if not sizes:
        return False
    return any(name in sizes and name not in want for name in removed) or any(
        name not in seen.lost_disks
        and (name not in sizes or (size is not None and (sizes[name] or size) < size))
        for name, size in want.items()
    )


def problem(want: Mapping[str, int | None], seen: MachineState | None) -> DiskProblem | None:
    """What is not as asked for and stays so: disks that are larger, or that somebody took off."""
    if seen is None:
        return None
    lost = sorted(set(seen.lost_disks) & set(want))
    if lost:
        return DiskProblem(
            Reason.DRIFT_DETECTED,
            f"disk {', '.join(lost)} was taken off on the backend and is not made anew; attach it "
            "there again, or list a disk of another name instead",
        )
    sizes = {disk.name: disk.size_gib for disk in seen.disks if disk.name is not None}
    larger = [
        f"disk {name} has {have} GiB and {size} are asked for"
        for name, size in want.items()
        if size is not None and (have := sizes.get(name)) is not None and have > size
    ]
    if larger:
        return DiskProblem(
            Reason.INVALID_CONFIGURATION,
            f"{'; '.join(larger)}: a disk never shrinks; ask for what it has, or for more",
        )
    return None
