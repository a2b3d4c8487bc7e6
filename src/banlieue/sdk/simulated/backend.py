"""What the entry point `simulated` names."""

from banlieue.sdk.backend import Backend
from banlieue.sdk.simulated.connect import Connector, Worlds
from banlieue.sdk.simulated.disks import STORAGE_KEY
from banlieue.sdk.simulated.models import KINDS, SIMULATED_MACHINES, SimulatedMachineSpec
from banlieue.sdk.simulated.states import NETWORK_KEY


def simulated_backend(connector: Connector) -> Backend[SimulatedMachineSpec]:
    """The simulated backend over the given connector, for worlds under another clock."""
    return Backend(
        name="simulated",
        machine_spec=SimulatedMachineSpec,
        machine=SIMULATED_MACHINES,
        kinds=KINDS,
        connect=connector,
        storage_target_keys=frozenset({STORAGE_KEY}),
        network_target_keys=frozenset({NETWORK_KEY}),
        provider_id_scheme="simulated",
    )


WORLDS = Worlds()
"""The worlds behind `simulated://memory/<name>`; they live as long as the process."""

BACKEND = simulated_backend(Connector(WORLDS))
