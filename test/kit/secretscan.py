"""Looks for planted secrets in everything that people and programs get to see.

A secret is found as it is, escaped, in base64 wherever it begins, and inside compressed data that
is shown in base64, as first-boot data often is.
"""

import base64
import contextlib
import json
import re
import urllib.parse
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from banlieue.api.names import GROUP
from test.kit.kube import Kube
from test.kit.kubeconfig import read_kubeconfig
from test.kit.stack import Role, Stack

_SHORTEST: Final = 8
_SHOWN: Final = 60
_BLOB: Final = re.compile(r"H4sI[A-Za-z0-9+/_-]{20,}={0,2}")
"""Base64 of what begins as gzip does."""
_ENDPOINTS: Final = ("metrics", "readyz", "healthz")
_WRITTEN: Final = frozenset({"events.events.k8s.io", "configmaps", "leases", "namespaces"})
"""Kinds of others that our processes write."""


class SecretScan:
    """Collects where planted secrets showed up.

    Attributes:
        leaks: Each place with the words around, the secret itself left out.
    """

    def __init__(self, planted: Iterable[str]) -> None:
        """Look for these texts; of several lines each is one that is looked for.

        Raises:
            ValueError: One is so short that it would be found by chance.
        """
        lines = {line.strip() for secret in planted for line in secret.splitlines()}
        self._planted = sorted(line for line in lines if line)
        if short := [line for line in self._planted if len(line) < _SHORTEST]:
            raise ValueError(f"{len(short)} of the planted secrets are too short to look for")
        self._forms = {
            form: f"<planted secret {number}>"
            for number, secret in enumerate(self._planted)
            for form in _forms(secret)
        }
        self.leaks: list[str] = []

    def look(self, where: str, text: str) -> None:
        """Look through a text; `where` tells the reader of a leak where it came from."""
        for form, name in self._forms.items():
            start = text.find(form)
            while start >= 0:
                self._leak(where, name, text, start, start + len(form))
                start = text.find(form, start + len(form))
        for blob in _BLOB.finditer(text):
            content = _uncompressed(blob[0])
            for number, secret in enumerate(self._planted):
                if secret.encode() in content:
                    name = f"<planted secret {number}, compressed>"
                    self._leak(where, name, text, blob.start(), blob.end())

    def _leak(self, where: str, name: str, text: str, start: int, end: int) -> None:
        before, after = text[max(0, start - _SHOWN) : start], text[end : end + _SHOWN]
        words = f"{before}{name}{after}"
        for form, other in self._forms.items():
            words = words.replace(form, other)
        self.leaks.append(f"{where}: …{words}…")

    def report(self) -> str:
        """All leaks, to be read; empty when there are none."""
        return "\n".join(self.leaks)

    # Where to look

    def look_at_role(self, role: Role) -> None:
        """Look at the logs, command line and HTTP endpoints of one of our processes."""
        self.look(f"log of {role.name}", role.logs())
        self.look(f"command line of {role.name}", "\0".join(role.command))
        if role.process.running:
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{role.process.pid}/cmdline").read_text(encoding="utf-8")
                self.look(f"command line of {role.name}", line)
            for path in _ENDPOINTS:
                self.look(f"/{path} of {role.name}", role.probe(path)[1])

    def look_at_objects(self, kube: Kube) -> None:
        """Look at every object that our processes may have written."""
        for resource in kube.resources():
            kind = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
            if "list" not in resource.verbs or not (kind in _WRITTEN or GROUP in resource.group):
                continue
            for obj in kube.list(kind):
                meta = obj["metadata"]
                name = f"{kind} {meta.get('namespace', '')}/{meta['name']}"
                self.look(name, json.dumps(obj, ensure_ascii=False))

    def look_at(self, stack: Stack) -> None:
        """Look at everything an installation shows."""
        for role in stack.roles:
            self.look_at_role(role)
        self.look_at_objects(stack.kube)


def scan_of(stack: Stack, *planted: str) -> SecretScan:
    """A scan for the tokens of our roles, and what else was planted."""
    tokens = [read_kubeconfig(role.kubeconfig).token for role in stack.roles]
    return SecretScan([*filter(None, tokens), *planted])


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield from (
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        escape(secret),
        urllib.parse.quote(secret, safe=""),
        urllib.parse.quote_plus(secret),
    )
    data = secret.encode()
    for shift in range(3):
        # What is left of it whatever stands before and after.
        encoded = base64.b64encode(b"\0" * shift + data).decode()
        inner = encoded[(shift * 8 + 5) // 6 : (shift + len(data)) * 8 // 6]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")


def _uncompressed(blob: str) -> bytes:
    """What a blob of gzip in base64 says; empty if it is none after all."""
    text = blob.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        return zlib.decompressobj(wbits=31).decompress(data)
    except (ValueError, zlib.error):
        return b""
