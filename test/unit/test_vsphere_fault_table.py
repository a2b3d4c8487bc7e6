"""Every fault pyVmomi knows is told in a reason of ours, or is named here as one we never meet.

The tree is read from pyVmomi itself and the calls from our own source: a new fault, or a new call
that declares faults, fails here until somebody says what it means.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyVmomi import VmomiSupport, pbm, vim, vmodl

import banlieue.providers.vsphere
from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.faultrules import RULES
from banlieue.providers.vsphere.client.faults import driver_error, fault_name
from banlieue.sdk.errors import DriverError, NeedsOperator, Refused, Transient

FaultType = type[Any]

SAYS_NOTHING = frozenset(
    {
        # Bases, which a server sends only when it knows no better, and wrappers.
        vmodl.MethodFault,
        vmodl.RuntimeFault,
        vmodl.fault.SecurityError,
        vim.fault.VimFault,
        vim.fault.ExtendedFault,
        vim.fault.HttpFault,
        vmodl.LocalizedMethodFault,
        # Failures of the vCenter itself, or of ours: the step's own reason, and another try.
        vmodl.fault.SystemError,
        # Of privileges in the definition of a custom attribute, which we never send.
        vim.fault.InvalidPrivilege,
        vmodl.fault.UnexpectedFault,
        vmodl.fault.InvalidRequest,
        vmodl.fault.InvalidType,
        vmodl.query.InvalidProperty,
        vim.fault.DatabaseError,
        vim.fault.InvalidLocale,
        vim.fault.RemoveFailed,
    }
)
"""Faults that carry no meaning beyond "it failed": the reason is that of the step."""

ELSEWHERE: tuple[FaultType, ...] = (
    # Hosts, their storage adapters, their updates and licences of theirs
    vim.fault.ActiveDirectoryFault,
    vim.fault.AnswerFileUpdateFailed,
    vim.fault.FcoeFault,
    vim.fault.HostSpecificationOperationFailed,
    vim.fault.IscsiFault,
    vim.fault.InvalidBmcRole,
    vim.fault.InvalidIpmiLoginInfo,
    vim.fault.InvalidIpmiMacAddress,
    vim.fault.MissingBmcSupport,
    vim.fault.PatchBinariesNotFound,
    vim.fault.PatchMetadataInvalid,
    vim.fault.PatchNotApplicable,
    vim.fault.MismatchedBundle,
    vim.fault.ProfileUpdateFailed,
    vim.fault.InvalidProfileReferenceHost,
    vim.fault.RebootRequired,
    vim.fault.LogBundlingFailed,
    vim.fault.SsdDiskNotAvailable,
    vim.fault.UnrecognizedHost,
    vim.fault.WipeDiskFault,
    vim.fault.CannotAccessLocalSource,
    vim.fault.InaccessibleVFlashSource,
    vim.fault.VFlashModuleVersionIncompatible,
    vim.fault.IORMNotSupportedHostOnDatastore,
    vim.fault.NotSupportedHostForChecksum,
    vim.fault.ConflictingDatastoreFound,
    vim.fault.VsanNodeNotMaster,
    # Clusters as their admins configure them
    vim.fault.CannotDisableDrsOnClustersWithVApps,
    vim.fault.CannotDisconnectHostWithFaultToleranceVm,
    vim.fault.CannotMoveHostWithFaultToleranceVm,
    vim.fault.CannotEnableVmcpForCluster,
    vim.fault.DasConfigFault,
    vim.fault.TooManyConsecutiveOverrides,
    vim.fault.SwapDatastoreUnset,
    # Accounts, alarms, schedules
    vim.fault.InvalidEvent,
    vim.fault.InvalidScheduledTask,
    vim.fault.KeyNotFound,
    vim.fault.NoSubjectName,
    vim.fault.SSPIChallenge,
    vim.fault.UserNotFound,
    vim.fault.MethodAlreadyDisabledFault,
    # Programs inside guests, Tools' upgrades, recordings
    vim.fault.GuestOperationsFault,
    vim.fault.TooManyGuestLogons,
    vim.fault.VmToolsUpgradeFault,
    vim.fault.HostIncompatibleForRecordReplay,
    vim.fault.RecordReplayDisabled,
    vim.fault.ShrinkDiskFault,
    vim.fault.VmMetadataManagerFault,
    # Volumes of containers
    vim.fault.CnsFault,
    # Moves of running VMs between datastores of a cluster of them
    vim.fault.StorageDrsCannotMoveDiskInMultiWriterMode,
    vim.fault.StorageDrsCannotMoveFTVm,
    vim.fault.StorageDrsCannotMoveIndependentDisk,
    vim.fault.StorageDrsCannotMoveManuallyPlacedSwapFile,
    vim.fault.StorageDrsCannotMoveManuallyPlacedVm,
    vim.fault.StorageDrsCannotMoveSharedDisk,
    vim.fault.StorageDrsCannotMoveTemplate,
    vim.fault.StorageDrsCannotMoveVmInUserFolder,
    vim.fault.StorageDrsCannotMoveVmWithMountedCDROM,
    vim.fault.StorageDrsCannotMoveVmWithNoFilesInLayout,
    vim.fault.StorageDrsDisabledOnVm,
    vim.fault.StorageDrsHbrDiskNotMovable,
    vim.fault.StorageDrsHmsUnreachable,
    vim.fault.StorageDrsIolbDisabledInternally,
    vim.fault.StorageDrsRelocateDisabled,
    vim.fault.StorageDrsStaleHmsCollection,
    vim.fault.StorageDrsUnableToMoveFiles,
)
"""Families that only calls we never make can raise; met all the same, the step's reason is told."""


def _all_faults() -> Iterator[FaultType]:
    for name in sorted(VmomiSupport._dataDefMap):
        if not name.startswith(("vim.", "vmodl.", "pbm.")):
            continue
        found = VmomiSupport.GetVmodlType(name)
        if isinstance(found, type) and issubclass(found, vmodl.MethodFault):
            yield found


FAULTS = tuple(_all_faults())


def _has_rule(fault: FaultType) -> bool:
    by_itself = issubclass(fault, vim.fault.NoPermission)
    return by_itself or any(issubclass(fault, rule.types) for rule in RULES)


def _called() -> dict[str, tuple[FaultType, ...]]:
    """Methods of managed objects that our source calls, and the faults each declares."""
    root = Path(str(banlieue.providers.vsphere.__file__)).parent
    words = {
        node.func.attr
        for file in root.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    found: dict[str, tuple[FaultType, ...]] = {}
    for definition in VmomiSupport._managedDefMap.values():
        for method in definition[-1] or ():
            wsdl, faults = method[1], method[-1] or ()
            if wsdl in words and faults:
                types = tuple(VmomiSupport.GetVmodlType(it) for it in faults)
                found[wsdl] = (*found.get(wsdl, ()), *types)
    return found


def test_the_whole_tree_is_looked_at() -> None:
    assert len(FAULTS) > 700
    assert {vim.fault.NoPermission, vmodl.fault.SystemError, pbm.fault.PBMFault} <= set(FAULTS)


def test_every_fault_is_classified_once() -> None:
    wrong = [
        fault_name(fault())
        for fault in FAULTS
        if _has_rule(fault) + (fault in SAYS_NOTHING) + issubclass(fault, ELSEWHERE) != 1
    ]
    assert not wrong, f"{wrong}: add each to a rule of faultrules.py, or name it in this test"


def test_every_fault_becomes_one_uniform_error() -> None:
    for fault in FAULTS:
        error = driver_error(fault(), Reason.UPDATE_FAILED, nothing_made=True)
        assert error.native is not None, fault
        assert error.native.code == fault_name(fault())
        assert error.message, fault
        if fault in SAYS_NOTHING or issubclass(fault, ELSEWHERE):
            assert (type(error), error.reason) == (Transient, Reason.UPDATE_FAILED), fault


def test_the_calls_we_make_declare_only_faults_with_a_meaning() -> None:
    called = _called()
    assert {"CloneVM_Task", "PowerOnVM_Task", "Destroy_Task", "Login"} <= set(called)
    for method, declared in called.items():
        for fault in declared:
            assert _has_rule(fault) or fault in SAYS_NOTHING, f"{method} raises {fault.__name__}"


def test_no_rule_is_hidden_by_an_earlier_one() -> None:
    seen: list[FaultType] = []
    for rule in RULES:
        for kind in rule.types:
            assert not issubclass(kind, tuple(seen)), f"{kind.__name__} is never reached"
        seen += rule.types


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        (vim.fault.MigrationFault(), Refused, Reason.INSUFFICIENT_CAPACITY),
        (vim.fault.SnapshotCloneNotSupported(), NeedsOperator, Reason.BLOCKED_BY_SNAPSHOT),
        (vim.fault.ReplicationVmFault(), NeedsOperator, Reason.BACKUP_IN_PROGRESS),
        (vim.fault.CannotDeleteFile(), Refused, Reason.STORAGE_CLASS_NOT_AVAILABLE),
        (vim.fault.FileTooLarge(), Refused, Reason.INSUFFICIENT_STORAGE),
        (vim.fault.TooManyConcurrentNativeClones(), Transient, Reason.PROVIDER_BUSY),
        (
            vim.fault.DisallowedChangeByService(),
            NeedsOperator,
            Reason.PROVIDER_PERMISSION_DENIED,
        ),
        (vim.fault.LicenseServerUnavailable(), Refused, Reason.QUOTA_EXCEEDED),
        (vim.fault.OvfUnsupportedType(), NeedsOperator, Reason.IMAGE_IMPORT_FAILED),
        (vim.fault.DvsNotAuthorized(), Refused, Reason.NETWORK_NOT_AVAILABLE),
        (pbm.fault.NotFound(), Refused, Reason.STORAGE_CLASS_NOT_AVAILABLE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_families_are_told_by_their_base(
    fault: Exception, kind: type[DriverError], reason: Reason
) -> None:
    error = driver_error(fault, Reason.UPDATE_FAILED, nothing_made=True)
    assert (type(error), error.reason) == (kind, reason)
