"""Why a condition has its status: one meaning each, the same on every backend."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from banlieue.api.wording import ReasonClass

_FACT = ReasonClass.FACT
_TRANSIENT = ReasonClass.TRANSIENT
_WAIT = ReasonClass.WAIT
_SPEC = ReasonClass.SPEC
_CONFLICT = ReasonClass.CONFLICT


class Reason(StrEnum):
    """Why a condition has its status."""

    _value_: str
    kind: ReasonClass
    meaning: str

    def __new__(cls, value: str, kind: ReasonClass, meaning: str) -> Self:
        """Make the member whose value is the word."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.kind = kind
        member.meaning = meaning
        return member

    # How things stand
    READY = "Ready", _FACT, "Everything is as the spec says."
    NOT_READY = "NotReady", _FACT, "Another condition says what is missing."
    RECONCILED = "Reconciled", _FACT, "Checked and found right."
    NOT_OBSERVED = "NotObserved", _FACT, "Not looked at yet."
    SCHEDULED = "Scheduled", _FACT, "A place was chosen."
    PLACEMENT_VALID = "PlacementValid", _FACT, "The place meets the spec."
    IMAGE_READY = "ImageReady", _FACT, "The image can be used there."
    PROVISIONING = "Provisioning", _FACT, "The machine and what it needs are being made."
    CREATING = "Creating", _FACT, "The backend makes the machine."
    PROVISIONED = "Provisioned", _FACT, "The machine exists on the backend."
    NOT_PROVISIONED = "NotProvisioned", _FACT, "The machine was not made yet."
    POWERING_ON = "PoweringOn", _FACT, "The machine is being started."
    POWERING_OFF = "PoweringOff", _FACT, "The machine is being stopped."
    SUSPENDING = "Suspending", _FACT, "The machine is being suspended."
    RESTARTING = "Restarting", _FACT, "The machine is being restarted."
    POWER_STATE_SYNCED = "PowerStateSynced", _FACT, "The power state is right."
    UPDATING = "Updating", _FACT, "A change of the spec is being made."
    UP_TO_DATE = "UpToDate", _FACT, "Every change is in force."
    ADDRESSES_AVAILABLE = "AddressesAvailable", _FACT, "Every address is known."
    ADDRESSES_NOT_EXPECTED = (
        "AddressesNotExpected",
        _FACT,
        "No address can be known: the machine is off or has no agent.",
    )
    GUEST_BOOTSTRAPPED = "GuestBootstrapped", _FACT, "The guest's first boot went well."
    SEED_REDACTED = "SeedRedacted", _FACT, "The backend holds no user data any more."
    DELETING = "Deleting", _FACT, "The object is being deleted."
    PAUSED = "Paused", _FACT, "Hands off was asked for."
    NOT_PAUSED = "NotPaused", _FACT, "Nothing asks for hands off."
    MIGRATING = "Migrating", _FACT, "A move is going on."
    IMPORTING = "Importing", _FACT, "The image is being imported."

    # The backend
    PROVIDER_UNREACHABLE = "ProviderUnreachable", _TRANSIENT, "The endpoint does not answer."
    PROVIDER_AUTH_FAILED = (
        "ProviderAuthFailed",
        _WAIT,
        "The endpoint refused the credentials; correct the Secret.",
    )
    PROVIDER_PERMISSION_DENIED = (
        "ProviderPermissionDenied",
        _WAIT,
        "The account lacks a privilege; grant it.",
    )
    PROVIDER_TLS_INVALID = (
        "ProviderTLSInvalid",
        _WAIT,
        "The endpoint's certificate is not trusted; correct caBundle or thumbprints.",
    )
    PROVIDER_BUSY = "ProviderBusy", _TRANSIENT, "The backend works on the machine."
    PROVIDER_VERSION_UNSUPPORTED = (
        "ProviderVersionUnsupported",
        _WAIT,
        "The backend's version is not supported; upgrade it.",
    )
    INVENTORY_FAILED = "InventoryFailed", _TRANSIENT, "The backend's inventory could not be read."
    SECRET_MISSING = "SecretMissing", _WAIT, "A referenced Secret does not exist."
    SECRET_INVALID = "SecretInvalid", _WAIT, "A referenced Secret lacks a key."
    CA_BUNDLE_MISSING = (
        "CABundleMissing",
        _WAIT,
        "The object or key that caBundle names does not exist.",
    )
    CAPABILITY_INVALID = (
        "CapabilityInvalid",
        _SPEC,
        "A declared class or setting has an unknown key or names what is not there.",
    )
    BACKEND_IDENTITY_CHANGED = (
        "BackendIdentityChanged",
        _CONFLICT,
        "Another backend answers than the one that holds the machine.",
    )
    PROVIDER_NOT_READY = "ProviderNotReady", _WAIT, "The Provider is not Ready."
    PROVIDER_NOT_FOUND = "ProviderNotFound", _WAIT, "The Provider does not exist."
    PROVIDER_PAUSED = "ProviderPaused", _WAIT, "The Provider is paused."
    PROVIDER_READ_ONLY = (
        "ProviderReadOnly",
        _WAIT,
        "The Provider is ReadOnly; nothing on the backend is changed.",
    )
    PROVIDER_CORDONED = "ProviderCordoned", _WAIT, "The Provider takes no new machines."
    PROVIDER_DELETING = "ProviderDeleting", _WAIT, "The Provider is being deleted."
    PROVIDER_IN_USE = (
        "ProviderInUse",
        _WAIT,
        "The Provider still has machines; delete or move them first.",
    )
    PROVIDER_CLASS_NOT_FOUND = "ProviderClassNotFound", _WAIT, "The ProviderClass does not exist."
    PROVIDER_CLASS_MISMATCH = (
        "ProviderClassMismatch",
        _SPEC,
        "The ProviderClass is of another backend; the old workload stays.",
    )
    SERVED_ELSEWHERE = "ServedElsewhere", _WAIT, "Another process holds the Provider's Lease."
    WORKLOAD_NOT_READY = "WorkloadNotReady", _WAIT, "The pod that serves the Provider is not ready."
    WORKLOAD_CONFLICT = (
        "WorkloadConflict",
        _CONFLICT,
        "An object of the workload's name was made by somebody else; it is left alone.",
    )
    WORKLOAD_REFUSED = (
        "WorkloadRefused",
        _WAIT,
        "The API server refused an object of the workload.",
    )
    MACHINE_KIND_FORBIDDEN = "MachineKindForbidden", _WAIT, "The controller lacks rights on a kind."
    KIND_NOT_INSTALLED = (
        "KindNotInstalled",
        _WAIT,
        "The backend's kinds are not installed; apply its CRDs.",
    )

    # Scheduling
    NO_PROVIDER_MATCHED = (
        "NoProviderMatched",
        _WAIT,
        "No Provider that may be used matches the spec.",
    )
    NO_FAILURE_DOMAIN_MATCHED = (
        "NoFailureDomainMatched",
        _WAIT,
        "No failure domain matches the spec.",
    )
    PROVIDER_NOT_ALLOWED = (
        "ProviderNotAllowed",
        _WAIT,
        "The Provider does not exist or is not offered to this namespace.",
    )
    CLASS_NOT_FOUND = "ClassNotFound", _WAIT, "The VMClass does not exist."
    IMAGE_NOT_FOUND = "ImageNotFound", _WAIT, "The VMImage does not exist."
    IMAGE_NOT_READY = "ImageNotReady", _WAIT, "The image cannot be used there yet."
    IMAGE_TOO_LARGE = "ImageTooLarge", _SPEC, "The root disk is smaller than the image's minimum."
    ARCHITECTURE_UNSUPPORTED = (
        "ArchitectureUnsupported",
        _WAIT,
        "The image's processor architecture is not there.",
    )
    FIRMWARE_UNSUPPORTED = (
        "FirmwareUnsupported",
        _WAIT,
        "Image, class and place have no firmware in common.",
    )
    FEATURE_UNSUPPORTED = (
        "FeatureUnsupported",
        _WAIT,
        "A feature of the class is not offered there.",
    )
    STORAGE_CLASS_NOT_AVAILABLE = (
        "StorageClassNotAvailable",
        _WAIT,
        "A storage class is not reachable there.",
    )
    NETWORK_NOT_AVAILABLE = "NetworkNotAvailable", _WAIT, "A network class is not reachable there."
    INSUFFICIENT_CAPACITY = "InsufficientCapacity", _WAIT, "Processors or memory do not suffice."
    INSUFFICIENT_STORAGE = "InsufficientStorage", _WAIT, "Storage space does not suffice."
    QUOTA_EXCEEDED = "QuotaExceeded", _WAIT, "A quota or licence does not suffice."
    ANTI_AFFINITY_UNSATISFIED = (
        "AntiAffinityUnsatisfied",
        _WAIT,
        "Every place is too near to a machine to keep away from.",
    )
    FAILURE_DOMAIN_NOT_FOUND = (
        "FailureDomainNotFound",
        _WAIT,
        "No Provider of the cluster has that failure domain.",
    )
    FAILURE_DOMAIN_CORDONED = (
        "FailureDomainCordoned",
        _WAIT,
        "The failure domain takes no new machines.",
    )
    NO_FAILURE_DOMAINS = (
        "NoFailureDomains",
        _WAIT,
        "No Provider the cluster may use has told a failure domain.",
    )
    FAILURE_DOMAINS_AVAILABLE = (
        "FailureDomainsAvailable",
        _FACT,
        "Every failure domain of the cluster's Providers is listed.",
    )
    FAILURE_DOMAIN_NAME_TAKEN = (
        "FailureDomainNameTaken",
        _WAIT,
        "Two Providers of the cluster have a failure domain of one name; one is left out.",
    )
    TOO_MANY_FAILURE_DOMAINS = (
        "TooManyFailureDomains",
        _WAIT,
        "More failure domains than a cluster can list; some were left out.",
    )
    RECOVERY_PENDING = (
        "RecoveryPending",
        _WAIT,
        "The installation recovers; a machine of this owner may be found yet.",
    )

    # Placement after scheduling
    PROVIDER_CHANGED = (
        "ProviderChanged",
        _WAIT,
        "The spec asks for another Provider than the machine has.",
    )
    FAILURE_DOMAIN_CHANGED = (
        "FailureDomainChanged",
        _WAIT,
        "The failure domain no longer meets the spec.",
    )
    STORAGE_MAPPING_CHANGED = (
        "StorageMappingChanged",
        _WAIT,
        "A storage class means something else than when the disk was made.",
    )
    NETWORK_MAPPING_CHANGED = (
        "NetworkMappingChanged",
        _WAIT,
        "A network class means something else than when the interface was made.",
    )
    MOVED_BY_BACKEND = "MovedByBackend", _FACT, "The backend or its admin moved the machine."
    MIGRATION_NOT_APPROVED = (
        "MigrationNotApproved",
        _WAIT,
        "The move waits for annotation banlieue.io/migrate=true.",
    )
    MIGRATION_REFUSED = (
        "MigrationRefused",
        _SPEC,
        "migrationPolicy never refuses the move; put the pin back or change the policy.",
    )
    MIGRATION_FAILED = "MigrationFailed", _WAIT, "The move failed; the old one runs."
    DATA_DISKS_AT_RISK = (
        "DataDisksAtRisk",
        _WAIT,
        "The move would leave data disks behind; accept that by annotation.",
    )
    PREVIOUS_RETAINED = (
        "PreviousRetained",
        _WAIT,
        "What an earlier move left behind is still kept; release it first.",
    )

    # Image
    IMAGE_NOT_AVAILABLE = (
        "ImageNotAvailable",
        _WAIT,
        "The image's source was not found on the backend.",
    )
    IMAGE_IMPORT_FAILED = "ImageImportFailed", _TRANSIENT, "The import failed."
    IMAGE_CHECKSUM_MISMATCH = (
        "ImageChecksumMismatch",
        _SPEC,
        "What was imported is not what the checksum says.",
    )
    IMAGE_AGENT_MISSING = (
        "ImageAgentMissing",
        _SPEC,
        "A readiness gate asks for what only a guest agent tells, and the image has none.",
    )
    IMAGE_IN_USE = "ImageInUse", _WAIT, "The image still has machines; delete them first."
    IMAGE_SOURCE_MISSING = (
        "ImageSourceMissing",
        _SPEC,
        "The image has no source for any Provider there is.",
    )

    # Before the machine is made
    WAITING_FOR_INFRASTRUCTURE = (
        "WaitingForInfrastructure",
        _WAIT,
        "The provider has not answered yet.",
    )
    WAITING_FOR_CLUSTER_INFRASTRUCTURE_READY = (
        "WaitingForClusterInfrastructureReady",
        _WAIT,
        "The Cluster's infrastructure is not provisioned yet.",
    )
    WAITING_FOR_CONTROL_PLANE_INITIALIZED = (
        "WaitingForControlPlaneInitialized",
        _WAIT,
        "The Cluster's control plane is not initialized yet.",
    )
    WAITING_FOR_BOOTSTRAP_DATA = (
        "WaitingForBootstrapData",
        _WAIT,
        "The Machine has no bootstrap data yet.",
    )
    WAITING_FOR_CONTROL_PLANE_ENDPOINT = (
        "WaitingForControlPlaneEndpoint",
        _WAIT,
        "Nobody has set the control plane endpoint yet.",
    )
    WAITING_FOR_OWNER = "WaitingForOwner", _WAIT, "No owner has claimed it yet."
    WAITING_FOR_GRANT = "WaitingForGrant", _WAIT, "The right to read the user data is on its way."
    USER_DATA_NOT_FOUND = "UserDataNotFound", _WAIT, "The Secret or key is missing."
    USER_DATA_TOO_LARGE = "UserDataTooLarge", _SPEC, "The backend cannot carry that much user data."
    USER_DATA_NOT_GRANTED = (
        "UserDataNotGranted",
        _WAIT,
        "The provider may not read the Secret; grant it.",
    )
    USER_DATA_INVALID = (
        "UserDataInvalid",
        _SPEC,
        "The user data is not of the format the image reads.",
    )

    # Identity
    NOT_REFERENCED = (
        "NotReferenced",
        _WAIT,
        "The owner does not refer to this object; nothing is made for it.",
    )
    OWNERSHIP_CONFLICT = (
        "OwnershipConflict",
        _CONFLICT,
        "A machine of that name or identity belongs to somebody else, or two claim to be it.",
    )
    VM_MISSING = (
        "VMMissing",
        _CONFLICT,
        "The machine vanished from the backend; it is never made again unasked.",
    )
    ABSENCE_UNPROVEN = (
        "AbsenceUnproven",
        _CONFLICT,
        "The machine was not found, and that it is gone is not proven.",
    )
    REBIND_PENDING = (
        "RebindPending",
        _WAIT,
        "The machine on the backend has a later epoch than the object.",
    )
    INSTALLATION_UNCONFIRMED = (
        "InstallationUnconfirmed",
        _CONFLICT,
        "This may be a copy of another installation; run banlieue recover.",
    )
    DELETION_PROTECTED = (
        "DeletionProtected",
        ReasonClass.CONFLICT,
        "deletionProtection is set, so nothing is destroyed until it is false.",
    )
    TEARDOWN_UNDECIDED = (
        "TeardownUndecided",
        _CONFLICT,
        "The object is deleted, and nobody said what becomes of the machine.",
    )
    FOREIGN_DISK_ATTACHED = (
        "ForeignDiskAttached",
        _CONFLICT,
        "A disk we did not make cannot be detached; the machine is not destroyed.",
    )
    ADOPTION_PENDING = (
        "AdoptionPending",
        _WAIT,
        "The machine is only observed until spec.adopt.accepted is true.",
    )
    ADOPTION_NOT_ALLOWED = (
        "AdoptionNotAllowed",
        _WAIT,
        "The Provider does not let this namespace adopt.",
    )
    ADOPTION_AMBIGUOUS = (
        "AdoptionAmbiguous",
        _WAIT,
        "Several Providers let this namespace adopt, and spec.providerRef names none of them.",
    )
    ADOPTION_NOT_FOUND = (
        "AdoptionNotFound",
        _WAIT,
        "The Provider has no machine with the id of spec.adopt.",
    )

    # The life of a machine
    PROVISIONING_FAILED = (
        "ProvisioningFailed",
        _TRANSIENT,
        "The backend failed to make the machine.",
    )
    UPDATE_FAILED = "UpdateFailed", _TRANSIENT, "The backend failed to change it."
    DELETION_FAILED = "DeletionFailed", _TRANSIENT, "The backend failed to delete it."
    INVALID_CONFIGURATION = (
        "InvalidConfiguration",
        _SPEC,
        "The backend refused the configuration; correct the spec.",
    )
    UNSUPPORTED_BY_PROVIDER = (
        "UnsupportedByProvider",
        _SPEC,
        "The backend or its provider process cannot do that.",
    )
    VALUE_NOT_ALLOWED = (
        "ValueNotAllowed",
        _SPEC,
        "The Provider's policy does not allow that value from this namespace.",
    )
    RESTART_REQUIRED = "RestartRequired", _WAIT, "A change comes into force with the next restart."
    BLOCKED_BY_LINKED_CLONE = (
        "BlockedByLinkedClone",
        _WAIT,
        "A disk of a linked clone cannot be changed.",
    )
    BLOCKED_BY_SNAPSHOT = (
        "BlockedBySnapshot",
        _WAIT,
        "A machine with snapshots cannot be changed that way.",
    )
    DISK_NOT_FOUND = (
        "DiskNotFound",
        _WAIT,
        "No retained disk of that id is kept there for this namespace.",
    )
    DISK_IN_USE = "DiskInUse", _WAIT, "Another machine has the disk, or was promised it first."
    BACKUP_IN_PROGRESS = "BackupInProgress", _WAIT, "A backup of the machine runs."
    DRIFT_DETECTED = "DriftDetected", _WAIT, "Somebody changed the machine."
    HELD_BY_BACKEND = "HeldByBackend", _WAIT, "An admin holds the machine on the backend."
    SHUTDOWN_TIMED_OUT = "ShutdownTimedOut", _TRANSIENT, "The guest did not shut down in time."
    VM_PAUSED = (
        "VMPaused",
        _CONFLICT,
        "The backend stopped the machine and waits for an answer or for space.",
    )
    ADDRESS_PENDING = "AddressPending", _WAIT, "An address is not known yet."
    ADDRESS_POOL_EXHAUSTED = "AddressPoolExhausted", _WAIT, "The pool has no address left."
    GUEST_AGENT_NOT_READY = "GuestAgentNotReady", _WAIT, "The guest agent does not answer."
    GUEST_BOOTSTRAP_PENDING = (
        "GuestBootstrapPending",
        _WAIT,
        "The guest has not told that its first boot is over.",
    )
    GUEST_BOOTSTRAP_FAILED = (
        "GuestBootstrapFailed",
        _SPEC,
        "The first-boot data failed in the guest.",
    )
    INTERNAL_ERROR = "InternalError", _TRANSIENT, "We failed; the log says how."


RESERVED = frozenset(
    {
        # Cluster API machines and clusters
        Reason.NOT_READY,
        Reason.PROVISIONING,
        Reason.WAITING_FOR_OWNER,
        # Backends that ask, classes that changed their meaning
        Reason.STORAGE_MAPPING_CHANGED,
        Reason.NETWORK_MAPPING_CHANGED,
    }
)
"""Reasons whose meaning is settled and that nothing gives yet; the reference promises none."""
