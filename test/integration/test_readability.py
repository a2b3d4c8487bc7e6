"""What people see with kubectl: tables, conditions with a remedy, events that say what was."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import pytest

from test.kit import kstatus
from test.kit.installed import Registered
from test.kit.running import VMS
from test.kit.stack import Object, condition, vm_class
from test.kit.waiting import wait_until
from test.kit.watched import AtWork

pytestmark = pytest.mark.slow

VM: Final = ["NAME", "CLASS", "IMAGE", "PROVIDER", "POWER", "IP", "READY", "REASON", "AGE"]
WIDE: Final = [*VM, "FAILUREDOMAIN", "PROVIDERID", "HOST"]
PROVIDER: Final = ["NAME", "CLASS", "READY", "VERSION", "FDS", "VMS", "AGE"]
IMAGE: Final = ["NAME", "OS", "VERSION", "ARCH", "READY", "PROGRESS", "AGE"]
PAST: Final = re.compile(r"\b(was|were|became|[A-Z]?[a-z]+ed)\b")
SENTENCE: Final = re.compile(r"\S.*[^.\s]", re.DOTALL)
INNARDS: Final = ("Traceback", "Error(", "Exception", "None", "vim.", "http://", "https://", "\n")
COUNT_SECONDS: Final = 30.0

SPOILT: Final[Mapping[str, tuple[Mapping[str, Any], str, str]]] = {
    "no-class": ({"classRef": {"name": "nowhere"}}, "ClassNotFound", "create it"),
    "no-image": ({"imageRef": {"name": "nowhere"}}, "ImageNotFound", "create it"),
    "too-large": ({"classRef": {"name": "huge"}}, "InsufficientCapacity", "smaller class"),
    "no-match": (
        {"placement": {"providerSelector": {"matchLabels": {"zone": "moon"}}}},
        "NoProviderMatched",
        "placement.providerSelector",
    ),
    "no-storage": (
        {"disks": [{"name": "data", "sizeGiB": 5, "storageClass": "platinum"}]},
        "StorageClassNotAvailable",
        "storage class",
    ),
    "no-provider": (
        {"providerRef": {"name": "nobody", "namespace": "banlieue-system"}},
        "ProviderNotAllowed",
        "spec.providerRef",
    ),
    "no-secret": (
        {"userData": {"secretRef": {"name": "missing"}}},
        "UserDataNotGranted",
        "banlieue bootstrap grant -n team-a",
    ),
}
"""What is wrong with a VirtualMachine, the reason it is told by, and what its message names."""


def table(registered: Registered, *arguments: str) -> tuple[list[str], list[dict[str, str]]]:
    """The columns and rows of `kubectl get`, by the positions of its header."""
    told = registered.stack.control_plane.kubectl("get", *arguments)
    header, *lines = told.splitlines()
    columns = header.split()
    starts = [found.start() for found in re.finditer(r"\S+", header)]
    ends: list[int | None] = [*starts[1:], None]
    rows = [
        {
            name: line[start:end].strip()
            for name, start, end in zip(columns, starts, ends, strict=True)
        }
        for line in lines
    ]
    return columns, rows


def in_tenant(registered: Registered, *arguments: str) -> tuple[list[str], list[dict[str, str]]]:
    return table(registered, *arguments, "--namespace", registered.namespace)


def in_system(registered: Registered, *arguments: str) -> tuple[list[str], list[dict[str, str]]]:
    return table(registered, *arguments, "--namespace", registered.stack.namespace)


def test_the_table_of_virtual_machines_tells_all_that_matters(at_work: AtWork) -> None:
    registered = at_work.registered
    registered.create("db")
    vm = registered.ready("db")
    status = vm["status"]
    columns, [row] = in_tenant(registered, "vm", "db", "--output", "wide")
    assert columns == WIDE
    assert int(row.pop("AGE").removesuffix("s")) >= 0
    assert row == {
        "NAME": "db",
        "CLASS": "small",
        "IMAGE": "ubuntu",
        "PROVIDER": registered.provider,
        "POWER": "PoweredOn",
        "IP": status["addresses"][0]["address"],
        "READY": "True",
        "REASON": "Ready",
        "FAILUREDOMAIN": status["scheduled"]["failureDomain"],
        "PROVIDERID": status["providerID"],
        "HOST": status["host"],
    }
    assert in_tenant(registered, "vm")[0] == VM
    assert in_tenant(registered, "bvm")[0] == VM
    registered.clear()


def test_the_tables_of_admins_tell_all_that_matters(at_work: AtWork) -> None:
    registered = at_work.registered
    registered.create("db")
    registered.ready("db")

    def counted() -> bool:
        [row] = in_system(registered, "prov")[1]
        return row["VMS"] == "1"

    wait_until(counted, COUNT_SECONDS, "the VM to be counted")
    columns, [row] = in_system(registered, "prov")
    assert columns == PROVIDER
    assert (row["NAME"], row["READY"]) == (registered.provider, "True")
    assert row["CLASS"] == registered.target.backend.name
    assert row["VERSION"]
    assert int(row["FDS"]) >= 1
    columns, [row] = in_system(registered, "prov", "--output", "wide")
    assert [it for it in columns if it not in PROVIDER] == ["ENDPOINT", "REASON"]
    assert row["ENDPOINT"] == registered.target.connection().endpoints[0]
    columns, [row] = table(registered, "vmi")
    assert columns == IMAGE
    assert (row["NAME"], row["OS"], row["VERSION"]) == ("ubuntu", "ubuntu", "24.04")
    assert (row["ARCH"], row["READY"]) == ("amd64", "1/1")
    registered.clear()


def test_kubectl_waits_for_what_it_is_asked_for_and_tools_agree(at_work: AtWork) -> None:
    registered = at_work.registered
    registered.create("db")
    wait = partial(_kubectl_wait, registered, "vm/db")
    wait("condition=Ready")
    wait("condition=UpToDate")
    wait("jsonpath={.status.phase}=Running")
    assert (
        kstatus.status_of(registered.kube.get(VMS, "db", registered.namespace))
        is kstatus.Status.CURRENT
    )

    off = {"spec": {"desiredPowerState": "PoweredOff"}}
    registered.kube.patch(VMS, "db", off, registered.namespace)
    wait("jsonpath={.status.observedPowerState}=PoweredOff")
    wait("condition=Ready")  # off as asked for is Ready
    assert (
        kstatus.status_of(registered.kube.get(VMS, "db", registered.namespace))
        is kstatus.Status.CURRENT
    )

    with registered.target.slow_tasks(2.0):
        registered.kube.delete(VMS, "db", registered.namespace)
        assert (
            kstatus.status_of(registered.kube.get(VMS, "db", registered.namespace))
            is kstatus.Status.TERMINATING
        )
        wait("delete")
    assert registered.find("db") is None


def _tools_say(registered: Registered) -> kstatus.Status:
    return kstatus.status_of(registered.kube.get(VMS, "db", registered.namespace))


def test_a_provider_of_no_class_says_so(at_work: AtWork) -> None:
    registered = at_work.registered
    kube, where = registered.kube, registered.stack.namespace
    typo = registered.provider_object()
    typo["metadata"]["name"] = "typo"
    typo["spec"]["providerClassRef"]["name"] = "vspere"
    kube.apply(typo)

    def told() -> list[str]:
        found = kube.get("providers", "typo", where).get("status") or {}
        return [it["message"] for it in found.get("conditions") or () if it["type"] == "Ready"]

    [message] = wait_until(told, 30, "the missing class to be told")
    assert "correct the name or create it" in message
    assert registered.target.backend.name in message
    [row] = [it for it in in_system(registered, "prov")[1] if it["NAME"] == "typo"]
    assert row["READY"] == "False"
    kube.delete("providers", "typo", where)


def _kubectl_wait(registered: Registered, what: str, until: str) -> None:
    registered.stack.control_plane.kubectl(
        "wait", what, f"--for={until}", "--timeout=60s", f"--namespace={registered.namespace}"
    )


def test_whatever_is_wrong_is_told_in_one_sentence_with_a_remedy(at_work: AtWork) -> None:
    registered = at_work.registered
    registered.kube.apply(_huge(registered))
    spoilt = {name: case for name, case in SPOILT.items() if _applies(registered, name)}
    for name, (spec, _, _) in spoilt.items():
        registered.create(name, **spec)
    for name, (_, reason, remedy) in spoilt.items():
        vm = registered.wait(name, partial(_not_ready, reason), 30, reason)
        message = _message(vm, "Ready")
        assert remedy in message
        assert SENTENCE.fullmatch(message), message
        assert not [word for word in INNARDS if word in message], message
        [row] = in_tenant(registered, "vm", name)[1]
        assert (row["READY"], row["REASON"]) == ("False", reason)
        described = registered.stack.control_plane.kubectl(
            "describe", "vm", name, "--namespace", registered.namespace
        )
        assert " ".join(message.split()) in " ".join(described.split())
    registered.clear()
    registered.kube.delete("vmclasses", "huge")


def test_a_life_is_told_in_events_in_the_past_tense(at_work: AtWork) -> None:
    registered = at_work.registered
    registered.create("diary")
    uid = registered.ready("diary")["metadata"]["uid"]
    for power, phase in (("PoweredOff", "Stopped"), ("PoweredOn", "Running")):
        patch = {"spec": {"desiredPowerState": power}}
        registered.kube.patch("virtualmachines", "diary", patch, registered.namespace)
        registered.wait("diary", partial(_in_phase, phase), 30, phase)
    registered.ready("diary")
    with registered.target.slow_tasks(2.0):
        registered.kube.delete("virtualmachines", "diary", registered.namespace)
        [row] = wait_until(
            lambda: [it for it in in_tenant(registered, "vm")[1] if it["READY"] == "False"],
            30,
            "the deletion to be told",
        )
        described = registered.stack.control_plane.kubectl(
            "describe", "vm", "diary", "--namespace", registered.namespace
        )
    assert row["REASON"] == "Deleting"
    registered.gone("diary")
    said = wait_until(lambda: _said(registered, uid, last="Deleted"), 10, "the last event")
    assert list(dict.fromkeys(said)) == [
        "Scheduled",
        "Provisioned",
        "AddressAssigned",
        "PoweredOff",
        "PoweredOn",
        "Deleting",
        "Deleted",
    ]
    for reason, note in said.items():
        assert PAST.search(note), f"{reason}: {note}"
        assert SENTENCE.fullmatch(note), note
        assert reason == "Deleted" or note in described


def _said(registered: Registered, uid: str, *, last: str) -> dict[str, str]:
    """Reasons and notes of the Events about an object, the oldest first; empty before `last`."""
    events = registered.kube.list("events.events.k8s.io", registered.namespace)
    about = sorted(
        (it for it in events if it["regarding"].get("uid") == uid), key=lambda it: it["eventTime"]
    )
    said = {it["reason"]: it["note"] for it in about}
    return said if last in said else {}


def _huge(registered: Registered) -> Object:
    small = registered.kube.get("vmclasses", "small")["spec"]
    huge = vm_class("huge", disks=small["hardware"]["disks"], memoryMiB=32 * 2**20)
    huge["spec"]["network"] = small["network"]
    return huge


def _applies(registered: Registered, name: str) -> bool:
    """vSphere decides about room by itself, so nobody else refuses for want of it."""
    return name != "too-large" or registered.target.backend.name != "vsphere"


def _not_ready(reason: str, vm: Object) -> bool:
    return condition(vm, "Ready") == ("False", reason)


def _in_phase(phase: str, vm: Object) -> bool:
    found: bool = vm["status"]["phase"] == phase
    return found


def _message(vm: Object, kind: str) -> str:
    found = [it["message"] for it in vm["status"]["conditions"] if it["type"] == kind]
    return str(found[0])
