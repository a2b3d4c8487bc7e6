"""An installation under a test, with the checkers that run beside every test over real processes.

What they find fails the test when the block ends, whatever the test itself looked at: statuses a
client would stumble over, secrets where somebody could read them, defects in the logs.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from banlieue.sdk.testing.conformance_target import ConformanceTarget
from test.kit.controlplane import ControlPlane
from test.kit.installed import Registered
from test.kit.running import Running
from test.kit.secretscan import SecretScan, scan_of
from test.kit.stack import Role, Stack
from test.kit.statuswatch import StatusWatch

_DEFECTS: Final = frozenset({"error", "critical"})
_OURS: Final = "banlieue"
_SHOWN: Final = 4000


class CheckError(AssertionError):
    """A checker found something; the message shows all of it."""


@dataclass
class Checkers:
    """Who looks over the shoulder of the roles of an installation.

    Attributes:
        stack: The roles and where they are installed.
        status: Every version of everything they reported.
        planted: Texts that must show up nowhere; a test may add to it.
    """

    stack: Stack
    status: StatusWatch
    planted: list[str]

    def scan(self) -> SecretScan:
        """Look for all planted secrets in everything that is shown now, or was in a status."""
        scan = scan_of(self.stack, *self.planted)
        scan.look_at(self.stack)
        for version in self.status.everything():
            obj = version.object
            where = f"{obj['kind']} {obj['metadata']['name']}"
            scan.look(f"an earlier {where}", json.dumps(obj, ensure_ascii=False))
        return scan

    def check(self) -> None:
        """End the watch and raise what there is to tell.

        Raises:
            CheckError: There is something.
        """
        self.status.stop()
        told = [
            self.status.report(),
            self.scan().report(),
            *(line for role in self.stack.roles for line in defects(role)),
        ]
        if text := "\n\n".join(filter(None, told)):
            raise CheckError(text)


@contextmanager
def checked(stack: Stack, *planted: str) -> Iterator[Checkers]:
    """Checkers beside the roles of an installation, whatever it is made of.

    Args:
        stack: The installation; our kinds are there already.
        planted: Texts that must show up nowhere.

    Raises:
        CheckError: At the end, when a checker found something.
    """
    with StatusWatch(stack.control_plane) as status:
        found = Checkers(stack, status, list(planted))
        yield found
        found.check()


@dataclass
class Watched(Checkers):
    """banlieue registered with a backend, and who looks over its shoulder.

    Attributes:
        registered: The installation.
    """

    registered: Registered


@contextmanager
def watched(
    control_plane: ControlPlane, directory: Path, target: ConformanceTarget
) -> Iterator[Watched]:
    """banlieue installed and registered with a backend; no role runs yet.

    Args:
        control_plane: Where; it holds nothing of ours before and after.
        directory: Where to put logs.
        target: The backend.

    Raises:
        CheckError: At the end, when a checker found something.
    """
    with Stack(control_plane, directory) as stack:
        stack.install()
        with StatusWatch(control_plane) as status:
            found = Watched(stack, status, list(target.secrets), Registered(stack, target))
            try:
                found.registered.register()
                yield found
                found.check()
            finally:
                status.stop()
                stack.purge()


@dataclass(frozen=True)
class AtWork:
    """An installation whose roles run, with its checkers; the tests of a module may share it."""

    watched: Watched
    running: Running

    @property
    def registered(self) -> Registered:
        """The installation."""
        return self.running.registered


def defects(role: Role) -> Iterator[str]:
    """Log records that tell of a defect: errors of our own, and everything with a traceback."""
    yield from defects_in(f"log of {role.name}", role.logs().splitlines())


def defects_in(where: str, lines: Iterable[str]) -> Iterator[str]:
    """The same of log lines that come from anywhere; `where` tells the reader."""
    for line in lines:
        if _tells_defect(line):
            yield f"{where}: {line[:_SHOWN]}"


def _tells_defect(line: str) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        # Words of the interpreter itself; a record that a kill cut off begins like any other.
        return bool(line) and not line.startswith("{")
    ours = record.get("logger", "").startswith(_OURS)
    return "exception" in record or (ours and record.get("level") in _DEFECTS)
