"""The connection to one vCenter: wire, session, reads, faults, pace."""
