"""A real API server does what the in-memory API does: else simulations would show nothing."""

import asyncio

import pytest

from banlieue.sdk.runtime.cache import Cache
from banlieue.sdk.runtime.client import KubeClient
from banlieue.sdk.runtime.connection import Connection
from banlieue.sdk.runtime.hub import Hub
from banlieue.sdk.runtime.metrics import Metrics
from test.kit import things
from test.kit.apicases import CASES
from test.kit.controlplane import ControlPlane
from test.kit.kube import Kube

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", CASES)
async def test_a_real_api_server(
    control_plane: ControlPlane, kube: Kube, namespace: str, name: str
) -> None:
    await asyncio.to_thread(kube.apply_crds, [things.definition()])
    connection = Connection(str(control_plane.kubeconfig))
    await connection.load()
    metrics = Metrics()
    client = KubeClient(connection, role="cases", metrics=metrics, writes=Hub(Cache(), metrics))
    await client.open()
    try:
        await CASES[name](client, namespace)
    finally:
        await client.close()
