"""Which installation this is: the ConfigMap every owner's identity begins with.

The controller makes and keeps the ConfigMap; everybody else only reads it. An installation whose
recorded cluster is not the one it runs in is a backup restored elsewhere: until somebody confirms,
nothing is minted, changed or destroyed.
"""

import re
from dataclasses import dataclass

from banlieue.api import names
from banlieue.api.resources import CONFIG_MAPS, NAMESPACES
from banlieue.sdk.kube import ApiClient, Key, NotFound, Obj

_SYSTEM_NAMESPACE = Key("", "kube-system")
_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def is_id(text: str) -> bool:
    """Whether it may be the id of an installation: it goes into owners and into datastore paths."""
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Installation:
    """The installation as recorded; `confirmed` only when it is recorded for this very cluster."""

    id: str
    confirmed: bool
    recovery: bool = False


def read(config_map: Obj | None, cluster_uid: str) -> Installation | None:
    """The installation a ConfigMap describes, None when there is none or it has no id."""
    data = (config_map or {}).get("data") or {}
    if not data.get(names.INSTALLATION_ID):
        return None
    return Installation(
        id=data[names.INSTALLATION_ID],
        confirmed=data.get(names.INSTALLATION_CLUSTER_UID) == cluster_uid,
        recovery=data.get(names.INSTALLATION_RECOVERY) == "true",
    )


async def read_live(api: ApiClient, namespace: str) -> Installation | None:
    """Read the installation from the API server; `namespace` is the controller's.

    Raises `ApiError` for anything but a missing ConfigMap.
    """
    try:
        config_map = await api.get(CONFIG_MAPS, Key(namespace, names.INSTALLATION_CONFIG_MAP))
    except NotFound:
        return None
    system = await api.get(NAMESPACES, _SYSTEM_NAMESPACE)
    return read(config_map, system["metadata"]["uid"])
