"""What the operator does once when it starts: default classes, and which image it runs itself."""

import contextlib
import logging
from collections.abc import Iterable

from banlieue.api import names
from banlieue.api.resources import DEPLOYMENTS, PROVIDER_CLASSES
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.sdk.kube import (
    AlreadyExists,
    ApiClient,
    Forbidden,
    Key,
    NotFound,
    Unavailable,
)

log = logging.getLogger(__name__)

_NO_KINDS_SECONDS = 5.0


async def make_missing(api: ApiClient, classes: Iterable[ProviderClass]) -> None:
    """Make the default classes that do not exist; those that do are left as they are.

    Called once per process, so one that is deleted while it runs stays deleted until the next
    start.

    Raises:
        Unavailable: the kinds are not installed yet.
    """
    for it in classes:
        with contextlib.suppress(AlreadyExists):
            try:
                await api.create(PROVIDER_CLASSES, it.to_api(), manager=names.MANAGER_OPERATOR)
            except NotFound:
                text = "the CRDs are missing; run: banlieue crds | kubectl apply --server-side -f -"
                raise Unavailable(404, text, retry_after=_NO_KINDS_SECONDS) from None
            except Forbidden as error:
                log.warning(
                    "may not make a default class",
                    extra={"class": it.metadata.name, "error": str(error)},
                )
                return
            log.info("made a default class", extra={"class": it.metadata.name})


async def own_image(api: ApiClient, namespace: str) -> str:
    """The image of the operator's own Deployment; empty where it does not run by one.

    Args:
        api: client to read with.
        namespace: where banlieue is installed.
    """
    try:
        obj = await api.get(DEPLOYMENTS, Key(namespace, names.OPERATOR_ACCOUNT))
    except (NotFound, Forbidden):
        return ""
    containers = obj["spec"]["template"]["spec"]["containers"]
    for container in containers:
        if container.get("name") == names.MANAGER_CONTAINER:
            return str(container.get("image") or "")
    return ""
