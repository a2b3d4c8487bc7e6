"""Growth of disks is told once, when it was seen."""

import pytest

from banlieue.api.events import EventReason
from banlieue.api.v1alpha1.virtualmachine_status import VirtualMachineStatus
from banlieue.controller.vm.announce import notes


def status(**sizes: int | None) -> VirtualMachineStatus:
    disks = [
        {"name": name} | ({} if size is None else {"sizeGiB": size}) for name, size in sizes.items()
    ]
    return VirtualMachineStatus.from_api({"resources": {"disks": disks}})


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (status(root=8), status(root=8), []),
        (status(root=8), status(root=8, data=5), []),
        (status(data=5), status(data=8), ["Disks were grown: data to 8 GiB"]),
        (status(a=1, b=1), status(a=2, b=3), ["Disks were grown: a to 2 GiB, b to 3 GiB"]),
        (status(data=8), status(data=5), []),
        (status(data=None), status(data=5), []),
        (VirtualMachineStatus(), status(data=5), []),
        (status(data=5), VirtualMachineStatus(), []),
    ],
)
def test_growth_is_told(
    before: VirtualMachineStatus, after: VirtualMachineStatus, told: list[str]
) -> None:
    found = [note.message for note in notes(before, after) if note.reason is EventReason.DISK_GROWN]
    assert found == told
