"""How to reach the API server and who we are there: kubeconfig or in-cluster, kept fresh."""

import asyncio
import os
import ssl
import sys
import time
from pathlib import Path

import aiohttp
import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import (
    ConfigException,
    load_incluster_config,
    load_kube_config,
)

_SERVICE_HOST = "KUBERNETES_SERVICE_HOST"
_CLOSING_ROUNDS = 5
_RELOAD_AT_MOST_EVERY = 1.0


_UNREADABLE = (
    ConfigException,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    yaml.YAMLError,
    RecursionError,
)
"""What the library lets through for a kubeconfig whose content is wrong."""


class NoConnectionError(Exception):
    """There is no way to a Kubernetes cluster; the message says why and what to do."""


_LEAKS_CLOSING_TLS = sys.version_info < (3, 12, 8) or (3, 13) <= sys.version_info < (3, 13, 1)


async def close_connector(connector: aiohttp.BaseConnector) -> None:
    """Close all connections of a pool and let their transports end before their loop may."""
    await connector.close()
    for _ in range(_CLOSING_ROUNDS):
        await asyncio.sleep(0)


class Connection:
    """The API server's address, its TLS context and our credentials.

    A kubeconfig given by name wins, then `$KUBECONFIG`, then the pod's service account, then
    `~/.kube/config`.
    """

    def __init__(self, kubeconfig: str = "", context: str = "") -> None:
        self._kubeconfig = kubeconfig or os.environ.get("KUBECONFIG", "")
        if not self._kubeconfig and not os.environ.get(_SERVICE_HOST):
            self._kubeconfig = str(Path("~/.kube/config").expanduser())
        self._context = context
        self._configuration: Configuration | None = None
        self._ssl: ssl.SSLContext | None = None
        self._reloaded = float("-inf")

    @property
    def configuration(self) -> Configuration:
        """The configuration as `kubernetes.aio` wants it; only after `load`."""
        if self._configuration is None:
            raise NoConnectionError("the connection is not loaded yet")
        return self._configuration

    @property
    def host(self) -> str:
        """Base address of the API server."""
        return str(self.configuration.host)

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """TLS trust and client certificate; only after `load`."""
        if self._ssl is None:
            raise NoConnectionError("the connection is not loaded yet")
        return self._ssl

    def connector(self, *, limit: int) -> aiohttp.TCPConnector:
        """Make a pool of at most `limit` connections (0: no limit) for the running loop."""
        return aiohttp.TCPConnector(
            limit=limit,
            ssl=self.ssl_context,
            # Else a connection whose peer does not answer the goodbye stays open for good.
            enable_cleanup_closed=_LEAKS_CLOSING_TLS,
        )

    async def load(self) -> None:
        """Read the configuration.

        Raises:
            NoConnectionError: none was found, or it cannot be read.
        """
        try:
            self._configuration = await self._read()
            self._ssl = RESTClientObject(self._configuration).ssl_context
        except _UNREADABLE as e:
            raise NoConnectionError(f"no usable Kubernetes configuration: {self._told(e)}") from e

    async def authorization(self) -> str | None:
        """The Authorization header's value, None with client certificates.

        Safe to call from another thread's loop. In a pod the token file is read again each minute.
        """
        settings = await self.configuration.auth_settings()
        token = settings.get("BearerToken")
        return token["value"] if token is not None else None

    async def reload(self) -> None:
        """Read credentials again after the API server refused them; at most once a second."""
        if time.monotonic() - self._reloaded < _RELOAD_AT_MOST_EVERY:
            return
        self._reloaded = time.monotonic()
        try:
            fresh = await self._read()
        except _UNREADABLE as e:
            raise NoConnectionError(f"credentials could not be read again: {self._told(e)}") from e
        self.configuration.api_key = fresh.api_key
        self.configuration.refresh_api_key_hook = fresh.refresh_api_key_hook

    def _told(self, error: Exception) -> str:
        """What is wrong and what to do; the file's text, which has credentials, is not quoted."""
        if not self._kubeconfig:
            return f"{error}; name a kubeconfig by --kubeconfig or $KUBECONFIG"
        if not any(Path(it).expanduser().exists() for it in self._kubeconfig.split(os.pathsep)):
            return (
                f"{self._kubeconfig} does not exist; name a kubeconfig by --kubeconfig or "
                "$KUBECONFIG"
            )
        if isinstance(error, ssl.SSLError):
            return (
                f"a certificate or key in {self._kubeconfig} is none or does not fit the other; "
                "correct it, or get a new kubeconfig"
            )
        if isinstance(error, ConfigException | OSError):
            return (
                f"{self._kubeconfig}: {error}; "
                "name a kubeconfig by --kubeconfig or $KUBECONFIG, and a context that is in it"
            )
        return (
            f"{self._kubeconfig} is no kubeconfig; correct it, or name another by --kubeconfig or "
            "$KUBECONFIG"
        )

    async def _read(self) -> Configuration:
        configuration = Configuration()
        if not self._kubeconfig:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # the library's
            return configuration
        await load_kube_config(  # type: ignore[no-untyped-call]  # the library's
            config_file=self._kubeconfig,
            context=self._context or None,
            client_configuration=configuration,
            persist_config=False,
        )
        return configuration
