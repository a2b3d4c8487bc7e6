"""Deterministic simulation: real reconcilers, virtual time, everything from one seed."""
