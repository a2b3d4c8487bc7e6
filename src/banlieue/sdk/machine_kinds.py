"""Which machine kinds exist, by the label on their CustomResourceDefinitions."""

from typing import Any

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import CRDS
from banlieue.sdk.kube import ApiClient


async def labelled_machine_kinds(api: ApiClient) -> tuple[Resource, ...]:
    """The machine kinds of all backends that are installed, read live.

    Raises:
        ApiError: nobody knows; `Forbidden` where CustomResourceDefinitions may not be listed.
    """
    return await labelled_kinds(api, names.LABEL_MACHINE_KIND)


async def labelled_kinds(api: ApiClient, label: str) -> tuple[Resource, ...]:
    """The kinds whose CustomResourceDefinition has a label with value `true`, read live.

    Raises:
        ApiError: as `labelled_machine_kinds`.
    """
    crds = await api.list(CRDS, label_selector=f"{label}=true")
    return tuple(_resource(crd["spec"]) for crd in crds)


def _resource(spec: dict[str, Any]) -> Resource:
    served = [version["name"] for version in spec["versions"] if version.get("served", True)]
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    version = next((name for name in stored if name in served), served[0])
    kind = spec["names"]
    return Resource(spec["group"], version, kind["kind"], kind["plural"])
