"""Sending a file to a host: one HTTP request whose body is given piece by piece."""

import contextlib
import hashlib
import hmac
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import urlsplit

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.transport import CheckedConnection, Trust, Untrusted
from banlieue.sdk.errors import NeedsOperator, Transient

_SILENCE = 300.0
"""Seconds a host may take for a piece; storage that is busy makes it wait."""

_SHA1_BYTES = 20
_OK = 300
_DISK = {"Content-Type": "application/x-vnd.vmware-streamVmdk"}
_FILE = {"Content-Type": "application/octet-stream", "Overwrite": "t"}


@dataclass(frozen=True, slots=True)
class HostTrust(Trust):
    """Trust in the one certificate whose thumbprint a trusted vCenter told; SHA-1 or SHA-256."""

    thumbprint: bytes = b""

    def check(self, certificate: bytes) -> None:
        """Compare a certificate in DER with the thumbprint; raises `Untrusted`."""
        old = len(self.thumbprint) == _SHA1_BYTES
        found = hashlib.new("sha1" if old else "sha256", certificate, usedforsecurity=True).digest()
        if not hmac.compare_digest(found, self.thumbprint):
            raise Untrusted(found.hex(":").upper())


class _Connection(CheckedConnection):
    """Gives every answer to the caller, whatever its status."""

    def getresponse(self) -> HTTPResponse:
        return HTTPSConnection.getresponse(self)


class Upload:
    """One file on its way to a host. Not thread-safe.

    Args:
        url: where the lease says the file goes; its host may be `*`.
        vcenter: host name that `*` stands for.
        trust: whom to trust.
        size: bytes in all; None when only the end of the stream tells.
        disk: whether it is a disk, which hosts take otherwise than other files.
    """

    def __init__(
        self, url: str, vcenter: str, trust: Trust, size: int | None, *, disk: bool
    ) -> None:
        parts = urlsplit(url)
        host = vcenter if parts.hostname in {None, "*"} else parts.hostname
        self._chunked = size is None
        self._connection = _Connection(
            host or vcenter, parts.port or 443, timeout=_SILENCE, context=trust.context, trust=trust
        )
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        self._connection.putrequest("POST" if disk else "PUT", path, skip_accept_encoding=True)
        for name, value in (_DISK if disk else _FILE).items():
            self._connection.putheader(name, value)
        if size is None:
            self._connection.putheader("Transfer-Encoding", "chunked")
        else:
            self._connection.putheader("Content-Length", str(size))
        with self._sending():
            self._connection.endheaders()

    @contextlib.contextmanager
    def _sending(self) -> Iterator[None]:
        """Tell a host that cannot be reached, or is not trusted, from a vCenter that is not."""
        host = self._connection.host
        try:
            yield
        except (Untrusted, ssl.SSLCertVerificationError) as error:
            raise NeedsOperator(
                Reason.IMAGE_IMPORT_FAILED,
                f"the certificate of host {host} is not the one the vCenter tells, nor trusted by "
                "the Provider; correct caBundle or thumbprints",
            ) from error
        except (OSError, HTTPException) as error:
            raise Transient(
                Reason.IMAGE_IMPORT_FAILED,
                f"the image cannot be sent to host {host} ({type(error).__name__}); the provider "
                f"has to reach it on port {self._connection.port}",
            ) from error

    def write(self, piece: bytes) -> None:
        """Send a piece."""
        if not piece:
            return
        with self._sending():
            if self._chunked:
                self._connection.send(b"%x\r\n" % len(piece) + piece + b"\r\n")
            else:
                self._connection.send(piece)

    def end(self) -> None:
        """Wait until the host has it all; raises `Transient` when it does not take it."""
        try:
            with self._sending():
                if self._chunked:
                    self._connection.send(b"0\r\n\r\n")
                answer = self._connection.getresponse()
                answer.read()
        finally:
            self._connection.close()
        if answer.status >= _OK:
            raise Transient(
                Reason.IMAGE_IMPORT_FAILED,
                f"a host refused the image's file with HTTP status {answer.status}; "
                "it is tried again",
            )

    def abort(self) -> None:
        """Hang up."""
        self._connection.close()
