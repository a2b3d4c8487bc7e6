"""Options the roles share, and what they turn into."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from banlieue.api import names
from banlieue.sdk.kube import Key

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--kubeconfig",
        envvar="KUBECONFIG",
        default="",
        metavar="FILE",
        help="How to reach the cluster. Default: $KUBECONFIG, else the pod's service account, "
        "else ~/.kube/config.",
    ),
    click.option("--context", "kube_context", default="", help="Context in the kubeconfig."),
    click.option(
        "--http-port",
        type=click.IntRange(0, 65535),
        default=8080,
        show_default=True,
        help="Port of /healthz, /readyz and /metrics; 0 picks a free one.",
    ),
    click.option(
        "--http-host",
        default="127.0.0.1",
        show_default=True,
        help="Address they listen on; in a pod 0.0.0.0.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(["json", "text"]),
        default="json",
        show_default=True,
        help="One JSON object a line, or lines for people.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="How much is logged.",
    ),
    click.option(
        "--system-namespace",
        default=names.SYSTEM_NAMESPACE,
        show_default=True,
        help="Where banlieue is installed: its ConfigMap banlieue-installation and Leases.",
    ),
)


def _seconds(what: str, variable: str, default: float, text: str) -> Callable[[F], F]:
    return click.option(
        f"--leader-elect-{what}",
        variable,
        type=click.FloatRange(min=1),
        default=default,
        show_default=True,
        metavar="SECONDS",
        help=text,
    )


_LEADER_OPTIONS = (
    _seconds(
        "lease-duration",
        "lease_duration",
        60,
        "How long others wait for a silent holder before they take over; 300 at most.",
    ),
    _seconds(
        "renew-deadline",
        "lease_deadline",
        40,
        "How long a holder that cannot renew goes on before it ends; an outage of the API server "
        "that is shorter goes by unnoticed.",
    ),
    _seconds(
        "retry-period",
        "lease_retry",
        10,
        "Pause between renewals and between attempts to take over.",
    ),
)


def leader_options(lease: str) -> Callable[[F], F]:
    """Add the options of roles of which one works and others stand by, by that Lease."""
    elect = click.option(
        "--leader-elect/--no-leader-elect",
        default=True,
        show_default=True,
        help=f"Run only while holding the Lease {lease}, so that several may stand by.",
    )

    def add(command: F) -> F:
        for option in reversed((elect, *_LEADER_OPTIONS)):
            command = option(command)
        return command

    return add


def role_options(command: F) -> F:
    """Add the options every role has."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class _Name(click.ParamType[str]):
    """A name that the API server would take; another is refused before anything is asked."""

    def __init__(self, name: str, pattern: re.Pattern[str], longest: int) -> None:
        self.name = name
        self._pattern = pattern
        self._longest = longest

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Give it as it is; fails with what it should look like."""
        if not self.fits(value):
            self.fail(f"{value!r} is no name of a {self.name}: {self.rule}", param, ctx)
        return value

    def fits(self, value: str) -> bool:
        """Whether it can be one."""
        return len(value) <= self._longest and self._pattern.fullmatch(value) is not None

    @property
    def rule(self) -> str:
        """What one looks like."""
        dots = "" if self._longest == _LONGEST_LABEL else ", dots"
        return f"lower case letters, digits{dots} and dashes, at most {self._longest}"


_LONGEST_LABEL = 63
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAMESPACE = _Name("namespace", re.compile(_LABEL), _LONGEST_LABEL)
_PROVIDER = _Name("Provider", re.compile(rf"{_LABEL}(\.{_LABEL})*"), 253)
OBJECT = _Name("object", re.compile(rf"{_LABEL}(\.{_LABEL})*"), 253)
SECRET = _Name("Secret", re.compile(rf"{_LABEL}(\.{_LABEL})*"), 253)


class ProviderKey(click.ParamType[Key]):
    """`namespace/name` of a Provider."""

    name = "namespace/name"

    def convert(
        self,
        value: object,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Key:
        """Read the key; fails with what it should look like."""
        if isinstance(value, Key):
            return value
        namespace, _, name = str(value).partition("/")
        if not namespace or not name or "/" in name:
            self.fail(f"{value!r} must be namespace/name of a Provider", param, ctx)
        NAMESPACE.convert(namespace, param, ctx)
        _PROVIDER.convert(name, param, ctx)
        return Key(namespace, name)
