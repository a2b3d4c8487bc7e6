"""Which fields of the common machine spec the machine reconciler honours."""

from banlieue.api.infrastructure.machine import MachineSpec
from banlieue.api.meta import to_camel

MOVE = "move"
"""The field that needs a driver which writes marks (`banlieue.sdk.powers.MarkWriter`)."""

KEPT_UP = frozenset({"antiAffinityGroup", "tags"})
"""Fields that need a driver which keeps them up (`banlieue.sdk.upkeep`)."""

HONOURED = tuple(sorted({to_camel(name) for name in MachineSpec.model_fields}))
"""Names as the API spells them. A Provider publishes them, so that nobody asks for more."""


def unhonoured(spec: MachineSpec) -> tuple[str, ...]:
    """Fields that ask a driver without that power to keep something up, by their API names.

    Groups to keep apart are best effort by their definition.
    """
    asked = {"tags": spec.tags}
    return tuple(name for name, value in asked.items() if value)
