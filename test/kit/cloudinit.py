"""What cloud-init itself makes of a VM's first-boot data; needs Debian's package `cloud-init`."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from test.kit.guestdata import environment

_PYTHON: Final = "/usr/bin/python3"
_PROGRAM: Final = Path(__file__).with_name("cloudinit_guest.py")
_TIMEOUT: Final = 60.0
_NOBODY: Final = 65534
_MISSING: Final = (
    "cloud-init is not there; get it with "
    "`apt-get install -y --no-install-recommends cloud-init` (Debian, Ubuntu)"
)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of user or vendor data, as its handler gets it."""

    type: str
    text: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a booting guest has found.

    Attributes:
        complaints: What the schema says of parts that are cloud-config.
        network: The network configuration as parsed.
        files: Files written by each of cloud-init's renderers: netplan, eni, networkd, sysconfig.
        template: `{{ ds.meta_data.provider_id }} {{ v1.instance_id }}`, rendered.
    """

    found: bool
    instance_id: str = ""
    hostname: str = ""
    keys: tuple[str, ...] = ()
    user_data: tuple[Part, ...] = ()
    vendor_data: tuple[Part, ...] = ()
    complaints: tuple[str, ...] = ()
    network: Mapping[str, Any] | None = None
    files: Mapping[str, Mapping[str, str]] | None = None
    template: str = ""


@dataclass(frozen=True, slots=True)
class Boot:
    """What one boot left on the disk of a guest.

    Attributes:
        instance_id: What cloud-init took itself for.
        disk: What is under `/etc`, by path: host keys, network of each renderer, machine id.
        runs: What modules that run once per instance have done since the disk is there.
    """

    instance_id: str
    disk: Mapping[str, str]
    runs: tuple[str, ...]


class CloudInitError(AssertionError):
    """cloud-init is not there, or failed at what it was given."""


def read(*extra_configs: Mapping[str, str]) -> tuple[Reading, ...]:
    """Have cloud-init's VMware datasource read the keys of VMs, and render what it found.

    Raises:
        CloudInitError: cloud-init is not installed, or fails.
    """
    return tuple(map(_reading, _asked(extra_configs, boots=False)))


def boot(*extra_configs: Mapping[str, str]) -> tuple[Boot, ...]:
    """Boot one guest again and again, each time with these keys; what its disk holds after each.

    cloud-init's own stages run over a disk that stays, with its module for SSH host keys and those
    that run commands; `/run` is empty at each boot. What is before it, and after, is left out.

    Raises:
        CloudInitError: cloud-init is not installed, or fails.
    """
    told = _asked(extra_configs, boots=True)
    return tuple(Boot(it["instanceId"], it["disk"], tuple(it["runs"].splitlines())) for it in told)


def _asked(extra_configs: Iterable[Mapping[str, str]], *, boots: bool) -> Any:  # noqa: ANN401 - JSON
    """Have the program run as nobody where that can be: it writes only where it is told to."""
    with tempfile.TemporaryDirectory() as directory:
        environments = [environment(it) for it in extra_configs]
        asked = {"environments": environments, "directory": directory, "boots": boots}
        harmless: dict[str, Any] = {}
        if os.geteuid() == 0:
            os.chown(directory, _NOBODY, _NOBODY)
            harmless = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        run = subprocess.run(
            # As text, since nobody may be unable to read this tree.
            [_PYTHON, "-I", "-c", _PROGRAM.read_text(encoding="utf-8")],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
            cwd=directory,
            **harmless,
        )
    if run.returncode:
        _check_installed()
        raise CloudInitError(f"cloud-init failed:\n{run.stderr[-4000:]}")
    return json.loads(run.stdout)


def _reading(told: Mapping[str, Any]) -> Reading:
    if not told["found"]:
        return Reading(found=False)
    return Reading(
        found=True,
        instance_id=told["instanceId"],
        hostname=told["hostname"],
        keys=tuple(told["keys"]),
        user_data=tuple(Part(**part) for part in told["userData"]),
        vendor_data=tuple(Part(**part) for part in told["vendorData"]),
        complaints=tuple(told["complaints"]),
        network=told["network"],
        files=told["files"],
        template=told["template"],
    )


def _check_installed() -> None:
    """Missing is an error with a remedy, so that nobody takes a skip for a pass."""
    try:
        run = subprocess.run(
            [_PYTHON, "-I", "-c", "import cloudinit.sources.DataSourceVMware"],
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except OSError as error:
        raise CloudInitError(_MISSING) from error
    if run.returncode:
        raise CloudInitError(_MISSING)
