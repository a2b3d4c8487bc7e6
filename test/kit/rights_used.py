"""Which of their rights our processes used in a whole run of the tests, by its audit logs.

A right that nothing used fails the run: it is either not needed, or not tested. Hooks of pytest.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from test.kit import rights

Use = tuple[str, str, str, str]
"""Who (`controller`, `operator`, `provider`), verb, API group, resource with its subresource."""

HOLDERS: Final[Mapping[str, tuple[rights.Right, ...]]] = {
    "controller": rights.CONTROLLER,
    "operator": rights.OPERATOR,
    "provider": (*rights.STATIC, *rights.provider("some", "uid", ["granted"])),
}
UNSEEN: Final = frozenset(
    {
        # Asked by the API server itself, about a request for something else.
        ("escalate", "roles"),
        ("bind", "roles"),
        ("bind", "clusterroles"),
        ("operate", "providers"),
        # Of pods, which only a cluster with a node has.
        ("get", "pods"),
        # By the operator, where Cluster API is installed before its process begins.
        ("list", "machines"),
        ("watch", "machines"),
    }
)
"""Verbs and resources that no audit log of these tests can show."""

_BACKENDS: Final = re.compile("^(simulated|vsphere)")
"""The same code asks for the kinds of every backend, so a right used on one counts for all."""

_ONE_RECORDER: Final = "events.k8s.io"
"""Every process tells Events by the same code, which reads and counts only those that return."""

_BLOCKING: Final = "/finalizers"
"""Who makes an object that blocks its owner's deletion has to have `update` on these. That is asked
where admission plugin OwnerReferencesPermissionEnforcement is on, and nowhere else."""

_WORKER_OUTPUT: Final = "rights used"
_USER: Final = re.compile(rb'"username":"system:serviceaccount:[^":]+:banlieue-(\w+)')
_OURS: Final = b'"userAgent":"banlieue/'
_CREATED: Final = 201
_REFUSED: Final = (401, 403)
"""By authorization; whatever else came of a request, the right to it was there."""

_used: set[Use] = set()


def note(audit_log: Path) -> None:
    """Remember what the processes used that one API server has served."""
    with audit_log.open("rb") as lines:
        _used.update(uses(lines))


def uses(lines: Iterable[bytes]) -> Iterator[Use]:
    """What the requests of our processes that were let through took, line by line of an audit log.

    Tests that take an account in their own hands call themselves otherwise than our processes do.
    """
    for line in lines:
        user = _USER.search(line)
        if user is None or _OURS not in line:
            continue
        who, event = user[1].decode(), json.loads(line)
        code = (event.get("responseStatus") or {}).get("code", 403)
        target = event.get("objectRef")
        if who not in HOLDERS or target is None or code in _REFUSED:
            continue
        resource = "/".join(filter(None, (target.get("resource"), target.get("subresource"))))
        group = target.get("apiGroup", "")
        yield who, event["verb"], group, resource
        if code == _CREATED:
            yield who, "create", group, resource  # also by a patch that applies


def _alike(use: Use) -> Use:
    who, verb, group, resource = use
    return "" if group == _ONE_RECORDER else who, verb, group, _BACKENDS.sub("any", resource)


def _seen(verb: str, resource: str) -> bool:
    return (verb, resource) not in UNSEEN and not resource.endswith(_BLOCKING)


def unused(used: Iterable[Use]) -> list[str]:
    """One line for each verb and resource of our rights that nothing used."""
    found = {_alike(it) for it in used}
    return [
        f"{who}: {verb} {right.group}/{resource}, which {right.used} should need"
        for who, all_of_them in HOLDERS.items()
        for right in dict.fromkeys(all_of_them)
        for resource in right.resources.split()
        for verb in right.verbs.split()
        if _seen(verb, resource) and _alike((who, verb, right.group, resource)) not in found
    ]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - xdist does not export it
    """Take over what a worker saw."""
    _used.update(tuple(it) for it in getattr(node, "workeroutput", {}).get(_WORKER_OUTPUT, ()))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Hand it on from a worker; else fail a whole run in which a right stayed unused."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_WORKER_OUTPUT] = sorted(_used)
        return
    if exitstatus or not whole(session.config):
        return
    if idle := unused(_used):
        told = "\n".join(("rights that nothing used in the whole run:", *idle))
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"\n{told}", red=True)


def whole(config: pytest.Config) -> bool:
    """Whether nothing was left out by the command line."""
    chosen = ("file_or_dir", "keyword", "deselect", "ignore", "ignore_glob", "lf", "collectonly")
    return config.getoption("markexpr") == "not e2e" and not any(
        config.getoption(name, default=None) for name in chosen
    )
