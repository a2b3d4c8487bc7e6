"""Every backend tells the same story in the same words."""

from pathlib import Path

import pytest

from test.kit.controlplane import ControlPlane
from test.kit.stack import Object
from test.kit.story import Story, told_on
from test.kit.targets import KINDS, new_target
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow


def test_hello_is_told_in_the_same_words_on_every_backend(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Story 1: hello, and the transcripts of its status compared."""
    transcripts: dict[str, list[str]] = {}
    for kind in KINDS:
        directory = tmp_path / kind
        directory.mkdir()
        with (
            new_target(kind, directory) as target,
            told_on(target, control_plane, directory) as story,
        ):
            transcripts[kind] = _transcript(story)
    first, *others = KINDS
    assert transcripts[first][-1].startswith("Deleting")
    for other in others:
        assert "\n".join(transcripts[other]) == "\n".join(transcripts[first])


def _transcript(story: Story) -> list[str]:
    """A life of a VirtualMachine, with all that happens on the backend slow enough to be told."""
    story.admin.slow_guests(2.0)
    with story.registered.target.slow_tasks(2.0):
        story.vm("hello")
        story.ready("hello")
        story.edit("hello", desiredPowerState="PoweredOff", powerOffMode="Hard")
        story.sees("hello", lambda vm: vm["status"]["phase"] == "Stopped")
        story.edit("hello", desiredPowerState="PoweredOn")
        story.sees("hello", lambda vm: vm["status"]["phase"] == "Running")
        story.ready("hello")
        story.registered.delete("hello")
    wait_until(story.watched.status.caught_up, 30, "the watch")
    return story.watched.status.values("VirtualMachine", "hello", _words)


def _words(vm: Object) -> str:
    """Phase, and status and reason of each condition, in a text that can be compared by eye."""
    status = vm.get("status") or {}
    conditions = sorted(status.get("conditions") or (), key=lambda it: it["type"])
    said = [f"{it['type']}={it['status']}/{it['reason']}" for it in conditions]
    return "\n  ".join([status.get("phase", ""), *said])
