"""A short visit of a command to the API server."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from banlieue.sdk.runtime.client import KubeClient

T = TypeVar("T")


async def with_client(
    role: str, kubeconfig: str, context: str, act: Callable[["KubeClient"], Awaitable[T]]
) -> T:
    """Open a client, let `act` use it, and close it.

    Raises:
        NoConnectionError: no kubeconfig or pod account says how to reach a cluster.
    """
    from banlieue.sdk.runtime.process import Options, Process

    process = Process(Options(role=role, kubeconfig=kubeconfig, context=context))
    await process.connection.load()
    await process.client.open()
    try:
        return await act(process.client)
    finally:
        await process.client.close()
