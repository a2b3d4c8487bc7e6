"""The API server's audit log: who wrote what.

A write leaves two lines: RequestReceived before it is carried out, ResponseComplete with the code
after the answer was sent. So whoever has an answer finds at least the first line, and a reader that
waits for the second misses nothing.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from test.kit.waiting import WaitTimeoutError, wait_until

READ_VERBS: Final = ("get", "list", "watch")

# Answers computed on the fly; they are asked for by a POST but nothing is stored.
_QUESTIONS: Final = ("authentication.k8s.io", "authorization.k8s.io")
_SETTLE_SECONDS: Final = 5.0
_LONGEST_LINE: Final = 1 << 20

POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [
        # Reads of the control plane itself are many and tell nothing.
        {
            "level": "None",
            "verbs": list(READ_VERBS),
            "users": ["system:apiserver", "system:kube-controller-manager"],
        },
        {
            "level": "None",
            "verbs": list(READ_VERBS),
            "userGroups": ["system:serviceaccounts:kube-system"],
        },
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]},
        {"level": "Metadata", "verbs": list(READ_VERBS), "omitStages": ["RequestReceived"]},
        {"level": "Metadata"},
    ],
}


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One request.

    Attributes:
        user: Who sent it, such as `system:serviceaccount:NAMESPACE:NAME`.
        verb: get, list, watch, create, update, patch, delete or deletecollection.
        resource: Plural name of the kind; empty for a path that is no resource.
        subresource: Such as `status`; empty for the object itself.
        namespace: Empty for cluster-scoped kinds and for all namespaces.
        name: Empty for collections, and for a created object whose name the server chose.
        user_agent: What the client calls itself.
        code: HTTP status; None when the server ended before it answered.
        group: API group; empty for the core group.
        uri: Path and query.
        time: When it came, RFC 3339.
    """

    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user_agent: str
    code: int | None
    group: str
    uri: str
    time: str

    @property
    def reads(self) -> bool:
        """Whether it only asks for objects."""
        return self.verb in READ_VERBS

    @property
    def stores(self) -> bool:
        """Whether it asks the server to store something: no dry run, review or token."""
        return (
            not self.reads
            and self.group not in _QUESTIONS
            and (self.resource, self.subresource) != ("serviceaccounts", "token")
            and "dryRun" not in parse_qs(urlsplit(self.uri).query)
        )


class AuditLog:
    """Reads the log of one API server while that writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Requests that came before this position and are unanswered will never be answered.
        self._lost_before = 0

    def position(self) -> int:
        """Where the log ends now; entries `since` it belong to requests that came later."""
        if not self._path.exists():
            return 0
        with self._path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            start = log.seek(max(0, end - _LONGEST_LINE))
            return start + log.read(end - start).rfind(b"\n") + 1

    def mark_restart(self) -> None:
        """Note that the server has ended: what it has not answered so far it never will."""
        self._lost_before = self.position()

    def entries(self, since: int = 0) -> list[AuditEntry]:
        """All requests that came after a position, in the order they came.

        Requests that are being carried out are waited for, up to 5 s.
        """
        open_now: set[str] = set()
        for received, identifier in self._unanswered(since):
            if received >= self._lost_before:
                open_now.add(identifier)
        if open_now:
            self._await_answers(since, open_now)
        return [_entry(events) for _, events in self._requests(since)]

    def _await_answers(self, since: int, identifiers: set[str]) -> None:
        def answered() -> bool:
            return identifiers.isdisjoint(identifier for _, identifier in self._unanswered(since))

        try:
            wait_until(answered, _SETTLE_SECONDS, "requests to be answered", exact=True)
        except WaitTimeoutError:
            # A frozen server, or a request as long as a watch: reported with code None.
            return

    def _unanswered(self, since: int) -> Iterator[tuple[int, str]]:
        for received, events in self._requests(since):
            if _code(events) is None:
                yield received, events[0]["auditID"]

    def _requests(self, since: int) -> list[tuple[int, list[dict[str, Any]]]]:
        """The events of each request that came after a position, with the position it came at."""
        requests: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        position = since
        for line in self._lines(since):
            event = json.loads(line)
            came_before = event["stage"] != "RequestReceived" and event["verb"] not in READ_VERBS
            if event["auditID"] in requests or not came_before:
                requests.setdefault(event["auditID"], (position, []))[1].append(event)
            position += len(line)
        return list(requests.values())

    def _lines(self, since: int) -> list[bytes]:
        length = self.position() - since
        if length <= 0:
            return []
        with self._path.open("rb") as log:
            log.seek(since)
            return log.read(length).splitlines(keepends=True)


def _entry(events: list[dict[str, Any]]) -> AuditEntry:
    last = events[-1]
    target = last.get("objectRef", {})
    return AuditEntry(
        user=last["user"]["username"],
        verb=last["verb"],
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        user_agent=last.get("userAgent", ""),
        code=_code(events),
        group=target.get("apiGroup", ""),
        uri=last["requestURI"],
        time=last["requestReceivedTimestamp"],
    )


def _code(events: list[dict[str, Any]]) -> int | None:
    for event in events:
        if event["stage"] != "RequestReceived":
            code: int | None = event.get("responseStatus", {}).get("code")
            return code
    return None
