"""The tests every backend has to pass, ours or anybody's.

A backend's test module subclasses `DriverConformance` and gives it a fixture `target`:

    class TestMine(DriverConformance):
        @pytest.fixture
        def target(self) -> ConformanceTarget:
            return MyTarget()

It needs nothing but pytest. Every failure says which promise of `banlieue.sdk.driver` is broken.
"""

from banlieue.sdk.testing.conformance_adoption import AdoptionConformance
from banlieue.sdk.testing.conformance_asleep import HoldConformance, SuspendConformance
from banlieue.sdk.testing.conformance_disks import DiskConformance, KeptDiskConformance
from banlieue.sdk.testing.conformance_identity import (
    AbsenceConformance,
    CreateConformance,
    IdentityConformance,
)
from banlieue.sdk.testing.conformance_images import ImageConformance
from banlieue.sdk.testing.conformance_life import (
    ErrorConformance,
    FeedConformance,
    InterfaceConformance,
    PowerConformance,
    TeardownConformance,
)
from banlieue.sdk.testing.conformance_moves import MoveConformance
from banlieue.sdk.testing.conformance_nics import PlugConformance
from banlieue.sdk.testing.conformance_restart import ResizeConformance, RestartConformance
from banlieue.sdk.testing.conformance_seed import SeedConformance
from banlieue.sdk.testing.conformance_target import Bench, ConformanceTarget
from banlieue.sdk.testing.conformance_upkeep import UpkeepConformance

__all__ = ["Bench", "ConformanceTarget", "DriverConformance"]


class DriverConformance(
    CreateConformance,
    IdentityConformance,
    AbsenceConformance,
    TeardownConformance,
    PowerConformance,
    SuspendConformance,
    HoldConformance,
    RestartConformance,
    ResizeConformance,
    InterfaceConformance,
    PlugConformance,
    MoveConformance,
    DiskConformance,
    KeptDiskConformance,
    SeedConformance,
    UpkeepConformance,
    ErrorConformance,
    FeedConformance,
    AdoptionConformance,
    ImageConformance,
):
    """All of it; subclass this and define the fixture `target`."""
