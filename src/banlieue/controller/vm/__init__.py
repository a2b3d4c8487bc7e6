"""A VirtualMachine: its passes, its conditions, and what it tells."""
