from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.vms.tasks import Tasks
from banlieue.providers.vsphere.watching.watchlist import TaskRecord
from banlieue.sdk.driver import Task
from banlieue.sdk.errors import DriverError, Transient


def tasks(error: object) -> Tasks:
    told = TaskRecord("task-1", "error", error)
    parts = {
        "watcher": SimpleNamespace(task=lambda _: told),
        "creates": SimpleNamespace(of_task=lambda _: None),
        "work": SimpleNamespace(over=lambda _: None),
    }
    rest = dict.fromkeys(("session", "making", "restarts", "keeping"))
    return Tasks(**cast("Any", {**rest, **parts}))


@pytest.mark.parametrize("fault", [vim.fault.NotAuthenticated, vim.fault.InvalidLogin])
def test_a_task_that_was_let_in_nowhere_is_no_refused_login_of_the_provider(fault: Any) -> None:  # noqa: ANN401 - a fault's class
    """The Provider would give up its login, and all its VMs would wait."""
    with pytest.raises(Transient) as told:
        tasks(fault()).poll(Task("task-1", "reconfigure"), Reason.UPDATE_FAILED)
    assert told.value.reason is Reason.UPDATE_FAILED


@pytest.mark.parametrize("operation", ["keep", "attach"])
def test_a_disk_that_an_earlier_call_moved_is_nobody_elses(operation: str) -> None:
    """Its answer came late, so it was asked for again; a user would go and look for a conflict."""
    with pytest.raises(Transient) as told:
        tasks(vim.fault.FileAlreadyExists()).poll(Task("task-1", operation), Reason.UPDATE_FAILED)
    assert told.value.reason is Reason.PROVIDER_BUSY


def test_what_a_task_failed_with_is_told() -> None:
    with pytest.raises(DriverError) as told:
        tasks(vim.fault.NoDiskSpace()).poll(Task("task-1", "reconfigure"), Reason.UPDATE_FAILED)
    assert told.value.reason is Reason.INSUFFICIENT_STORAGE
