"""The controller: placement, one infra machine per VirtualMachine, mirrored status."""
