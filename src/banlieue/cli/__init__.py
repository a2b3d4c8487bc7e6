"""The `banlieue` command; each role is imported only when chosen."""
