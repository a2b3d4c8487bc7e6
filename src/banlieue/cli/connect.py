"""A short visit of a command to the API server."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from banlieue.sdk.kube import Unavailable

if TYPE_CHECKING:
    from banlieue.sdk.runtime.client import KubeClient

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_KUBECONFIG = click.option(
    "--kubeconfig",
    envvar="KUBECONFIG",
    default="",
    metavar="FILE",
    help="How to reach the cluster. Default: $KUBECONFIG, else ~/.kube/config.",
)
_CONTEXT = click.option("--context", "kube_context", default="", help="Context in the kubeconfig.")


def connection_options(command: F) -> F:
    """Add the options that say which cluster a short visit goes to."""
    return _KUBECONFIG(_CONTEXT(command))


async def with_client(
    role: str, kubeconfig: str, context: str, act: Callable[["KubeClient"], Awaitable[T]]
) -> T:
    """Open a client, let `act` use it, and close it.

    Raises:
        NoConnectionError: no kubeconfig or pod account says how to reach a cluster, or its API
            server does not answer.
    """
    from banlieue.sdk.runtime.connection import NoConnectionError
    from banlieue.sdk.runtime.process import Options, Process

    process = Process(Options(role=role, kubeconfig=kubeconfig, context=context))
    await process.connection.load()
    await process.client.open()
    try:
        return await act(process.client)
    except Unavailable as error:
        if error.status:
            raise
        raise NoConnectionError(
            f"the cluster cannot be read: {process.connection.host} does not answer "
            f"({error.__cause__ or error.message}); check the server and context of the kubeconfig"
        ) from error
    finally:
        await process.client.close()
