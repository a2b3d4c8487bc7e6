"""One Kubernetes API for virtual machines over vSphere, Proxmox VE and libvirt."""

__version__ = "0.1.0"
