"""What a story's VirtualMachines said, on one backend and on the other, compared field by field.

Every story that runs on several backends leaves a transcript of each. When the second is there the
two have to be equal in the end, but for what has to differ: names, addresses, ids, text of the
backend. How long a step takes decides whether it is told, so of what was said before, only words
that stood for a while on one backend have to be said on the other; that all are the same, and in
the same order, shows `test_same_words.py`, which slows both backends down.

A whole run of the tests fails where a story was told on one backend only. Hooks of pytest.
"""

import difflib
import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pytest

from test.kit.rights_used import whole
from test.kit.statuswatch import StatusWatch, Version
from test.kit.targets import KINDS
from test.kit.waiting import wait_until

Object = Mapping[str, Any]
Told = dict[str, dict[str, list[str]]]
"""By VirtualMachine (`namespace/name`): what was said (`_SAID`), what of it stood for a while
(`_STOOD`), and every field `_IN_THE_END`."""
_SAID: Final = "said"
_STOOD: Final = "stood"
_IN_THE_END: Final = "in the end"
LASTING: Final = 10.0
"""Seconds after which a word is no step on the way."""

ALONE: Final = frozenset({"test_labels_become_tags_and_machines_are_kept_apart"})
"""Stories of what one backend alone has."""

MORE: Final = frozenset({"test_many_vms_of_one_template_come_at_once"})
"""Stories that have more VMs on one backend: what both have is compared."""

PASSING: Final = frozenset(
    {
        *("Creating", "Updating", "PoweringOn", "PoweringOff", "Suspending", "Deleting"),
        *("AddressPending", "GuestBootstrapPending", "NotObserved"),
    }
)
"""Reasons of a step that is being taken: a quick one is over before it is told."""
PASSING_PHASES: Final = frozenset({"Provisioning", "Updating", "Deleting", ""})
ALSO_PASSING: Final[Mapping[str, frozenset[str]]] = {
    # What got lost is told until the VM is seen, which a quick backend has shown before.
    "test_a_provider_that_is_killed_while_it_makes_a_vm_makes_one": frozenset(
        {"ProviderUnreachable", "AbsenceUnproven"}
    ),
    # Whoever finds out first tells: the machine that is to be destroyed, or the Provider, after
    # which nothing is tried for the machine.
    "test_an_outage_of_the_backend_is_told_once_and_everything_goes_on_after_it": frozenset(
        {"ProviderUnreachable"}
    ),
    # Until the Provider has told what it has.
    "test_a_vm_restored_without_status_is_the_same_vm_again": frozenset(
        {"RecoveryPending", "NotProvisioned", "Pending"}
    ),
}
"""The same in one story, reasons and phases."""
_OFF: Final = "AddressesNotExpected"
"""Passing, too, where a VM is off for a moment between two steps."""

_SETTLED_SECONDS: Final = 90.0
_OTHER: Final = re.compile(
    r"(^|\.)(address|providerID|osName|guestPath|retainID|observedFailureDomain|macAddress)$"
    r"|^infrastructureRef\.kind$|^scheduled\.(class\.uid|failureDomain|providerClass)$"
    r"|^resources\.disks\[root\]\.sizeGiB$|At$|Time$|Generation$"
)
"""Paths of what has to differ: what the backend calls things, the size of its image, times."""
_STORY: Final = "stories told on one backend"


def words(vm: Object) -> Iterator[tuple[str, str]]:
    """Phase and conditions of a status, each with what it says."""
    status = vm.get("status") or {}
    yield "phase", status.get("phase", "")
    for item in status.get("conditions") or ():
        yield item["type"], f"{item['status']}/{item['reason']}"


def is_passing(field: str, word: str, more: Container[str] = ()) -> bool:
    """Whether a word tells of a step on the way, `more` words among them."""
    passing = PASSING_PHASES if field == "phase" else PASSING
    reason = word.rpartition("/")[2]
    return reason in passing or reason in more


def is_settled(vm: Object) -> bool:
    """Whether nothing it says tells of a step on the way, and its spec was seen."""
    status = vm.get("status") or {}
    seen = status.get("observedGeneration") == vm["metadata"]["generation"]
    return seen and not any(is_passing(*said) for said in words(vm))


def told_in(versions: Iterable[Version], more: Container[str] = ()) -> Told:
    """What VirtualMachines said, but for `more` words, and what their statuses held in the end.

    Those that were deleted meanwhile have no end to compare.
    """
    told: Told = {}
    since: dict[tuple[str, str], tuple[str, float]] = {}
    for version in filter(_is_vm, versions):
        obj, meta = version.object, version.object["metadata"]
        name = f"{meta['namespace']}/{meta['name']}"
        said = told.setdefault(name, {_SAID: [], _STOOD: []})
        for field, word in words(obj):
            before, when = since.get((name, field), ("", version.time))
            if version.time - when >= LASTING and before not in said[_STOOD]:
                said[_STOOD].append(before)
            passing = is_passing(field, word, more) or word.endswith(f"/{_OFF}")
            line = "" if passing else f"{field}: {word}"
            if line != before:
                since[name, field] = line, version.time
            if line not in said[_SAID]:
                said[_SAID].append(line)
        gone = version.type == "DELETED" or "deletionTimestamp" in meta
        said[_IN_THE_END] = [] if gone else [*in_the_end(obj)]
    return told


def in_the_end(vm: Object) -> Iterator[str]:
    """Every field of a status with its value, but for what has to differ."""
    for path, value in sorted(_leaves(vm.get("status") or {})):
        # Unknown while its cluster may not be read, and until the inventory is read again.
        if path == "host":
            continue
        yield f"{path}: {'…' if _OTHER.search(path) else json.dumps(value)}"
    for field, word in sorted(words(vm)):
        yield f"{field}: {word}"


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key != "conditions":
                yield from _leaves(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            named = item.get("name") or item.get("type") if isinstance(item, Mapping) else None
            yield from _leaves(item, f"{path}[{named or number}]")
    else:
        yield path, value


def difference(one: Told, other: Told) -> str:
    """What differs, to be read; empty when nothing does."""
    lines = [f"only one has {name}" for name in sorted(one.keys() ^ other.keys())]
    for name in sorted(one.keys() & other.keys()):
        first, second = one[name], other[name]
        lines += [f"{name}: - {it}" for it in first[_STOOD] if it not in second[_SAID]]
        lines += [f"{name}: + {it}" for it in second[_STOOD] if it not in first[_SAID]]
        ends = difflib.unified_diff(first[_IN_THE_END], second[_IN_THE_END], n=0, lineterm="")
        lines += [f"{name}: {it}" for it in [*ends][2:]]
    return "\n".join(lines)


def _comparable(story: str, one: Told, other: Told) -> tuple[Told, Told]:
    if story not in MORE:
        return one, other
    both = one.keys() & other.keys()
    return {name: one[name] for name in both}, {name: other[name] for name in both}


class Transcripts:
    """The halves that wait for the other one; a plugin of pytest."""

    def __init__(self) -> None:
        self._halves: dict[str, dict[str, Told]] = {}

    def note(self, story: str, backend: str, told: Told) -> str:
        """Remember a half; gives what differs from the other one, empty while it is not there."""
        halves = self._halves.setdefault(story, {})
        halves[backend] = told
        first, *others = sorted(halves)
        return "\n\n".join(
            f"{story} on {first} and on {other}:\n{found}"
            for other in others
            if (found := difference(*_comparable(story, halves[first], halves[other])))
        )

    def missing(self) -> list[str]:
        """One line for each story that was not told on every backend."""
        return [
            f"{story}: not on {', '.join(sorted(lacking))}"
            for story, halves in sorted(self._halves.items())
            if story not in ALONE and (lacking := set(KINDS) - halves.keys())
        ]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:  # noqa: ANN401 - xdist does not export it
        """Take over the halves that a worker compared with nothing."""
        for story, halves in getattr(node, "workeroutput", {}).get(_STORY, {}).items():
            self._halves.setdefault(story, {}).update(halves)

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Hand the halves on from a worker; else fail a whole run in which a story lacks one."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_STORY] = self._halves
            return
        if exitstatus or not whole(session.config):
            return
        told = self.missing()
        told += [self.note(story, *next(iter(it.items()))) for story, it in self._halves.items()]
        if text := "\n".join(filter(None, told)):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            reporter = session.config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None:
                reporter.write_line(f"\n{_STORY}, or in other words on each:\n{text}", red=True)


PLUGIN: Final = Transcripts()


@contextmanager
def recorded(status: StatusWatch, backend: str, request: pytest.FixtureRequest) -> Iterator[None]:
    """Record what is said in the block, once all of it has settled, as one half of a story.

    Raises:
        AssertionError: The other half is there, and tells it otherwise.
    """
    before, failed = status.everything(), request.session.testsfailed
    known = {it.object["metadata"]["uid"] for it in before}
    yield
    if request.session.testsfailed > failed:
        return  # nobody asks how it would have ended

    def said() -> Iterator[Version]:
        versions = status.everything(len(before))
        return (it for it in versions if it.object["metadata"]["uid"] not in known)

    def settled() -> bool:
        return status.caught_up() and all(map(is_settled, _living(said())))

    wait_until(settled, _SETTLED_SECONDS, "everything that was said to be said to its end")
    story = request.node.originalname
    told = told_in(said(), ALSO_PASSING.get(story, ()))
    if found := PLUGIN.note(story, backend, told):
        pytest.fail(found, pytrace=False)


def _living(versions: Iterable[Version]) -> Iterator[Object]:
    """The VirtualMachines that are there and stay, as they were last."""
    last = {it.object["metadata"]["uid"]: it for it in versions if _is_vm(it)}
    for version in last.values():
        if version.type != "DELETED" and "deletionTimestamp" not in version.object["metadata"]:
            yield version.object


def _is_vm(version: Version) -> bool:
    return bool(version.object["kind"] == "VirtualMachine")
