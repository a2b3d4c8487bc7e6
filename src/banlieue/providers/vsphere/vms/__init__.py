"""VMs: found, made, changed, taken over, destroyed."""
