"""The Acme backend for banlieue."""
