"""Which endpoint a Provider's message is about: field and host, never a login. Pure."""

from dataclasses import replace
from urllib.parse import urlsplit

from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.connection import Connection
from banlieue.api.v1alpha1.provider import Provider
from banlieue.sdk.provider.scope import Problem

_SHOWN = 3

_ABOUT_THE_ENDPOINT = frozenset({Reason.PROVIDER_UNREACHABLE, Reason.PROVIDER_TLS_INVALID})


def located(problem: Problem, provider: Provider) -> Problem:
    """The problem with the field and the hosts it is about, where it is about the endpoint."""
    where = _where(provider.spec.connection)
    if problem.reason not in _ABOUT_THE_ENDPOINT or not where or where in problem.message:
        return problem
    return replace(problem, message=f"{where}: {problem.message}")


def _where(to: Connection) -> str:
    field = "connection.endpoint" if to.endpoint else "connection.endpoints"
    urls = [to.endpoint] if to.endpoint else to.endpoints
    hosts = [host for url in urls[:_SHOWN] if (host := _host(url))]
    more = f" and {len(urls) - _SHOWN} more" if len(urls) > _SHOWN else ""
    return f"{field} {', '.join(hosts)}{more}" if hosts else ""


def _host(url: str) -> str:
    """Host and port as written, without scheme, login and path; empty where there is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if not host:
        return ""
    bare = f"[{host}]" if ":" in host else host
    return f"{bare}:{port}" if port else bare
