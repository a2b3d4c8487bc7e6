"""Fields that are not in force, in words: what is asked for, and what was seen instead. Pure."""

from collections.abc import Collection, Iterator

from banlieue.sdk.driver import MachineState
from banlieue.sdk.machine.drift import CPUS, DISKS, MEMORY, NICS, Desired


def told(field: str, want: Desired, seen: MachineState, interfaces: Collection[str]) -> str:
    """One field with what it is about, such as `disks (data: 20 GiB asked for, 10 GiB there)`."""
    details = tuple(_details(field, want, seen, interfaces))
    return f"{field} ({'; '.join(details)})" if details else field


def _details(
    field: str, want: Desired, seen: MachineState, interfaces: Collection[str]
) -> Iterator[str]:
    if field == CPUS and want.cpus is not None:
        yield f"{want.cpus} asked for, {seen.cpus} there"
    elif field == MEMORY and want.memory_mib is not None:
        yield f"{want.memory_mib} asked for, {seen.memory_mib} there"
    elif field == DISKS:
        yield from _disks(want, seen)
    elif field == NICS:
        yield from interfaces


def _disks(want: Desired, seen: MachineState) -> Iterator[str]:
    there = {disk.name: disk.size_gib for disk in seen.disks if disk.name}
    for name, size in sorted(want.disks.items()):
        asked = f"{size} GiB asked for" if size is not None else "asked for"
        if name not in there:
            yield f"{name}: {asked}, not there"
        elif size is not None and (there[name] or size) < size:
            yield f"{name}: {asked}, {there[name]} GiB there"
    for name in sorted(set(want.removed_disks) & there.keys()):
        yield f"{name}: not asked for any more, still there"
