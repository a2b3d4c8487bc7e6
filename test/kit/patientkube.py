"""A client that asks again while a webhook of somebody else's does not answer.

On a machine that is too busy, managers of Cluster API give up their Lease, and their pods are
started again; for some seconds the API server has nobody to ask then.
"""

from collections.abc import Mapping
from typing import Final

from test.kit.kube import Kube, KubeError, Object
from test.kit.waiting import wait_until

_SECONDS: Final = 180.0
_NO_ANSWER: Final = 500


class PatientKube(Kube):
    """As people are who apply a manifest to a busy cluster."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        body: object = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Object:
        """As ever, but that it is repeated as long as a webhook cannot be called."""

        def attempt() -> tuple[Object] | None:
            try:
                found = super(PatientKube, self).request(
                    method,
                    path,
                    query=query,
                    body=body,
                    content_type=content_type,
                    headers=headers,
                )
            except KubeError as error:
                if error.status == _NO_ANSWER and "failed calling webhook" in error.message:
                    return None
                raise
            return (found,)

        return wait_until(attempt, _SECONDS, f"the webhooks to answer {method} {path}")[0]
