"""The vSphere backend."""
