"""The generic machine reconciler: one VM per machine object, on any backend that has a driver."""
