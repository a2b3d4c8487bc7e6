import json
import threading
from pathlib import Path

import pytest

from test.kit import audit
from test.kit.audit import AuditLog


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


def _log(path: Path, identifier: str, verb: str, stage: str, **more: object) -> None:
    event = {
        "auditID": identifier,
        "verb": verb,
        "stage": stage,
        "user": {"username": "ada"},
        "requestURI": "/api/v1/namespaces/ns/configmaps/one",
        "requestReceivedTimestamp": "2026-10-01T08:00:00Z",
        "objectRef": {"resource": "configmaps", "namespace": "ns", "name": identifier},
        **more,
    }
    with path.open("a") as file:
        file.write(json.dumps(event) + "\n")


def _receive(path: Path, identifier: str) -> None:
    _log(path, identifier, "create", "RequestReceived")


def _answer(path: Path, identifier: str, verb: str = "create", code: int = 201) -> None:
    _log(path, identifier, verb, "ResponseComplete", responseStatus={"code": code})


def _seen(log: AuditLog, since: int = 0) -> list[tuple[str, int | None]]:
    return [(entry.name, entry.code) for entry in log.entries(since)]


def test_a_write_is_one_entry_with_its_answer(path: Path) -> None:
    for identifier in ("one", "two"):
        _receive(path, identifier)
    for identifier in ("two", "one"):
        _answer(path, identifier)

    assert _seen(AuditLog(path)) == [("one", 201), ("two", 201)]


def test_a_write_belongs_to_the_time_it_came(path: Path) -> None:
    log = AuditLog(path)
    assert log.position() == 0
    _receive(path, "before")
    since = log.position()
    _answer(path, "before")
    _receive(path, "after")
    _answer(path, "after")

    assert _seen(log, since) == [("after", 201)]
    assert _seen(log, log.position()) == []


def test_a_read_that_is_answered_counts_and_a_watch_once(path: Path) -> None:
    _answer(path, "read", "get", 200)
    _log(path, "watched", "watch", "ResponseStarted", responseStatus={"code": 200})
    _answer(path, "watched", "watch", 200)

    log = AuditLog(path)

    assert _seen(log) == [("read", 200), ("watched", 200)]
    assert all(entry.reads and not entry.stores for entry in log.entries())


def test_an_answer_that_is_due_is_waited_for(path: Path) -> None:
    _receive(path, "slow")
    log = AuditLog(path)
    timer = threading.Timer(0.1, _answer, (path, "slow"))
    timer.start()

    assert _seen(log) == [("slow", 201)]
    timer.join()


def test_a_half_written_line_is_left_for_later(path: Path) -> None:
    _receive(path, "one")
    _answer(path, "one")
    log = AuditLog(path)
    since = log.position()
    with path.open("a") as file:
        file.write('{"auditID": "tw')

    assert log.position() == since
    assert _seen(log) == [("one", 201)]


def test_what_a_killed_server_never_answered_has_no_code(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _receive(path, "lost")
    log = AuditLog(path)
    # Waiting for it would take this long.
    monkeypatch.setattr(audit, "_SETTLE_SECONDS", 3600.0)
    log.mark_restart()

    assert _seen(log) == [("lost", None)]


def test_what_a_frozen_server_does_not_answer_is_not_waited_for_forever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _receive(path, "held")
    monkeypatch.setattr(audit, "_SETTLE_SECONDS", 0.05)

    assert _seen(AuditLog(path)) == [("held", None)]


@pytest.mark.parametrize(
    "more",
    [
        {"requestURI": "/api/v1/namespaces/ns/configmaps?dryRun=All&fieldManager=x"},
        {"objectRef": {"apiGroup": "authorization.k8s.io", "resource": "subjectaccessreviews"}},
        {"objectRef": {"resource": "serviceaccounts", "subresource": "token"}},
    ],
)
def test_requests_that_store_nothing_are_told_apart(path: Path, more: dict[str, object]) -> None:
    _log(path, "one", "create", "RequestReceived", **more)
    _log(path, "one", "create", "ResponseComplete", responseStatus={"code": 201}, **more)
    _receive(path, "two")
    _answer(path, "two")

    assert [entry.stores for entry in AuditLog(path).entries()] == [False, True]
