"""Reads what an HTTP URL gives, piece by piece. No message quotes the URL: it may hold a login."""

import base64
import contextlib
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from banlieue.api.reasons import Reason
from banlieue.sdk.errors import InvalidSpec, Transient

SILENCE = 30.0
"""Seconds without a byte after which a server counts as gone."""

_PIECE = 1024 * 1024
_SCHEMES = frozenset({"http", "https"})
_AGENT = "banlieue-image-import"


class Download(Protocol):
    """An answer that is being read."""

    @property
    def total(self) -> int | None:
        """Bytes there are in all, as far as the server tells."""

    def pieces(self) -> Iterator[bytes]:
        """The bytes in order; raises `Transient` when they end early."""


class Fetch(Protocol):
    """Opens a URL for reading; leaving the context hangs up."""

    def __call__(self, url: str) -> AbstractContextManager[Download]:
        """Ask for the URL.

        Raises:
            Transient: no answer, or one that is no success.
            InvalidSpec: the URL is of another kind than http or https.
        """


class _HttpDownload:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        told = response.headers.get("Content-Length") or ""
        self.total = int(told) if told.isdecimal() else None

    def pieces(self) -> Iterator[bytes]:
        done = 0
        try:
            while piece := self._response.read1(_PIECE):
                done += len(piece)
                yield piece
        except (OSError, http.client.HTTPException) as error:
            raise _failed("the connection to the image's server broke") from error
        if self.total is not None and done < self.total:
            raise _failed("the image's server ended before it had sent everything")


@contextmanager
def fetch(url: str) -> Iterator[Download]:
    """The `Fetch` of a real process. Proxies are those of the environment."""
    try:
        response = _opener().open(_request(url), timeout=SILENCE)
    except urllib.error.HTTPError as error:
        with error:
            raise _failed(f"the server of the image's URL answered {error.code}") from None
    except (OSError, http.client.HTTPException, ValueError):
        # The cause is left out: its text may quote the URL.
        raise _failed("the server of the image's URL cannot be reached") from None
    with contextlib.closing(response):
        yield _HttpDownload(response)


def _request(url: str) -> urllib.request.Request:
    """A login in the URL goes into a header, where servers look for it."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise InvalidSpec(
            Reason.IMAGE_IMPORT_FAILED,
            "images are imported from http and https URLs only; correct the VMImage's source",
        )
    headers = {"User-Agent": _AGENT, "Accept-Encoding": "identity"}
    login, _, place = parts.netloc.rpartition("@")
    if login:
        pair = urllib.parse.unquote(login).encode()
        headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()
    clean = urllib.parse.urlunsplit(parts._replace(netloc=place, fragment=""))
    request = urllib.request.Request(clean)  # noqa: S310 - the scheme was checked above
    for name, value in headers.items():
        request.add_unredirected_header(name, value)
    return request


def _opener() -> urllib.request.OpenerDirector:
    """HTTP and HTTPS only, also after redirects."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _failed(what: str) -> Transient:
    return Transient(
        Reason.IMAGE_IMPORT_FAILED, f"{what}; it is tried again, correct the URL if it is wrong"
    )
