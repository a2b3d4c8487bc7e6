"""Keeps a world's state in a file, so that its VMs outlive the process that simulates it."""

from pathlib import Path

from banlieue.sdk.simulated.records import State


class StateFile:
    """One JSON file, replaced whole after every change: readers never see half of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new = path.with_name(f"{path.name}.new")

    def save(self, state: State) -> None:
        """Write the state; it is on its place when this returns."""
        self._new.write_text(state.model_dump_json(), encoding="utf-8")
        self._new.replace(self._path)

    def load(self, now: float) -> State | None:
        """The saved state with all times moved to a clock that shows `now`; None without a file."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        state = State.model_validate_json(text)
        _shift(state, now - state.saved_at)
        return state


def _shift(state: State, seconds: float) -> None:
    for task in state.tasks.values():
        task.due += seconds
        if task.ended is not None:
            task.ended += seconds
    for vm in state.vms.values():
        if vm.guest_due is not None:
            vm.guest_due += seconds
    for late in state.late:
        late.due += seconds
    state.saved_at += seconds
