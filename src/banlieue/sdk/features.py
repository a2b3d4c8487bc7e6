"""Which fields of the common machine spec the machine reconciler honours."""

from collections.abc import Iterator
from typing import Any, Final, get_args

from pydantic import BaseModel

from banlieue.api.infrastructure.machine import MachineSpec
from banlieue.api.meta import to_camel

MOVE = "move"
"""The field that needs a driver which writes marks (`banlieue.sdk.powers.MarkWriter`)."""

KEPT_UP = frozenset({"antiAffinityGroup", "tags"})
"""Fields that need a driver which keeps them up (`banlieue.sdk.upkeep`)."""

HONOURED = tuple(sorted({to_camel(name) for name in MachineSpec.model_fields}))
"""Names as the API spells them. A Provider publishes them, so that nobody asks for more."""

_WITHIN: Final = frozenset(
    {
        "class",
        "disks",
        "driftPolicy",
        "networkData",
        "networkInterfaces",
        "removedDisks",
        "userData",
    }
)
"""Fields with fields in them that a version may have more of than another."""


def _optional(model: type[BaseModel], path: str) -> Iterator[str]:
    """What a model need not say: a field that has to be there is there in every version."""
    for name, described in model.model_fields.items():
        own = described.alias or to_camel(name)
        inner = f"{path}.{own}" if path else own
        if path and not described.is_required():
            yield inner
        if path or inner in _WITHIN:
            for found in _models(described.annotation):
                yield from _optional(found, inner)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401 - any annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


NESTED = tuple(sorted({*_optional(MachineSpec, "")}))
"""Fields within these, by their path: `disks.storageClass`, `networkInterfaces.ipam.gateway`."""
