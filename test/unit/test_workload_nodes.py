"""A kubeconfig of somebody else's is data, and so is what the server it names answers."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretBytes

from banlieue.sdk import kube
from banlieue.sdk.runtime import workload
from banlieue.sdk.runtime.workload import open_nodes, read_kubeconfig
from banlieue.sdk.workload import KubeconfigError, Node
from test.kit.certificates import Authority, KeyPair

AUTHORITY = Authority()
ADMIN = AUTHORITY.issue("admin", organizations=["system:masters"])
SERVER = AUTHORITY.issue("server", hosts=["127.0.0.1"])
WORD = "planted-secret-word"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def kubeconfig(
    server: str = "https://127.0.0.1:6443",
    user: dict[str, Any] | None = None,
    authority: bytes | None = None,
    cluster: Mapping[str, object] | None = None,
) -> SecretBytes:
    body = {
        "server": server,
        "certificate-authority-data": encoded(authority or AUTHORITY.certificate),
        **(cluster or {}),
    }
    document = {
        "clusters": [{"name": "c", "cluster": body}],
        "users": [{"name": "u", "user": certified(ADMIN) if user is None else user}],
        "contexts": [
            {"name": "other", "context": {"cluster": "none", "user": "none"}},
            {"name": "x", "context": {"cluster": "c", "user": "u"}},
        ],
        "current-context": "x",
    }
    return SecretBytes(json.dumps(document).encode())


def certified(pair: KeyPair) -> dict[str, Any]:
    return {
        "client-certificate-data": encoded(pair.certificate),
        "client-key-data": encoded(pair.key),
    }


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_a_kubeconfig_of_cluster_api_is_read() -> None:
    found = read_kubeconfig(
        kubeconfig("https://10.0.0.9:6443/", cluster={"tls-server-name": "api"})
    )
    assert (found.server, found.server_name, found.token) == ("https://10.0.0.9:6443", "api", None)
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert found.tls.check_hostname


def test_a_token_shows_nowhere() -> None:
    found = read_kubeconfig(kubeconfig(user={"token": WORD}))
    assert found.token is not None
    assert found.token.get_secret_value() == WORD.encode()
    assert WORD not in repr(found)


@pytest.mark.security("7.3")
@pytest.mark.parametrize(
    "user",
    [
        {},
        {"exec": {"command": "touch", "args": [WORD]}},
        {"auth-provider": {"name": WORD}},
        {"tokenFile": f"/var/run/{WORD}"},
        {"client-certificate": f"/etc/{WORD}", "client-key": "/etc/key"},
        {"username": "admin", "password": WORD},
        {"token": f"{WORD}\nX-Other: header"},
        {"token": [WORD]},
        {"token": ""},
        {**certified(ADMIN), "token": f"{WORD}\r\nX-Other: header"},
        {"client-certificate-data": "%%%", "client-key-data": WORD},
        {"client-certificate-data": encoded(ADMIN.certificate)},
        certified(KeyPair(ADMIN.certificate, SERVER.key)),
        certified(KeyPair(WORD.encode(), WORD.encode())),
    ],
)
def test_a_user_that_is_not_all_in_it_is_refused(user: dict[str, Any]) -> None:
    with pytest.raises(KubeconfigError) as refusal:
        read_kubeconfig(kubeconfig(user=user))
    assert WORD not in str(refusal.value)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize(
    "cluster",
    [
        {"server": f"http://{WORD}"},
        {"server": f"file:///{WORD}"},
        {"server": 7},
        {"insecure-skip-tls-verify": True},
        {"proxy-url": f"http://{WORD}"},
        {"tls-server-name": [WORD]},
        {"certificate-authority-data": ""},
        {"certificate-authority-data": encoded(WORD.encode())},
        {"certificate-authority-data": None, "certificate-authority": f"/etc/{WORD}"},
    ],
)
def test_a_server_that_could_not_be_trusted_is_refused(cluster: dict[str, Any]) -> None:
    with pytest.raises(KubeconfigError) as refusal:
        read_kubeconfig(kubeconfig(cluster=cluster))
    assert WORD not in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        WORD,
        f"{{{WORD}",
        f"- {WORD}",
        "current-context: x",
        "contexts: 7\ncurrent-context: x",
        "contexts: [7, {name: x, context: 7}]\ncurrent-context: x",
        "contexts: [{name: x, context: {cluster: [c], user: u}}]\ncurrent-context: x",
        "!!python/object/apply:os.system ['true']",
        "[" * 600,
        "\x00",
        "a" * (200 << 10),
    ],
)
def test_what_is_no_kubeconfig_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(KubeconfigError) as refusal:
        read_kubeconfig(SecretBytes(text.encode()))
    assert WORD not in str(refusal.value)


def test_a_key_with_a_password_is_refused_rather_than_asked_for() -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(ADMIN.key, password=None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )
    with pytest.raises(KubeconfigError, match="do not fit"):
        read_kubeconfig(kubeconfig(user=certified(KeyPair(ADMIN.certificate, locked))))


@dataclass
class Api:
    """A server that answers as a test says, and what it was asked."""

    url: str
    asked: list[web.Request]


@asynccontextmanager
async def serving(handler: Handler, directory: Path) -> AsyncIterator[Api]:
    asked: list[web.Request] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(request)
        return await handler(request)

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*SERVER.write(directory, "server"))
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield Api(f"https://127.0.0.1:{runner.addresses[0][1]}", asked)
    finally:
        await runner.cleanup()


def a_node(name: str = "n") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": "u", "resourceVersion": "7"},
        "spec": {},
        "status": {"nodeInfo": {"systemUUID": "S"}},
    }


async def test_nodes_are_read_page_by_page(tmp_path: Path) -> None:
    async def pages(request: web.Request) -> web.Response:
        if "continue" in request.query:
            return web.json_response({"items": [a_node("two")]})
        return web.json_response({"items": [a_node("one")], "metadata": {"continue": "a b&c"}})

    async with (
        serving(pages, tmp_path) as api,
        open_nodes(kubeconfig(api.url, user={"token": WORD})) as nodes,
    ):
        found = await nodes.list()
    assert found == [Node("one", "u", "7", "S", ""), Node("two", "u", "7", "S", "")]
    assert [it.query.get("continue") for it in api.asked] == [None, "a b&c"]
    assert {it.headers["Authorization"] for it in api.asked} == {f"Bearer {WORD}"}


async def test_a_server_behind_a_path_is_asked_there(tmp_path: Path) -> None:
    async def empty(_: web.Request) -> web.Response:
        return web.json_response({"items": []})

    async with (
        serving(empty, tmp_path) as api,
        open_nodes(kubeconfig(f"{api.url}/k8s/clusters/c-1")) as nodes,
    ):
        assert await nodes.list() == []
    assert api.asked[0].path == "/k8s/clusters/c-1/api/v1/nodes"


async def test_a_node_is_written_as_it_was_read(tmp_path: Path) -> None:
    sent: list[Any] = []

    async def patched(request: web.Request) -> web.Response:
        sent.append((request.path, request.content_type, await request.json()))
        return web.json_response(a_node())

    async with serving(patched, tmp_path) as api, open_nodes(kubeconfig(api.url)) as nodes:
        await nodes.set_provider_id(Node("../n", "u", "7", "S", ""), "vsphere://x")
    ((path, content, ops),) = sent
    assert content == "application/json-patch+json"
    assert api.asked[0].raw_path.startswith("/api/v1/nodes/..%2Fn?")
    assert path.startswith("/api/v1/nodes/")
    assert [(it["op"], it["path"], it["value"]) for it in ops] == [
        ("test", "/metadata/uid", "u"),
        ("test", "/metadata/resourceVersion", "7"),
        ("add", "/spec/providerID", "vsphere://x"),
    ]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (301, kube.Unavailable),
        (401, kube.Forbidden),
        (403, kube.Forbidden),
        (404, kube.NotFound),
        (409, kube.Conflict),
        (422, kube.Conflict),
        (500, kube.Unavailable),
    ],
)
async def test_an_error_says_its_status_and_nothing_of_the_server(
    tmp_path: Path, status: int, error: type[kube.ApiError]
) -> None:
    async def answer(_: web.Request) -> web.Response:
        body = {"kind": "Status", "message": WORD, "details": WORD, "reason": [WORD]}
        where = {"Location": "https://127.0.0.1:1/"} if status == 301 else {}
        return web.json_response(body, status=status, headers=where)

    async with serving(answer, tmp_path) as api, open_nodes(kubeconfig(api.url)) as nodes:
        with pytest.raises(error) as told:
            await nodes.list()
    assert type(told.value) is error
    assert WORD not in str(told.value)
    assert len(api.asked) == 1, "and no redirection is followed"


@pytest.mark.parametrize(
    "body", ["", "no json", "[]", '{"items": 7}', '{"items": [7, {"metadata": 7}]}']
)
async def test_an_answer_of_another_shape_is_no_node(tmp_path: Path, body: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body)

    async with serving(answer, tmp_path) as api, open_nodes(kubeconfig(api.url)) as nodes:
        found = await nodes.list()
    assert {it.system_uuid for it in found} <= {""}


async def test_an_answer_without_end_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload, "LARGEST", 1 << 16)

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while not request.transport or not request.transport.is_closing():
            await response.write(b"x" * 4096)
        return response

    async def asked() -> None:
        async with serving(endless, tmp_path) as api, open_nodes(kubeconfig(api.url)) as nodes:
            with pytest.raises(kube.Unavailable):
                await nodes.list()

    await asyncio.wait_for(asked(), 20)


async def test_pages_without_end_are_not_read_to_their_end(tmp_path: Path) -> None:
    async def again(_: web.Request) -> web.Response:
        return web.json_response({"items": [], "metadata": {"continue": "more"}})

    async with serving(again, tmp_path) as api, open_nodes(kubeconfig(api.url)) as nodes:
        with pytest.raises(kube.Unavailable):
            await nodes.list()
    assert len(api.asked) == workload.PAGES


async def test_another_authority_is_not_trusted(tmp_path: Path) -> None:
    async def empty(_: web.Request) -> web.Response:
        return web.json_response({"items": []})

    other = Authority("another").certificate
    async with (
        serving(empty, tmp_path) as api,
        open_nodes(kubeconfig(api.url, authority=other)) as nodes,
    ):
        with pytest.raises(kube.Unavailable):
            await nodes.list()
    assert api.asked == []


async def test_nobody_there_is_no_answer() -> None:
    async with open_nodes(kubeconfig("https://127.0.0.1:1")) as nodes:
        with pytest.raises(kube.Unavailable):
            await nodes.list()
