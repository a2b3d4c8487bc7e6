"""What a story told on two backends is compared field by field, and a half is never forgotten."""

from types import SimpleNamespace
from typing import Any

import pytest

from test.kit.statuswatch import Version
from test.kit.targets import KINDS
from test.kit.transcripts import ALONE, LASTING, MORE, Told, Transcripts, is_settled, told_in

ONE, OTHER = KINDS


def version(
    *conditions: str,
    kind: str = "MODIFIED",
    phase: str = "Running",
    at: float = 0.0,
    **status: object,
) -> Version:
    """A VirtualMachine as a watch shows it; conditions as `Ready=True/Ready`."""
    said = []
    for text in conditions:
        name, _, rest = text.partition("=")
        value, _, reason = rest.partition("/")
        said.append({"type": name, "status": value, "reason": reason})
    obj = {
        "kind": "VirtualMachine",
        "metadata": {"namespace": "team", "name": "web", "uid": "1", "generation": 2},
        "status": {"phase": phase, "conditions": said, "observedGeneration": 2, **status},
    }
    return Version(at, kind, obj)


def told(*versions: Version) -> Told:
    return told_in(versions)


READY = version(
    "Ready=True/Ready", providerID="a://1", addresses=[{"type": "IP", "address": "1"}], at=LASTING
)
AWAY = version("Ready=False/VMMissing", phase="Failed")


def test_the_same_words_are_the_same_whatever_backends_call_things() -> None:
    found = Transcripts()
    steps = [version("Ready=False/Creating", phase="Provisioning"), READY]
    elsewhere = [{"type": "IP", "address": "2"}]
    other = version("Ready=True/Ready", providerID="b://2", addresses=elsewhere)
    assert found.note("story", ONE, told(*steps)) == ""
    assert found.note("story", OTHER, told(other)) == "", "a quick step is not told"
    assert found.missing() == []


@pytest.mark.parametrize(
    ("other", "shown"),
    [
        ((AWAY, READY), "False/VMMissing"),
        ((READY, version("Ready=True/Ready", "Extra=True/Told", providerID="b")), "Extra"),
        ((READY, version("Ready=True/Ready", providerID="b", hostname="h")), "hostname"),
        ((version("Ready=True/Ready", phase="Stopped"), READY), "Stopped"),
        ((READY, version("Ready=True/Ready", kind="DELETED")), "Ready: True/Ready"),
    ],
)
def test_what_only_one_backend_tells_is_shown(other: tuple[Version, ...], shown: str) -> None:
    found = Transcripts()
    assert found.note("story", ONE, told(READY)) == ""
    assert shown in found.note("story", OTHER, told(*other))


def test_what_was_said_for_a_moment_need_not_be_said_elsewhere() -> None:
    found = Transcripts()
    assert found.note("story", ONE, told(READY)) == ""
    late = version("Ready=False/VMMissing", phase="Failed", at=LASTING - 0.1)
    assert found.note("story", OTHER, told(late, READY)) == ""


def test_only_what_settled_has_an_end() -> None:
    assert is_settled(READY.object)
    assert not is_settled(version("Ready=False/PoweringOn").object)
    assert not is_settled(version("Ready=True/Ready", observedGeneration=1).object)


class Config(SimpleNamespace):
    """The command line of a run of everything."""

    def __init__(self, **given: object) -> None:
        super().__init__(pluginmanager=SimpleNamespace(get_plugin=lambda _: None), **given)
        self.options: dict[str, Any] = {"markexpr": "not e2e"}

    def getoption(self, name: str, default: object = None) -> object:
        return self.options.get(name, default)


def finished(found: Transcripts, config: Config) -> int:
    session: Any = SimpleNamespace(config=config, exitstatus=0)
    found.pytest_sessionfinish(session, 0)
    return int(session.exitstatus)


def test_a_whole_run_fails_where_a_story_was_told_on_one_backend_only() -> None:
    found = Transcripts()
    found.note("story", ONE, told(READY))
    assert found.missing() == [f"story: not on {OTHER}"]
    assert finished(found, Config()) == pytest.ExitCode.TESTS_FAILED
    part = Config()
    part.options["keyword"] = ONE
    assert finished(found, part) == 0
    found.note("story", OTHER, told(READY))
    assert finished(found, Config()) == 0


def test_halves_of_different_workers_are_compared_in_the_end() -> None:
    whole = Transcripts()
    for backend, version in ((ONE, READY), (OTHER, AWAY)):
        worker, config = Transcripts(), Config(workeroutput={})
        worker.note("story", backend, told(version))
        assert finished(worker, config) == 0
        whole.pytest_testnodedown(config)
    assert whole.missing() == []
    assert finished(whole, Config()) == pytest.ExitCode.TESTS_FAILED


def test_where_one_backend_has_more_vms_those_of_both_are_compared() -> None:
    (story,) = MORE
    found = Transcripts()
    assert found.note(story, ONE, told(READY)) == ""
    assert found.note(story, OTHER, {**told(READY), "team/more": told(READY)["team/web"]}) == ""
    assert "VMMissing" in found.note(story, OTHER, told(AWAY))


def test_what_one_backend_alone_has_is_named() -> None:
    found = Transcripts()
    for story in ALONE:
        found.note(story, OTHER, told(READY))
    assert found.missing() == []
