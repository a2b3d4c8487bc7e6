"""What happened, as Events tell it: one meaning each, the same on every backend."""

from banlieue.api.wording import Worded


class EventReason(Worded):
    """What happened, in the past tense where it is an act."""

    SCHEDULED = "Scheduled", "A place was chosen."
    SCHEDULING_FAILED = "SchedulingFailed", "No place was found."
    IMAGE_IMPORT_STARTED = "ImageImportStarted", "An import was started."
    IMAGE_IMPORT_COMPLETED = "ImageImportCompleted", "An import was completed."
    IMAGE_IMPORT_FAILED = "ImageImportFailed", "An import failed."
    PROVISIONED = "Provisioned", "The machine was seen on the backend."
    PROVISIONING_FAILED = "ProvisioningFailed", "The machine could not be made."
    REBOUND = "Rebound", "An existing machine of this owner was found and taken."
    POWERED_ON = "PoweredOn", "The machine was started."
    POWERED_OFF = "PoweredOff", "The machine was stopped."
    SUSPENDED = "Suspended", "The machine was suspended."
    SHUTDOWN_TIMED_OUT = "ShutdownTimedOut", "The guest did not shut down in time."
    RESTARTED = "Restarted", "The machine was restarted."
    RESIZED = "Resized", "Processors or memory were changed."
    RESTART_REQUIRED = "RestartRequired", "A change waits for a restart."
    DISK_GROWN = "DiskGrown", "A disk was grown."
    DISK_RETAINED = "DiskRetained", "A disk was kept, and can be attached again by its id."
    ADDRESS_ASSIGNED = "AddressAssigned", "An address became known."
    ADDRESS_LOST = "AddressLost", "A running machine has no address any more."
    ADDRESS_NOT_ASSIGNED = "AddressNotAssigned", "A pool gave no address that can be used."
    DRIFT_DETECTED = "DriftDetected", "Somebody changed the machine."
    DRIFT_CORRECTED = "DriftCorrected", "What somebody changed was put right."
    MOVED_BY_BACKEND = "MovedByBackend", "Others moved the machine to another failure domain."
    MIGRATION_STARTED = "MigrationStarted", "A move was begun."
    MIGRATION_COMPLETED = "MigrationCompleted", "A move was completed."
    MIGRATION_FAILED = "MigrationFailed", "A move failed; the old machine goes on."
    PREVIOUS_RELEASED = "PreviousReleased", "The machine a move left behind was destroyed."
    ADOPTED = "Adopted", "An existing machine was taken over."
    OWNERSHIP_CONFLICT = "OwnershipConflict", "A machine belongs to somebody else."
    VM_MISSING = "VMMissing", "The machine vanished from the backend."
    RECREATED = "Recreated", "A vanished machine was made again, as asked."
    DELETING = "Deleting", "The machine's end was begun."
    DELETED = "Deleted", "The machine was destroyed."
    ORPHANED = (
        "Orphaned",
        "The machine was left on the backend, as asked or for want of its object.",
    )
    PROVIDER_UNREACHABLE = "ProviderUnreachable", "The endpoint stopped answering."
    PROVIDER_RECOVERED = "ProviderRecovered", "The endpoint answers again."
    SERVED_ELSEWHERE = "ServedElsewhere", "Another process holds the Provider's Lease."
    PROVIDER_TLS_INVALID = "ProviderTLSInvalid", "The endpoint's certificate is not trusted."
    PROVIDER_IN_USE = "ProviderInUse", "A deleted Provider waits for its machines to go first."
    WORKLOAD_CREATED = "WorkloadCreated", "What serves the Provider was made."
    WORKLOAD_UPDATED = "WorkloadUpdated", "What serves the Provider was changed or put right."
    WORKLOAD_REMOVED = "WorkloadRemoved", "What served the Provider was taken away."
    WORKLOAD_CONFLICT = (
        "WorkloadConflict",
        "An object of the workload's name was made by somebody else; it is left alone.",
    )
    WORKLOAD_REFUSED = "WorkloadRefused", "The API server refused an object of the workload."
    NODE_IDENTIFIED = "NodeIdentified", "A Node was given the provider ID of its machine."
    NODE_NOT_IDENTIFIED = (
        "NodeNotIdentified",
        "The Node of a machine could not be told, or not be given its provider ID.",
    )
    KIND_FORBIDDEN = "KindForbidden", "The controller lacks rights on the kind of a class."
    INTERNAL_ERROR = "InternalError", "Passes over the object fail by a fault of banlieue's own."
    NAMESPACE_REFUSED = (
        "NamespaceRefused",
        "A machine of a namespace that allowedNamespaces leaves out asked for the Provider.",
    )
