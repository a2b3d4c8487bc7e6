"""A way to a simulated world that another process holds."""

import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from banlieue.sdk.simulated.faults import Code, ConnectionLost, NotConnected, WorldFault

_CONTROL_TIMEOUT = 10.0


class RemoteWorld:
    """The `Port` to a world behind `http://host:port`; thread-safe, one connection per call."""

    def __init__(self, endpoint: str) -> None:
        """Prepare for the endpoint; raises ValueError when it is not `http://host:port`."""
        parts = urlsplit(endpoint)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"not an http:// address: {endpoint}")
        self._host = parts.hostname
        self._port = parts.port or http.client.HTTP_PORT

    def call(
        self, method: str, params: Mapping[str, Any], *, session: str = "", timeout: float = 60.0
    ) -> Any:  # noqa: ANN401 - JSON
        """Make one call; raises `WorldFault` and `ConnectionLost`."""
        body = {"method": method, "params": dict(params), "session": session}
        return self._post("/call", body, timeout)

    def control(self, method: str, params: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """Do something behind the account's back; raises like `call`."""
        return self._post("/control", {"method": method, "params": dict(params)}, _CONTROL_TIMEOUT)

    def _post(self, path: str, body: Mapping[str, Any], timeout: float) -> Any:  # noqa: ANN401 - JSON
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        try:
            try:
                connection.connect()
            except OSError as error:
                raise NotConnected from error
            try:
                connection.request("POST", path, json.dumps(body).encode())
                answer = json.loads(connection.getresponse().read())
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise ConnectionLost from error
        finally:
            connection.close()
        if not isinstance(answer, dict) or not ({"fault", "result"} & set(answer)):
            raise WorldFault(Code.GENERAL, "the endpoint is no simulated world")
        if fault := answer.get("fault"):
            raise WorldFault(fault["code"], fault["message"])
        return answer["result"]
