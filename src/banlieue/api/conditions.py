"""What conditions are about and what a VirtualMachine does: the same words on every backend."""

from enum import StrEnum

from banlieue.api.wording import Worded


class Phase(StrEnum):
    """What a VirtualMachine does, in one word for people."""

    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    RUNNING = "Running"
    STOPPED = "Stopped"
    SUSPENDED = "Suspended"
    UPDATING = "Updating"
    MIGRATING = "Migrating"
    FAILED = "Failed"
    DELETING = "Deleting"
    UNKNOWN = "Unknown"


class ConditionType(Worded):
    """What a condition is about."""

    READY = "Ready", "Summary of all others: the object does what its spec says."
    RECONCILING = "Reconciling", "Work is going on, or fails and is tried again; only while true."
    STALLED = "Stalled", "Nothing will happen until the spec or rights change; only while true."
    PAUSED = "Paused", "Hands off was asked for."
    DELETING = "Deleting", "The object is being deleted; says what that waits for."

    SCHEDULED = "Scheduled", "A Provider and failure domain were chosen."
    PLACEMENT_VALID = "PlacementValid", "The placement still meets what the spec asks."
    IMAGE_READY = "ImageReady", "The image can be used where the machine is placed."
    FAILURE_DOMAINS_AVAILABLE = (
        "FailureDomainsAvailable",
        "Every failure domain of its Providers is listed; of a cluster.",
    )
    INFRASTRUCTURE_READY = "InfrastructureReady", "Ready of the infrastructure machine."
    PROVISIONED = "Provisioned", "The machine was seen on the backend."
    POWER_STATE_SYNCED = "PowerStateSynced", "The power state is the desired one."
    UP_TO_DATE = "UpToDate", "Every change of the spec is in force."
    ADDRESSES_AVAILABLE = "AddressesAvailable", "Every address asked for is known."
    GUEST_BOOTSTRAPPED = "GuestBootstrapped", "The guest ran its first-boot data."
    SEED_REDACTED = (
        "SeedRedacted",
        "The user data can no longer be read on the backend; only where there was any.",
    )
    MIGRATING = "Migrating", "A move to another Provider is going on."
    HELD = "Held", "An admin holds the machine on the backend; drift is not corrected."

    PROVIDER_REACHABLE = "ProviderReachable", "The endpoint answers and is trusted."
    CREDENTIALS_VALID = "CredentialsValid", "The endpoint accepts the credentials."
    PERMISSIONS_VALID = "PermissionsValid", "The account has every privilege needed."
