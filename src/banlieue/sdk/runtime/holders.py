"""Who holds a Lease, as a name that says where its pod is, and whether that pod has ended.

A pod's object goes only after its containers ended, or after somebody forced it away, who then
answers for them: the guarantee StatefulSets stand on. So a Lease whose holder's pod is gone need
not be waited for, as after an upgrade that took the holder's rights before it could hand it back.
"""

import logging
import os
import re
import socket
from random import Random
from typing import Final

from banlieue.api.resources import PODS
from banlieue.sdk import kube
from banlieue.sdk.kube import ApiClient, Key

log = logging.getLogger(__name__)

_POD: Final = re.compile(r"(?P<namespace>[^/_]+)/(?P<name>[^/_]+)_(?P<uid>[^/_]+)")


def default_identity(rng: Random) -> str:
    """Give a holder identity: the pod's, which a restarted container shares, else a new one.

    ``POD_NAMESPACE``, ``POD_NAME`` and ``POD_UID`` come from the downward API; without the first
    nobody can tell later whether the pod has ended.
    """
    name, uid = os.environ.get("POD_NAME"), os.environ.get("POD_UID")
    if name and uid:
        namespace = os.environ.get("POD_NAMESPACE")
        return f"{namespace}/{name}_{uid}" if namespace else f"{name}_{uid}"
    return f"{socket.gethostname()}_{os.getpid()}_{rng.getrandbits(32):08x}"


async def has_ended(api: ApiClient, holder: str) -> bool:
    """Whether the pod of a holder is provably gone; false for whatever is not a pod or not told.

    Never raises `ApiError`: what cannot be asked is not gone.
    """
    pod = _POD.fullmatch(holder)
    if pod is None:
        return False
    try:
        found = await api.get(PODS, Key(pod["namespace"], pod["name"]))
    except kube.NotFound:
        return True
    except kube.ApiError as error:
        log.debug("holder's pod not seen", extra={"holder": holder, "error": str(error)})
        return False
    return bool(found["metadata"]["uid"] != pod["uid"])
