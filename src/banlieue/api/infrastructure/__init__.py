"""What the machine and cluster kinds of all backends have in common."""
