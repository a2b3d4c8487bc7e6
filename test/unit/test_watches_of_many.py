"""Kinds of which there are thousands go by the cheap watch engine, whoever watches them first."""

import logging
from collections.abc import Callable
from random import Random

import pytest

from banlieue.api.meta import Resource
from banlieue.api.resources import (
    CAPI_MACHINES,
    IP_ADDRESS_CLAIMS,
    IP_ADDRESSES,
    VIRTUAL_MACHINES,
)
from banlieue.controller.app import ControllerRole
from banlieue.operator.app import OperatorRole, Settings
from banlieue.sdk.machine.reconciler import CONTROLLER
from banlieue.sdk.provider.classes import default_class
from banlieue.sdk.reconcile import Watch
from banlieue.sdk.registry import load_backend
from banlieue.sdk.runtime.process import Options, Process
from banlieue.sdk.runtime.serve import ProviderRole, Scope
from banlieue.sdk.testing.fakes import FakeClock

VSPHERE = load_backend("vsphere")
CROWDS = {CAPI_MACHINES, IP_ADDRESS_CLAIMS, IP_ADDRESSES, VIRTUAL_MACHINES, VSPHERE.machine}


def controller(process: Process) -> None:
    role = ControllerRole.of(process.context)
    for it in role.controllers():
        process.add_controller(it)
    role.watch_class(default_class(VSPHERE))


def operator(process: Process) -> None:
    for it in OperatorRole(process.context, Settings()).controllers():
        process.add_controller(it)


def provider(process: Process) -> None:
    ProviderRole(process, VSPHERE, Scope(None))


def started(build: Callable[[Process], None]) -> Process:
    process = Process(Options(role="any"), clock=FakeClock(), rng=Random(1))
    build(process)
    return process


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (controller, CROWDS),
        (operator, {CAPI_MACHINES, VIRTUAL_MACHINES}),
        (provider, {VSPHERE.machine}),
    ],
)
def test_crowds_are_watched_as_such(
    build: Callable[[Process], None], expected: set[Resource], caplog: pytest.LogCaptureFixture
) -> None:
    streams = started(build)._engine._keepers
    assert {it.resource for it in streams if it.many} == expected
    assert {it.resource for it in streams if not it.many}.isdisjoint(CROWDS)
    assert not [it for it in caplog.records if it.levelno >= logging.ERROR]


def test_watches_that_disagree_are_told_as_a_defect(caplog: pytest.LogCaptureFixture) -> None:
    process = started(provider)
    selector = next(
        it.field_selector for it in process._engine._keepers if it.resource == VSPHERE.machine
    )
    watch = Watch(VSPHERE.machine, lambda _: (), field_selector=selector, namespace="")
    process._engine._attach(process._engine._controllers[CONTROLLER], watch)
    [record] = [it for it in caplog.records if it.levelno >= logging.ERROR]
    assert "disagree" in record.getMessage()
