"""A status is written whole, whoever else owns a part of it."""

from banlieue.api.meta import Resource
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.status import write_status
from banlieue.sdk.testing.memory_api import MemoryApi

KEY = Key("team-a", "web")
OURS = "banlieue.io/provider"
TASK = {"id": "task-1", "operation": "suspend", "startedAt": "2026-01-01T00:33:21Z"}


def as_the_kind_says(_resource: Resource, obj: Obj) -> str:
    """What the schema of machines asks for, as far as it matters here."""
    task = (obj.get("status") or {}).get("task")
    return "status.task.operation: Required value" if task and "operation" not in task else ""


async def test_a_task_that_a_restore_owns_a_part_of_can_be_taken_out() -> None:
    api = MemoryApi()
    api.schema = as_the_kind_says
    created = {"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "spec": {}}
    obj = await api.create(SIMULATED_MACHINES, created, manager="somebody")
    before = {"phase": "Running", "task": TASK}
    obj = await write_status(api, SIMULATED_MACHINES, obj, before, manager=OURS) or obj
    part = {
        "apiVersion": SIMULATED_MACHINES.api_version,
        "kind": SIMULATED_MACHINES.kind,
        "metadata": {"name": KEY.name, "namespace": KEY.namespace},
        "status": {"task": {"startedAt": TASK["startedAt"]}},
    }
    obj = await api.apply(SIMULATED_MACHINES, part, manager="a restore", subresource="status")

    after = {"phase": "Running"}
    answer = await write_status(api, SIMULATED_MACHINES, obj, after, manager=OURS)
    assert answer is not None
    assert answer["status"] == after
    assert (await api.get(SIMULATED_MACHINES, KEY))["status"] == after
    assert await write_status(api, SIMULATED_MACHINES, answer, after, manager=OURS) is None
