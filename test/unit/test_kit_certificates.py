import hashlib
import socket
import ssl
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from test.kit.certificates import Authority, KeyPair, signing_key, thumbprint
from test.kit.ports import LOOPBACK


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def _handshake(pair: KeyPair, authority: Authority, directory: Path, host: str) -> bytes:
    """Let a strict client connect to a server with that certificate; returns what it was shown."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(*pair.write(directory, "server"))
    client_side = ssl.create_default_context(cadata=authority.certificate.decode())
    client_side.verify_flags |= ssl.VERIFY_X509_STRICT
    listener = socket.create_server((LOOPBACK, 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            try:
                server_side.wrap_socket(connection, server_side=True).close()
            except OSError:
                return

    server = threading.Thread(target=serve)
    server.start()
    try:
        with (
            socket.create_connection(listener.getsockname()) as raw,
            client_side.wrap_socket(raw, server_hostname=host) as client,
        ):
            return client.getpeercert(binary_form=True) or b""
    finally:
        server.join()
        listener.close()


@pytest.mark.parametrize("host", [LOOPBACK, "vcenter.test"])
def test_a_strict_client_trusts_what_the_authority_issued(
    authority: Authority, tmp_path: Path, host: str
) -> None:
    pair = authority.issue("server", hosts=["vcenter.test", LOOPBACK])

    der = _handshake(pair, authority, tmp_path, host)

    shown = hashlib.sha256(der).hexdigest().upper()
    assert pair.thumbprint.replace(":", "") == shown
    assert thumbprint(pair.certificate) == pair.thumbprint
    assert pair.thumbprint.count(":") == 31


@pytest.mark.parametrize(
    ("first_day", "last_day", "reason"),
    [(-2, -1, "certificate has expired"), (1, 2, "not yet valid")],
)
def test_a_certificate_out_of_its_time_is_refused(
    tmp_path: Path, first_day: int, last_day: int, reason: str
) -> None:
    authority = Authority()
    pair = authority.issue(
        "server",
        hosts=[LOOPBACK],
        valid_from=timedelta(days=first_day),
        valid_until=timedelta(days=last_day),
    )

    with pytest.raises(ssl.SSLCertVerificationError, match=reason):
        _handshake(pair, authority, tmp_path, LOOPBACK)


def test_another_host_or_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("server", hosts=[LOOPBACK])

    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _handshake(pair, authority, tmp_path, "other.test")
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(pair, Authority(), tmp_path, LOOPBACK)


def test_private_keys_are_for_their_owner_only(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("client", organizations=["readers"])
    certificate, key = pair.write(tmp_path, "client")

    assert key.stat().st_mode & 0o777 == 0o600
    assert certificate.read_bytes() == pair.certificate
    assert "PRIVATE KEY" not in repr(pair)
    assert signing_key() != signing_key()
