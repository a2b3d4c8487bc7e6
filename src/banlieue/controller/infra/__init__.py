"""The machine objects of VirtualMachines: which there are, what is in them, and how they go."""
