"""The API server of a workload cluster, which its owners run: trusted for its own Nodes only.

A kubeconfig from a Secret of a tenant's is data, not configuration: nothing in it is run, no file
is read, no proxy asked, no redirection followed, no certificate left unverified, and no answer
read beyond its bounds.
"""

import asyncio
import base64
import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import yaml
from pydantic import SecretBytes

import banlieue
from banlieue.sdk import kube
from banlieue.sdk.kube import Obj
from banlieue.sdk.runtime import wire
from banlieue.sdk.runtime.connection import close_connector
from banlieue.sdk.workload import KubeconfigError, Node

PATH = "/api/v1/nodes"
MANAGER = "banlieue.io/node-patcher"
JSON_PATCH = "application/json-patch+json"
TIMEOUT = aiohttp.ClientTimeout(total=20.0, sock_connect=5.0)
PAGE = 100
PAGES = 100
LARGEST_KUBECONFIG = 128 << 10
LARGEST = 32 << 20
"""Bytes of one answer that are read at most."""

_USER_AGENT = f"banlieue/{banlieue.__version__} (node-patcher)"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a kubeconfig leads, and as whom; its text shows no credentials."""

    server: str
    tls: ssl.SSLContext
    server_name: str | None
    token: SecretBytes | None


def read_kubeconfig(kubeconfig: SecretBytes) -> Target:
    """What the current context of a kubeconfig says, if all of it stands in it.

    Raises:
        KubeconfigError: it says something else, or what is not used here.
    """
    if len(kubeconfig.get_secret_value()) > LARGEST_KUBECONFIG:
        raise KubeconfigError(f"it has more than {LARGEST_KUBECONFIG} bytes")
    try:
        found = yaml.safe_load(kubeconfig.get_secret_value())
    except (yaml.YAMLError, ValueError, RecursionError):
        # The parser's own words quote what it read.
        raise KubeconfigError("it is no YAML") from None
    context = _entry(found, "contexts", "context", _text(found, "current-context"))
    cluster = _entry(found, "clusters", "cluster", _text(context, "cluster"))
    user = _entry(found, "users", "user", _text(context, "user"))
    server = _text(cluster, "server").rstrip("/")
    if urlsplit(server).scheme != "https":
        raise KubeconfigError("its server has to be https://...")
    if cluster.get("insecure-skip-tls-verify") or cluster.get("proxy-url"):
        raise KubeconfigError("insecure-skip-tls-verify and proxy-url are not used")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        tls.load_verify_locations(cadata=_decoded(cluster, "certificate-authority-data").decode())
    except (ssl.SSLError, ValueError):
        raise KubeconfigError("its certificate-authority-data holds no certificate") from None
    token = _text(user, "token") if user.get("token") else ""
    if not token.isascii() or not token.isprintable():
        raise KubeconfigError("its token is none")
    if user.get("client-certificate-data"):
        pair = (_decoded(user, "client-certificate-data"), _decoded(user, "client-key-data"))
        _identify(tls, b"\n".join(pair))
    elif not token:
        raise KubeconfigError(
            "its user needs client-certificate-data and client-key-data, or token; "
            "files, exec and auth-provider are not used"
        )
    name = _text(cluster, "tls-server-name") if cluster.get("tls-server-name") else None
    return Target(server, tls, name, SecretBytes(token.encode()) if token else None)


def _entry(found: object, several: str, one: str, name: str) -> dict[str, Any]:
    entries = found.get(several) if isinstance(found, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name:
            body = entry.get(one)
            if isinstance(body, dict):
                return body
    raise KubeconfigError(f"it has no {one} of the name that is referred to")


def _text(found: object, key: str) -> str:
    value = found.get(key) if isinstance(found, dict) else None
    if not isinstance(value, str) or not value:
        raise KubeconfigError(f"it has no {key}")
    return value


def _decoded(found: Mapping[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(_text(found, key), validate=True)
    except ValueError:
        raise KubeconfigError(f"its {key} is not base64") from None


def _identify(tls: ssl.SSLContext, pair: bytes) -> None:
    """Load certificate and key, which the library takes from files only; no disk ever has them."""
    descriptor = os.memfd_create("client", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(pair)
        # A key with a password would have it asked for at the terminal.
        tls.load_cert_chain(f"/proc/self/fd/{descriptor}", password=lambda: b"")
    except (ssl.SSLError, ValueError):
        raise KubeconfigError("its client certificate and key do not fit") from None
    finally:
        os.close(descriptor)


@asynccontextmanager
async def open_nodes(kubeconfig: SecretBytes) -> AsyncIterator["RemoteNodes"]:
    """The Nodes of a workload cluster; implements `banlieue.sdk.workload.OpenNodes`."""
    # A malicious one can take the parser seconds.
    target = await asyncio.to_thread(read_kubeconfig, kubeconfig)
    connector = aiohttp.TCPConnector(limit=2, ssl=target.tls)
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session:
            yield RemoteNodes(session, target)
    finally:
        await close_connector(connector)


class RemoteNodes:
    """Implements `banlieue.sdk.workload.Nodes`."""

    def __init__(self, session: aiohttp.ClientSession, target: Target) -> None:
        self._session = session
        self._target = target

    async def list(self) -> Sequence[Node]:
        """All of them, read live, page by page."""
        found: list[Node] = []
        token = ""
        for _ in range(PAGES):
            query = {"limit": str(PAGE), **({"continue": token} if token else {})}
            page = await self._send("GET", f"{PATH}?{urlencode(query)}")
            items = page.get("items")
            found += map(_node, items if isinstance(items, list) else ())
            token = _word(page, "metadata", "continue")
            if not token:
                return found
        raise kube.Unavailable(0, f"it has more than {PAGE * PAGES} Nodes")

    async def set_provider_id(self, node: Node, provider_id: str) -> None:
        """Write `spec.providerID` of a Node that is as it was read."""
        path = f"{PATH}/{quote(node.name, safe='')}?{urlencode({'fieldManager': MANAGER})}"
        ops = [
            {"op": "test", "path": "/metadata/uid", "value": node.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": node.resource_version},
            {"op": "add", "path": "/spec/providerID", "value": provider_id},
        ]
        await self._send("PATCH", path, ops)

    async def _send(self, method: str, path: str, body: object = None) -> Obj:
        headers = {"Accept": "application/json", "User-Agent": _USER_AGENT}
        if self._target.token is not None:
            token = self._target.token.get_secret_value().decode()
            headers["Authorization"] = f"Bearer {token}"
        data = None
        if body is not None:
            headers["Content-Type"] = JSON_PATCH
            data = json.dumps(body).encode()
        try:
            async with self._session.request(
                method,
                f"{self._target.server}{path}",
                headers=headers,
                data=data,
                allow_redirects=False,
                server_hostname=self._target.server_name,
            ) as response:
                status, answer = response.status, await _bounded(response)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as e:
            raise kube.Unavailable(0, f"{method} got no answer: {type(e).__name__}") from None
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return wire.parse(answer)
        raise _error(status, f"{method} was answered with HTTP {status}")


def _error(status: int, message: str) -> kube.ApiError:
    """The error of a status; what the server says about it could be anything, and stays out."""
    if status in {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}:
        return kube.Conflict(status, "Conflict", message)
    if status == HTTPStatus.NOT_FOUND:
        return kube.NotFound(status, "NotFound", message)
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return kube.Forbidden(status, "Forbidden", message)
    return kube.Unavailable(status, message)


def _node(obj: object) -> Node:
    return Node(
        _word(obj, "metadata", "name"),
        _word(obj, "metadata", "uid"),
        _word(obj, "metadata", "resourceVersion"),
        _word(obj, "status", "nodeInfo", "systemUUID"),
        _word(obj, "spec", "providerID"),
    )


def _word(obj: object, *path: str) -> str:
    """A text in an object, empty when it is not there."""
    for key in path:
        obj = obj.get(key) if isinstance(obj, dict) else None
    return obj if isinstance(obj, str) else ""


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    found = bytearray()
    async for part in response.content.iter_chunked(1 << 16):
        found += part
        if len(found) > LARGEST:
            raise ValueError("the answer is too large")
    return bytes(found)
