import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hack.cluster.clusterapi import webhooks
from hack.cluster.clusterapi.kubectl import KubectlError
from hack.cluster.clusterapi.webhooks import (
    DEFAULTINGS,
    REFUSALS,
    WebhookError,
    await_webhooks,
    probe_webhooks,
)

Object = dict[str, Any]
KUBECONFIG = Path("/kubeconfig")


class Server:
    """Answers dry runs as the webhooks do, but for what a test changes."""

    def __init__(self) -> None:
        self.requests = 0
        self.refuse: Callable[[str], str] = "The object is invalid: {}".format
        self.allowed: str | None = None
        self.idle: str | None = None
        self.unreachable_until = 0

    def __call__(
        self,
        _: Path,
        *arguments: str,
        input: Object,  # noqa: A002 - as the real one
        request_seconds: int,
    ) -> str:
        assert "--dry-run=server" in arguments
        assert request_seconds < 10
        self.requests += 1
        if self.requests <= self.unreachable_until:
            raise KubectlError('failed calling webhook "x": connection refused')
        for refusal in REFUSALS:
            if input == refusal.wrong and refusal.webhook != self.allowed:
                raise KubectlError(self.refuse(refusal.message))
        stored = json.loads(json.dumps(input))
        for defaulting in DEFAULTINGS:
            if input == defaulting.given and defaulting.webhook != self.idle:
                place = stored
                for name in defaulting.field[:-1]:
                    place = place[name]
                place[defaulting.field[-1]] = defaulting.value
        return json.dumps(stored)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(webhooks, "kubectl", server)
    monkeypatch.setattr(webhooks, "_PAUSE_SECONDS", 0)
    return server


def test_webhooks_that_answer_pass(server: Server) -> None:
    probe_webhooks(KUBECONFIG)
    assert server.requests == len(REFUSALS) + len(DEFAULTINGS)


@pytest.mark.parametrize("name", [refusal.webhook for refusal in REFUSALS])
def test_a_webhook_that_allows_everything_is_named(server: Server, name: str) -> None:
    server.allowed = name
    with pytest.raises(WebhookError, match=f"{name} allows what it must refuse"):
        probe_webhooks(KUBECONFIG)


@pytest.mark.parametrize("name", [defaulting.webhook for defaulting in DEFAULTINGS])
def test_a_webhook_that_completes_nothing_is_named(server: Server, name: str) -> None:
    server.idle = name
    with pytest.raises(WebhookError, match=rf"{name} leaves spec\..* as '1\.34\.0'"):
        probe_webhooks(KUBECONFIG)


@pytest.mark.parametrize(
    "told",
    [
        'failed calling webhook "x": connection refused',
        "Cluster is invalid: spec.clusterNetwork: Invalid value",
    ],
)
def test_another_refusal_is_no_answer(server: Server, told: str) -> None:
    server.refuse = lambda _: told
    with pytest.raises(WebhookError, match="does not answer"):
        probe_webhooks(KUBECONFIG)


def test_waiting_ends_with_the_first_full_answer(server: Server) -> None:
    server.unreachable_until = 3
    assert await_webhooks(KUBECONFIG, 60) >= 0
    assert server.requests == 3 + len(REFUSALS) + len(DEFAULTINGS)


def test_waiting_ends_in_time_and_says_what_was_seen(server: Server) -> None:
    server.unreachable_until = 10_000
    seconds = iter(range(1000))
    with pytest.raises(WebhookError, match=r"not after 30 s: .*connection refused"):
        await_webhooks(KUBECONFIG, 30, clock=lambda: next(seconds))
    assert server.requests < 40


def test_every_kind_of_manager_is_asked() -> None:
    groups = {refusal.wrong["apiVersion"].split("/")[0] for refusal in REFUSALS}
    assert groups == {
        "cluster.x-k8s.io",
        "bootstrap.cluster.x-k8s.io",
        "controlplane.cluster.x-k8s.io",
    }
