"""Makes `test.kit` importable: a plain folder would lose to the standard library's `test`."""
