"""Files that are sent to hosts: whole, by the thumbprint the vCenter told, and never its outage."""

import hashlib
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.transport import Trust
from banlieue.providers.vsphere.images.lease import Target, trust_of
from banlieue.providers.vsphere.images.upload import Upload
from banlieue.sdk.errors import NeedsOperator, Transient, Unreachable
from test.kit.certificates import Authority

CONTENT = bytes(range(256)) * 999


@dataclass
class _Host:
    url: str
    certificate: bytes
    status: int = 200
    seen: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    def thumbprint(self, algorithm: str) -> str:
        return hashlib.new(algorithm, self.certificate).hexdigest().upper()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("host")
    Authority("banlieue test host CA").issue("host", hosts=["127.0.0.1"]).write(directory, "host")
    return directory


@pytest.fixture
def host(pair: Path) -> Iterator[_Host]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            chunked = self.headers.get("Transfer-Encoding") == "chunked"
            body = (
                self._chunks() if chunked else self.rfile.read(int(self.headers["Content-Length"]))
            )
            found.seen.append((self.command, self.path, dict(self.headers), body))
            self.send_response(found.status)
            self.end_headers()

        def do_PUT(self) -> None:
            self.do_POST()

        def _chunks(self) -> bytes:
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            return body

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base names it
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair / "host.crt", pair / "host.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    pem = (pair / "host.crt").read_text(encoding="ascii")
    leaf = pem[: pem.index("-----END CERTIFICATE-----")] + "-----END CERTIFICATE-----\n"
    found = _Host(
        f"https://*:{server.server_address[1]}/nfc/52/disk-0.vmdk", ssl.PEM_cert_to_DER_cert(leaf)
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


def _nobody() -> Trust:
    return Trust(ssl.create_default_context(), frozenset())


def _send(url: str, trust: Trust, size: int | None, *, disk: bool = True) -> None:
    upload = Upload(url, "127.0.0.1", trust, size, disk=disk)
    for start in range(0, len(CONTENT), 5000):
        upload.write(CONTENT[start : start + 5000])
    upload.end()


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_a_disk_arrives_whole_at_the_host_the_vcenter_vouches_for(
    host: _Host, algorithm: str, size: int | None
) -> None:
    target = Target(host.url, host.thumbprint(algorithm))
    _send(target.url, trust_of(target, _nobody()), size)
    ((method, path, headers, body),) = host.seen
    assert (method, path, body) == ("POST", "/nfc/52/disk-0.vmdk", CONTENT)
    assert headers["Content-Type"] == "application/x-vnd.vmware-streamVmdk"


def test_other_files_are_put(host: _Host) -> None:
    target = Target(host.url, host.thumbprint("sha256"))
    _send(target.url, trust_of(target, _nobody()), len(CONTENT), disk=False)
    assert (host.seen[0][0], host.seen[0][2]["Overwrite"]) == ("PUT", "t")


@pytest.mark.parametrize("thumbprint", [None, "00" * 20, "00" * 32, "rubbish"])
def test_a_host_nobody_vouches_for_gets_nothing(host: _Host, thumbprint: str | None) -> None:
    target = Target(host.url, thumbprint)
    with pytest.raises(NeedsOperator, match="certificate of host 127") as refused:
        _send(target.url, trust_of(target, _nobody()), len(CONTENT))
    assert refused.value.reason is Reason.IMAGE_IMPORT_FAILED
    assert host.seen == []


def test_a_host_that_refuses_or_is_not_there_is_no_outage_of_the_vcenter(host: _Host) -> None:
    trust = trust_of(Target(host.url, host.thumbprint("sha256")), _nobody())
    host.status = 500
    with pytest.raises(Transient, match="HTTP status 500") as refused:
        _send(host.url, trust, len(CONTENT))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(Transient, match=f"port {port}") as missing:
        _send(f"https://127.0.0.1:{port}/nfc/1", trust, len(CONTENT))
    for error in (refused.value, missing.value):
        assert error.reason is Reason.IMAGE_IMPORT_FAILED
        assert not isinstance(error, Unreachable)
