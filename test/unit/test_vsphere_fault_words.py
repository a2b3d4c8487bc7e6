"""What the fault matrix expects: faults that its calls can raise, and of more than one meaning."""

from typing import Any

import pytest
from pyVmomi import VmomiSupport, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.faults import driver_error
from test.kit.faultcourses import COURSES, LEFT_OUT
from test.kit.faultmatrix import MODES, Cell
from test.kit.faultservices import services
from test.kit.faultwords import WORDS, Typed

CHANGING = {
    *(method for method in WORDS if method.endswith("_Task")),
    *("AddCustomFieldDef", "CreateFolder", "HttpNfcLeaseComplete", "ImportVApp", "Login"),
    *("MakeDirectory", "MarkAsTemplate", "RebootGuest", "SetField", "ShutdownGuest"),
    *(method for method in WORDS if method.startswith("POST ") and "/tagging/" in method),
}


FaultType = type[Any]


def _type(fault: Typed) -> FaultType:
    for module in ("vim.fault", "vmodl.fault", "vmodl.query"):
        if f"{module}.{fault.name}" in VmomiSupport._dataDefMap:
            found: FaultType = VmomiSupport.GetVmodlType(f"{module}.{fault.name}")
            return found
    raise LookupError(fault.name)


def _declared() -> dict[str, tuple[FaultType, ...]]:
    found: dict[str, tuple[FaultType, ...]] = {}
    for definition in VmomiSupport._managedDefMap.values():
        for method in definition[-1] or ():
            types = tuple(VmomiSupport.GetVmodlType(it) for it in method[-1] or ())
            found[method[1]] = (*found.get(method[1], ()), *types)
    return found


def test_each_call_of_the_courses_has_words_and_no_other() -> None:
    rows = {method for rows in (COURSES, services()) for row in rows.values() for method in row}
    assert rows == set(WORDS)
    for words in WORDS.values():
        assert {"fault", *words.told} == set(MODES)


def test_a_call_is_answered_with_faults_that_it_can_raise() -> None:
    declared = _declared()
    for method, words in WORDS.items():
        for fault in words.faults if " " not in method else ():
            kinds = (*declared[method], vmodl.RuntimeFault)
            assert issubclass(_type(fault), kinds), f"{method} raises no {fault.name}"


def test_what_is_told_is_what_the_fault_means() -> None:
    meant = {
        fault.name: fault.told
        for method, words in WORDS.items()
        for fault in words.faults
        if " " not in method
        and fault.told
        and fault.name not in {"InvalidProperty", "DuplicateName"}
    }
    for name, told in meant.items():
        error = driver_error(_type(Typed(name, told))(), Reason.IMAGE_IMPORT_FAILED)
        by_step = error.reason is Reason.IMAGE_IMPORT_FAILED
        assert by_step or error.reason is told, name


def test_calls_that_change_something_meet_faults_of_different_meaning() -> None:
    for method in CHANGING:
        assert len({fault.told for fault in WORDS[method].faults}) > 1, method


@pytest.mark.identity("6.9")
def test_no_call_takes_away_what_is_not_a_vm() -> None:
    """`test_every_method_we_use_has_a_row` sees that these are all calls there are."""
    away = ("delete", "destroy", "eras", "remove", "shrink", "unregister", "wipe", "zero")
    used = {method for method in (*WORDS, *LEFT_OUT) if any(it in method.lower() for it in away)}
    own_session = {"DestroyPropertyCollector", "DestroyView", "DELETE /rest/com/vmware/cis/session"}
    assert used - own_session == {"Destroy_Task"}


def test_a_cell_that_tells_nothing_or_something_else_is_wrong() -> None:
    def right(mode: str, *told: str) -> bool:
        return Cell("PowerOnVM_Task", mode, hit=True, told=told).is_right

    assert right("503", "ProviderUnreachable")
    assert not right("503")
    assert not right("503", "ProviderBusy")
    assert not right("503", "ProviderUnreachable", "VMMissing")
    assert right("fault", "ProviderBusy", "InsufficientCapacity")
    assert not right("fault", "ProviderBusy"), "each of its faults is told"
    assert right("session lost")
    assert not right("session lost", "ProviderAuthFailed")
