"""What each of a vCenter's faults means: the table that decides, by type and never by text.

Faults of a whole family are told by their base, so that a vCenter's newer fault is told as its
family is. What stands in no rule is told with the reason of the step that failed.
"""

from dataclasses import dataclass
from enum import Enum

from pyVmomi import pbm, vim, vmodl

from banlieue.api.reasons import Reason


class Kind(Enum):
    """Which uniform error a fault becomes."""

    TRANSIENT = "transient"
    OPERATOR = "operator"
    REFUSAL = "refusal"
    SPEC = "spec"


@dataclass(frozen=True, slots=True)
class Rule:
    """What some faults mean; a vague one is used only if nothing inside it says more."""

    kind: Kind
    reason: Reason | None
    message: str
    types: tuple[type[Exception], ...]
    vague: bool = False


def _rule(
    kind: Kind,
    reason: Reason | None,
    message: str,
    *types: type[Exception],
    vague: bool = False,
) -> Rule:
    return Rule(kind, reason, message, types, vague)


# Subclasses stand before their bases: NotAuthenticated is a NoPermission, PasswordExpired an
# InvalidLogin, SSLVerifyFault a HostConnectFault, InaccessibleDatastore an InvalidDatastore.
RULES = (
    _rule(
        Kind.OPERATOR,
        Reason.PROVIDER_AUTH_FAILED,
        "the vCenter refused the credentials; correct username and password in the Secret",
        vim.fault.InvalidLogin,
        vim.fault.NoClientCertificate,
        pbm.fault.InvalidLogin,
    ),
    _rule(
        Kind.OPERATOR,
        Reason.PROVIDER_AUTH_FAILED,
        "the vCenter ends every session at once; check the account and the vCenter's limits",
        vim.fault.NotAuthenticated,
        vmodl.fault.AuthenticationRequired,
        vmodl.fault.SessionNotFound,
        vmodl.fault.InvalidToken,
    ),
    _rule(
        Kind.OPERATOR,
        Reason.PROVIDER_TLS_INVALID,
        "a certificate on the way is not trusted; correct caBundle or thumbprints",
        vim.fault.SSLVerifyFault,
    ),
    _rule(
        Kind.TRANSIENT,
        Reason.PROVIDER_UNREACHABLE,
        "a host does not answer its vCenter; it is tried again",
        vim.fault.HostConnectFault,
        vmodl.fault.HostCommunication,
        vim.fault.InvalidHostState,
    ),
    _rule(
        Kind.TRANSIENT,
        Reason.PROVIDER_UNREACHABLE,
        "a host failed to carry out the step; it is tried again",
        vim.fault.HostPowerOpFailed,
        vim.fault.HostConfigFault,
        vague=True,
    ),
    _rule(
        Kind.REFUSAL,
        Reason.INSUFFICIENT_STORAGE,
        "the storage is full or cannot be reached; free space or choose another storage class",
        vim.fault.NoDiskSpace,
        vim.fault.InsufficientStorageSpace,
        vim.fault.InsufficientStorageIops,
        vim.fault.NamespaceFull,
        vim.fault.NamespaceLimitReached,
        vim.fault.FileTooLarge,
        vim.fault.NoConnectedDatastore,
        vim.fault.InaccessibleDatastore,
        vim.fault.NoCompatibleDatastore,
    ),
    _rule(
        Kind.REFUSAL,
        Reason.QUOTA_EXCEEDED,
        "a limit or licence does not suffice; raise it or choose another failure domain",
        vim.fault.LimitExceeded,
        vmodl.fault.NotEnoughLicenses,
        vim.fault.LicenseAssignmentFailed,
        vim.fault.InvalidLicense,
        vim.fault.LicenseServerUnavailable,
        vim.fault.LicenseEntityNotFound,
        vim.fault.ThirdPartyLicenseAssignmentFailed,
    ),
    _rule(
        Kind.REFUSAL,
        Reason.INSUFFICIENT_CAPACITY,
        "processors or memory do not suffice; free some or choose another failure domain",
        vim.fault.InsufficientResourcesFault,
        vim.fault.NoActiveHostInCluster,
        vim.fault.ResourceNotAvailable,
        vim.fault.OperationDisallowedOnHost,
        vim.fault.DisallowedOperationOnFailoverHost,
        vim.fault.HAErrorsAtDest,
        vim.fault.HostHasComponentFailure,
    ),
    _rule(
        Kind.REFUSAL,
        Reason.INSUFFICIENT_CAPACITY,
        "no host can take the VM; free capacity or choose another failure domain",
        vim.fault.NoCompatibleHost,
        vague=True,
    ),
    _rule(
        Kind.TRANSIENT,
        Reason.PROVIDER_BUSY,
        "the vCenter works on it already; it is tried again",
        vim.fault.TaskInProgress,
        vim.fault.ConcurrentAccess,
        vim.fault.ResourceInUse,
        vim.fault.FileLocked,
        vim.fault.MethodDisabled,
        vim.fault.VAppOperationInProgress,
        vim.fault.TooManyConcurrentNativeClones,
        vim.fault.ToolsInstallationInProgress,
        vim.fault.MigrationNotReady,
        vim.fault.AlreadyUpgraded,
        vim.fault.MaintenanceModeFileMove,
        vim.fault.ReplicationVmInProgressFault,
        vim.fault.StorageDrsHmsMoveInProgress,
        pbm.fault.ResourceInUse,
        vmodl.query.InvalidCollectorVersion,
        vim.fault.NotFound,
        vim.fault.InvalidState,
        vmodl.fault.ManagedObjectNotFound,
    ),
    _rule(
        Kind.OPERATOR,
        Reason.IMAGE_NOT_AVAILABLE,
        "a file or snapshot of the image is missing; restore the template",
        vim.fault.FileNotFound,
        vim.fault.SnapshotFault,
    ),
    _rule(
        Kind.REFUSAL,
        Reason.NETWORK_NOT_AVAILABLE,
        "a network cannot be used from there; correct the Provider's network class",
        vim.fault.CannotAccessNetwork,
    ),
    _rule(
        Kind.REFUSAL,
        Reason.STORAGE_CLASS_NOT_AVAILABLE,
        "a datastore cannot be used from there; correct the Provider's storage class",
        vim.fault.InvalidDatastore,
        vim.fault.CannotAccessVmDisk,
        vim.fault.CannotAccessFile,
        vim.fault.NamespaceWriteProtected,
        pbm.fault.PBMFault,
    ),
    _rule(
        Kind.REFUSAL,
        Reason.INSUFFICIENT_CAPACITY,
        "a placement rule forbids it there; choose another failure domain",
        vim.fault.RuleViolation,
        vim.fault.CannotPlaceWithoutPrerequisiteMoves,
        vim.fault.InvalidAffinitySettingFault,
        vim.fault.AffinityConfigured,
    ),
    _rule(
        Kind.SPEC,
        Reason.INVALID_CONFIGURATION,
        "template, folder and place are not of one datacenter; correct the spec",
        vim.fault.DatacenterMismatch,
        vim.fault.StorageDrsDatacentersCannotShareDatastore,
    ),
    _rule(
        Kind.SPEC,
        Reason.INVALID_CONFIGURATION,
        "the folder cannot take VMs; correct the folder",
        vim.fault.InvalidFolder,
    ),
    _rule(
        Kind.OPERATOR,
        Reason.OWNERSHIP_CONFLICT,
        "the name is taken by another VM or file; rename or remove that",
        vim.fault.DuplicateName,
        vim.fault.AlreadyExists,
        vim.fault.FileAlreadyExists,
    ),
    _rule(
        Kind.OPERATOR,
        Reason.RESTART_REQUIRED,
        "the change comes into force only while the VM is off; restart it",
        vim.fault.MemoryHotPlugNotSupported,
        vim.fault.CpuHotPlugNotSupported,
    ),
    _rule(
        Kind.OPERATOR,
        Reason.BLOCKED_BY_SNAPSHOT,
        "snapshots of the VM, or disks that others share, forbid the step; delete the snapshots",
        vim.fault.SnapshotCopyNotSupported,
        vim.fault.SnapshotRevertIssue,
        vim.fault.CannotMoveVmWithDeltaDisk,
        vim.fault.CannotMoveVmWithNativeDeltaDisk,
        vim.fault.CloneFromSnapshotNotSupported,
        vim.fault.UncommittedUndoableDisk,
    ),
    _rule(
        Kind.OPERATOR,
        Reason.BACKUP_IN_PROGRESS,
        "replication of the VM forbids the step; wait for it, or configure it anew",
        vim.fault.ReplicationFault,
    ),
    _rule(
        Kind.OPERATOR,
        Reason.UNSUPPORTED_BY_PROVIDER,
        "Fault Tolerance of the VM forbids the step; turn it off",
        vim.fault.VmFaultToleranceIssue,
        vim.fault.CannotMoveFaultToleranceVm,
        vim.fault.FailToLockFaultToleranceVMs,
        vim.fault.FaultToleranceVmNotDasProtected,
        vim.fault.FaultToleranceAntiAffinityViolated,
        vim.fault.FaultToleranceNeedsThickDisk,
        vim.fault.FaultToleranceNotSameBuild,
        vim.fault.VmMonitorIncompatibleForFaultTolerance,
    ),
    _rule(
        Kind.OPERATOR,
        Reason.PROVIDER_PERMISSION_DENIED,
        "a rule of the vCenter forbids the account the step; ask its administrator",
        vim.fault.RestrictedByAdministrator,
        vim.fault.DisallowedChangeByService,
        vim.fault.RestrictedVersion,
        vim.fault.AuthMinimumAdminPermission,
        vim.fault.SolutionUserRequired,
        pbm.fault.NoPermission,
    ),
    _rule(
        Kind.TRANSIENT,
        Reason.GUEST_AGENT_NOT_READY,
        "VMware Tools do not run in the guest; start them or use powerOffMode Hard",
        vim.fault.ToolsUnavailable,
    ),
    _rule(
        Kind.OPERATOR,
        Reason.PROVIDER_VERSION_UNSUPPORTED,
        "this vCenter is too old for the step; upgrade it",
        vmodl.fault.MethodNotFound,
        vim.fault.UnsupportedVimApiVersion,
    ),
    _rule(
        Kind.SPEC,
        Reason.UNSUPPORTED_BY_PROVIDER,
        "the vCenter does not support this configuration; change the spec",
        vmodl.fault.NotSupported,
        vmodl.fault.NotImplemented,
        vim.fault.VirtualHardwareCompatibilityIssue,
    ),
    _rule(
        Kind.SPEC,
        Reason.INVALID_CONFIGURATION,
        "the vCenter refused the configuration; correct the spec",
        vmodl.fault.InvalidArgument,
        vim.fault.InvalidName,
        vim.fault.VmConfigFault,
        vim.fault.VmValidateMaxDevice,
        vim.fault.CustomizationFault,
        vim.fault.VAppConfigFault,
        vim.fault.OutOfBounds,
        vague=True,
    ),
    _rule(
        Kind.REFUSAL,
        Reason.STORAGE_CLASS_NOT_AVAILABLE,
        "a file on the datastore cannot be used; look at the datastore",
        vim.fault.FileFault,
        vim.fault.NoDiskFound,
        vim.fault.VsanFault,
        vague=True,
    ),
    _rule(
        Kind.OPERATOR,
        Reason.IMAGE_IMPORT_FAILED,
        "the image cannot be taken in as it is; correct its OVF or choose another image",
        vim.fault.OvfFault,
        vague=True,
    ),
    _rule(
        Kind.REFUSAL,
        Reason.INSUFFICIENT_CAPACITY,
        "no host there takes the VM as it is; choose another failure domain",
        vim.fault.MigrationFault,
        vim.fault.GenericDrsFault,
        vim.fault.DrsDisabledOnVm,
        vim.fault.EVCConfigFault,
        vague=True,
    ),
    _rule(
        Kind.REFUSAL,
        Reason.NETWORK_NOT_AVAILABLE,
        "the distributed switch refused the step; look at its configuration",
        vim.fault.DvsFault,
        vim.fault.NetworkDisruptedAndConfigRolledBack,
        vague=True,
    ),
    _rule(
        Kind.TRANSIENT,
        None,
        "the vCenter did not finish the step in time; it is tried again",
        vim.fault.Timedout,
        vmodl.fault.RequestCanceled,
    ),
)

OTHERWISE = _rule(Kind.TRANSIENT, None, "the vCenter failed to carry out the step")
