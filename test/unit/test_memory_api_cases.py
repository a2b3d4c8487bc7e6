"""The in-memory API does what a real API server does; the same cases run against one, too."""

import pytest

from banlieue.sdk.testing.memory_api import MemoryApi
from test.kit.apicases import CASES


@pytest.mark.parametrize("name", CASES)
async def test_the_memory_api(name: str) -> None:
    await CASES[name](MemoryApi(), "ns")
