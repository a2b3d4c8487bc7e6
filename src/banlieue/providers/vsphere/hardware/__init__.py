"""Devices of VMs: disks, interfaces, and disks that outlive their VM."""
