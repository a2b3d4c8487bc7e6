"""The generic image reconciler: which images a Provider has, as its own row of VMImage status."""
