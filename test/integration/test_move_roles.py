"""A machine's part in a move on a vCenter: the role in spec, then power, mark and status."""

from typing import Any

import pytest

from test.kit.installed import READY_SECONDS
from test.kit.running import Running
from test.kit.stack import condition
from test.kit.targets import REAL
from test.kit.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("backend_kind", REAL, indirect=True)]


def test_power_mark_and_status_follow_the_role(running: Running) -> None:
    known = running.made("db")
    # The roles of a move are written here in the controller's place.
    running.controller.kill9()
    assert _told(running) == {"epoch": 0, "role": "Current"}
    assert _plugged(running) == {"eth0": True}

    _write(running, move={"epoch": 0, "role": "Previous"}, powerState="PoweredOff")
    _sees(running, {"epoch": 0, "role": "Previous"}, power="PoweredOff")

    _write(running, move={"epoch": 2, "role": "Incoming"}, powerState="PoweredOn")
    running.provider.kill9()
    running.provider.start()
    _sees(running, {"epoch": 2, "role": "Incoming"}, power="PoweredOn")

    _write(running, networkInterfaces=[{"name": "eth0", "connected": False}])
    wait_until(lambda: _plugged(running) == {"eth0": False}, READY_SECONDS, "it is plugged out")
    _write(
        running,
        move={"epoch": 2, "role": "Current"},
        networkInterfaces=[{"name": "eth0", "connected": True}],
    )
    _sees(running, {"epoch": 2, "role": "Current"}, power="PoweredOn")
    wait_until(lambda: _plugged(running) == {"eth0": True}, READY_SECONDS, "it is plugged in")
    (raw,) = running.registered.vms_of("db")
    assert (raw.id, raw.uuid, raw.name) == (known.raw.id, known.raw.uuid, known.raw.name)

    # An object of before the move, as a backup has it, changes nothing.
    wait_until(lambda: _ready(running) == ("True", "Ready"), READY_SECONDS, "it is Ready")
    (before,) = running.registered.vms_of("db")
    _write(running, move=None, powerState="PoweredOff")
    wait_until(
        lambda: _ready(running) == ("False", "RebindPending"), READY_SECONDS, "it is told to wait"
    )
    assert _told(running) == {"epoch": 2, "role": "Current"}
    assert running.registered.vms_of("db") == [before]


def _write(running: Running, **spec: object) -> None:
    running.kube.patch(running.registered.plural, "db", {"spec": spec}, running.namespace)


def _sees(running: Running, move: dict[str, object], *, power: str) -> None:
    def seen() -> bool:
        return (_told(running), _status(running).get("powerState")) == (move, power)

    wait_until(seen, READY_SECONDS, f"{move} and {power}")


def _status(running: Running) -> dict[str, Any]:
    found: dict[str, Any] = running.registered.machine("db").get("status") or {}
    return found


def _told(running: Running) -> object:
    return _status(running).get("move")


def _plugged(running: Running) -> dict[str, bool]:
    told = _status(running).get("interfaces") or ()
    return {nic["name"]: nic["connected"] for nic in told}


def _ready(running: Running) -> tuple[str, str]:
    return condition(running.registered.machine("db"), "Ready")
