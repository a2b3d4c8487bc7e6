"""Where a machine goes: pure decisions over what there is, who is there, and what is needed."""
