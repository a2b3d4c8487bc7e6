"""What a SOAP proxy does to calls: rules, and the ways to make them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

ANY: Final = "*"

_IDENTITY: Final = re.compile(r"/id:[^/]+")
_METHOD: Final = re.compile(rb"<(?:\w+:)?Body\b[^>]*>\s*<(?:\w+:)?(\w+)")


class Action(Enum):
    """What becomes of a call."""

    ANSWER = auto()
    BLACK_HOLE = auto()
    CUT = auto()
    DELAY = auto()
    DROP_REPLY = auto()
    HALF_BODY = auto()
    STRIP_COOKIE = auto()


@dataclass(slots=True)
class Rule:
    """One rule; make it by the functions below.

    Attributes:
        method: SOAP method, a REST call like `POST /rest/com/vmware/cis/session`, with `id:*` for
            what it is about and its action as a further word, or `*`.
        action: What becomes of the call.
        count: Calls that it takes, None without end.
        skip: Matching calls that pass first.
        seconds: Of a delay.
        status: HTTP status of an answer.
        content: Body of an answer.
        content_type: Of that body.
        hits: Calls that it took so far.
    """

    method: str
    action: Action
    count: int | None = None
    skip: int = 0
    seconds: float = 0.0
    status: int = 500
    content: bytes = field(default=b"", repr=False)
    content_type: str = "text/xml; charset=utf-8"
    hits: int = 0
    _seen: int = field(default=0, repr=False)

    def takes(self, method: str) -> bool:
        """Whether it takes a call of that method; counts it."""
        if self.method not in {ANY, method}:
            return False
        if self.count is not None and self.hits >= self.count:
            return False
        self._seen += 1
        if self._seen <= self.skip:
            return False
        self.hits += 1
        return True


def fault(
    method: str,
    name: str,
    fields: Mapping[str, str | tuple[str, str]] | None = None,
    *,
    count: int | None = None,
    skip: int = 0,
    message: str = "",
) -> Rule:
    """Answer with a vSphere fault, without asking the vCenter.

    Args:
        method: Which calls.
        name: Type of the fault, such as NotAuthenticated.
        fields: Its fields in the order of the API, a reference as (type, value).
        count: How many calls; None without end.
        skip: Matching calls that pass first.
        message: Its text.
    """
    inner = "".join(_element(key, value) for key, value in (fields or {}).items())
    envelope = (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body><soapenv:Fault>'
        f"<faultcode>ServerFaultCode</faultcode><faultstring>{escape(message)}</faultstring>"
        f'<detail><{name}Fault xmlns="urn:vim25" xsi:type="{name}">{inner}</{name}Fault></detail>'
        "</soapenv:Fault></soapenv:Body></soapenv:Envelope>"
    )
    return Rule(method, Action.ANSWER, count, skip, content=envelope.encode())


def _element(name: str, value: str | tuple[str, str]) -> str:
    if isinstance(value, str):
        return f"<{name}>{escape(value)}</{name}>"
    return f'<{name} type="{value[0]}">{escape(value[1])}</{name}>'


def http_status(method: str, status: int = 503, *, count: int | None = None, skip: int = 0) -> Rule:
    """Answer with an HTTP status and a page, as a reverse proxy without its server does."""
    page = f"<html><body><h1>{status}</h1></body></html>".encode()
    return Rule(
        method, Action.ANSWER, count, skip, status=status, content=page, content_type="text/html"
    )


def delay(method: str, seconds: float, *, count: int | None = None, skip: int = 0) -> Rule:
    """Send the call on after some seconds."""
    return Rule(method, Action.DELAY, count, skip, seconds=seconds)


def drop_reply(method: str, *, count: int | None = 1, skip: int = 0) -> Rule:
    """Have the call executed, and reset the connection instead of giving the reply."""
    return Rule(method, Action.DROP_REPLY, count, skip)


def half_body(method: str, *, count: int | None = 1, skip: int = 0) -> Rule:
    """Have the call executed, and reset the connection in the middle of the reply."""
    return Rule(method, Action.HALF_BODY, count, skip)


def cut(method: str, *, count: int | None = None, skip: int = 0) -> Rule:
    """Reset the connection before the call is sent on."""
    return Rule(method, Action.CUT, count, skip)


def black_hole(method: str, *, count: int | None = None, skip: int = 0) -> Rule:
    """Keep the call and never answer, until the rules are cleared."""
    return Rule(method, Action.BLACK_HOLE, count, skip)


def strip_cookie(method: str, *, count: int | None = None, skip: int = 0) -> Rule:
    """Send the call on without its session."""
    return Rule(method, Action.STRIP_COOKIE, count, skip)


def rest_fault(method: str, kind: str, status: int = 503, *, count: int | None = None) -> Rule:
    """Answer a REST call with an error of the service, such as `service_unavailable`."""
    told = {"type": f"com.vmware.vapi.std.errors.{kind}", "value": {"messages": []}}
    content = json.dumps(told).encode()
    return Rule(
        method,
        Action.ANSWER,
        count,
        status=status,
        content=content,
        content_type="application/json",
    )


def rest_path(path: str) -> str:
    """The path of a REST call and its action, the same whatever it is about."""
    bare, _, query = path.partition("?")
    asked = dict(parse_qsl(query))
    action = asked.get("action") or asked.get("~action")
    return " ".join(filter(None, (_IDENTITY.sub("/id:*", bare), action)))


def soap_method(body: bytes) -> str:
    """The SOAP method that a request calls, "" when it is no SOAP."""
    found = _METHOD.search(body)
    return found[1].decode() if found else ""
