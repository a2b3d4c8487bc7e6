"""Tells Nodes of workload clusters which machine they are, where their own system does not."""
