"""Acme's own test module, as a third party writes it: nothing of banlieue's tests is imported.

The address of a simulated world stands in ACME_ENDPOINT, its login in the file ACME_CREDENTIALS.
"""

import json
import os
from pathlib import Path

import pytest

from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.sdk.registry import load_backend
from banlieue.sdk.simulated.remote import RemoteWorld
from banlieue.sdk.testing.conformance import ConformanceTarget, DriverConformance
from banlieue.sdk.testing.simulated_target import SimulatedTarget


class AcmeTarget(SimulatedTarget):
    patience = 60.0
    capabilities = Capabilities.from_api(
        {
            "storageClasses": [{"name": "gold", "target": {"shelf": "fast"}}],
            "networkClasses": [{"name": "prod", "target": {"wire": "lan"}}],
        }
    )


class TestAcme(DriverConformance):
    @pytest.fixture
    def target(self) -> ConformanceTarget:
        endpoint = os.environ["ACME_ENDPOINT"]
        login = json.loads(Path(os.environ["ACME_CREDENTIALS"]).read_text(encoding="utf-8"))
        world = RemoteWorld(endpoint)
        return AcmeTarget(load_backend("acme"), endpoint, world, login["password"])
