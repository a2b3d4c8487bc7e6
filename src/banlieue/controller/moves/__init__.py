"""Moves of a VirtualMachine from one place to another, step by step, and back."""
