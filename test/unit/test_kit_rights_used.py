"""The kit tells which rights nothing used."""

import json
from pathlib import Path

import pytest

from test.kit import rights_used
from test.kit.rights_used import HOLDERS, UNSEEN, Use

OPERATOR = "system:serviceaccount:anywhere:banlieue-operator"


def line(verb: str, resource: str, group: str = "", *, code: int = 200, **changed: str) -> bytes:
    plural, _, subresource = resource.partition("/")
    target = {"apiGroup": group, "resource": plural, "subresource": subresource}
    event = {
        "user": {"username": changed.get("username", OPERATOR)},
        "userAgent": changed.get("agent", "banlieue/1 (operator)"),
        "verb": verb,
        "objectRef": {key: it for key, it in target.items() if it},
        "responseStatus": {"code": code},
    }
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([line("get", "roles", "rbac")], {("operator", "get", "rbac", "roles")}),
        (
            [line("patch", "providers/status", "b")],
            {("operator", "patch", "b", "providers/status")},
        ),
        (
            [line("patch", "events", "e", code=201)],
            {("operator", "patch", "e", "events"), ("operator", "create", "e", "events")},
        ),
        ([line("get", "roles", code=403)], set()),
        ([line("get", "roles", code=404)], {("operator", "get", "", "roles")}),
        ([line("get", "roles", agent="a-test")], set()),
        ([line("get", "roles", username="system:admin")], set()),
        ([line("get", "roles", username="system:serviceaccount:a:banlieue-else")], set()),
        (
            [line("get", "pods", username="system:serviceaccount:a:banlieue-provider-x-y")],
            {("provider", "get", "", "pods")},
        ),
    ],
)
def test_what_was_granted_to_our_processes_counts(lines: list[bytes], found: set[Use]) -> None:
    assert set(rights_used.uses(lines)) == found


def test_a_right_that_nothing_used_is_named_with_the_test_that_should() -> None:
    everything = {
        (who, verb, right.group, resource)
        for who, all_of_them in HOLDERS.items()
        for right in all_of_them
        for resource in right.resources.split()
        for verb in right.verbs.split()
    }
    assert rights_used.unused(everything) == []
    idle = ("operator", "patch", "banlieue.io", "providers/status")
    [told] = rights_used.unused(everything - {idle})
    assert told.startswith("operator: patch banlieue.io/providers/status, which integration/")


def test_what_no_log_shows_is_a_right_that_somebody_has() -> None:
    held = {
        (verb, resource)
        for all_of_them in HOLDERS.values()
        for right in all_of_them
        for resource in right.resources.split()
        for verb in right.verbs.split()
    }
    assert held >= UNSEEN


def test_a_log_is_read_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights_used, "_used", set())
    (tmp_path / "audit.log").write_bytes(line("list", "namespaces") + line("get", "x", code=401))
    rights_used.note(tmp_path / "audit.log")
    assert rights_used._used == {("operator", "list", "", "namespaces")}
