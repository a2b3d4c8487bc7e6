"""Which fields of the common machine spec the machine reconciler honours."""

from banlieue.api.infrastructure.machine import MachineSpec
from banlieue.api.meta import to_camel

MOVE = "move"
"""The field that needs a driver which writes marks (`banlieue.sdk.powers.MarkWriter`)."""

_NOT_YET = frozenset({"antiAffinityGroup", "tags"})

HONOURED = tuple(sorted({to_camel(name) for name in MachineSpec.model_fields} - _NOT_YET))
"""Names as the API spells them. A Provider publishes them, so that nobody asks for more."""


def unhonoured(spec: MachineSpec) -> tuple[str, ...]:
    """Fields that ask for something which is not done yet, by their API names.

    Groups to keep apart are best effort by their definition.
    """
    asked = {"tags": spec.tags}
    return tuple(name for name, value in asked.items() if value)
