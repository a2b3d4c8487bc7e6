"""Many settled objects at once: copies of real ones, put beneath the API server into its store.

Ten thousand VirtualMachines that went through everything would cost an API server a quarter of an
hour of processor time. Copies take seconds, and whoever watches them cannot tell the difference.
"""

import base64
import http.client
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any


class Store:
    """The etcd of a control plane, over its HTTP gateway."""

    def __init__(self, address: str) -> None:
        """Connect lazily to `host:port`."""
        self._connection = http.client.HTTPConnection(address, timeout=60)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def read(self, key: str) -> str:
        """A stored object as JSON text.

        Raises:
            LookupError: There is nothing under that key.
        """
        found = self._ask("kv/range", {"key": _text(key)}).get("kvs") or ()
        if not found:
            raise LookupError(key)
        return base64.b64decode(found[0]["value"]).decode()

    def write(self, objects: Mapping[str, str]) -> None:
        """Store JSON texts by key at one revision: no two of one kind, as the API server has it."""
        puts = [
            {"requestPut": {"key": _text(key), "value": _text(value)}}
            for key, value in objects.items()
        ]
        self._ask("kv/txn", {"success": puts})

    def _ask(self, what: str, body: Mapping[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", f"/v3/{what}", json.dumps(body), headers)
        answer = self._connection.getresponse()
        found: dict[str, Any] = json.loads(answer.read())
        if answer.status != HTTPStatus.OK:
            raise OSError(f"etcd answered {answer.status} to {what}: {found}")
        return found


@dataclass(frozen=True, slots=True)
class Sample:
    """Objects that belong together, and the words in them that every copy has of its own.

    Attributes:
        objects: JSON text by key of the store.
        names: Words that the copier replaces by a word of its choice: names of objects.
        identifiers: Words that every copy has anew: uids.
    """

    objects: Mapping[str, str]
    names: tuple[str, ...]
    identifiers: tuple[str, ...]

    def copy(self, *names: str) -> dict[str, str]:
        """The same objects under these names."""
        words = dict(zip(self.names, names, strict=True))
        words |= {old: str(uuid.uuid4()) for old in self.identifiers}
        return {_replaced(key, words): _replaced(text, words) for key, text in self.objects.items()}


def _replaced(text: str, words: Mapping[str, str]) -> str:
    for old, new in words.items():
        text = text.replace(old, new)
    return text


def _text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
