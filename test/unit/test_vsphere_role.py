"""The role that admins give the account is what the preflight asks for."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from banlieue.providers.vsphere.places.privileges import ROLE

FILE = Path(__file__).parents[2] / "config" / "vsphere" / "role.yaml"


def role() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


def test_the_file_has_what_the_preflight_asks_for() -> None:
    assert {kind: tuple(names) for kind, names in role()["required"].items()} == dict(ROLE)


def test_no_privilege_stands_there_twice() -> None:
    groups = (*role()["required"].values(), *role()["optional"].values())
    names = [name for group in groups for name in group]
    assert len(set(names)) == len(names)


def test_the_command_in_the_file_gives_every_privilege() -> None:
    command = ["/bin/sed", "-n", r"s/^ *- //p", str(FILE)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    groups = (*role()["required"].values(), *role()["optional"].values())
    assert told == [name for group in groups for name in group]
