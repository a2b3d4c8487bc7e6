"""What tests, the demo and benchmarks share: local servers, child processes, clients and waits."""
