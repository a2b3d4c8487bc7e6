"""Which fields of the common machine spec the machine reconciler honours."""

from banlieue.api.infrastructure.machine import MachineSpec
from banlieue.api.meta import to_camel

MOVE = "move"
"""The field that needs a driver which writes marks (`banlieue.sdk.powers.MarkWriter`)."""

KEPT_UP = frozenset({"antiAffinityGroup", "tags"})
"""Fields that need a driver which keeps them up (`banlieue.sdk.upkeep`)."""

HONOURED = tuple(sorted({to_camel(name) for name in MachineSpec.model_fields}))
"""Names as the API spells them. A Provider publishes them, so that nobody asks for more."""
