"""Certificates for tests; the development cluster uses the same."""

from hack.certificates import Authority, KeyPair, signing_key, thumbprint, write_private

__all__ = ["Authority", "KeyPair", "signing_key", "thumbprint", "write_private"]
