"""A certificate authority of one's own, and the certificates it issues.

The extensions are those that strict checkers ask for (Python from 3.13 on): basicConstraints and
keyUsage on the authority, authorityKeyIdentifier on every leaf.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BACKDATED: Final = timedelta(hours=1)
_MONTH: Final = timedelta(days=30)
_YEARS: Final = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM. The key never shows in a repr."""

    certificate: bytes
    key: bytes = field(repr=False)

    @property
    def thumbprint(self) -> str:
        """SHA-256 over the certificate's DER form, in colon-separated upper-case hex."""
        return thumbprint(self.certificate)

    def write(self, directory: Path, stem: str) -> tuple[Path, Path]:
        """Write `stem.crt` and `stem.key` (readable by the owner only); returns both paths."""
        certificate, key = directory / f"{stem}.crt", directory / f"{stem}.key"
        certificate.write_bytes(self.certificate)
        write_private(key, self.key)
        return certificate, key


class Authority:
    """A certificate authority. It lives as long as this object, unless its `pair` is kept."""

    def __init__(
        self, common_name: str = "banlieue test CA", *, pair: KeyPair | None = None
    ) -> None:
        """Make a new authority, or go on with one.

        Args:
            common_name: Subject of a new one.
            pair: What `pair` of an earlier one gave.

        Raises:
            ValueError: The pair is damaged, or its key is of another certificate.
            TypeError: Its key is of another type.
        """
        if pair is not None:
            key = serialization.load_pem_private_key(pair.key, password=None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise TypeError("the authority's key is no elliptic curve key")
            self._key = key
            certificate = x509.load_pem_x509_certificate(pair.certificate)
            if certificate.public_key() != key.public_key():
                raise ValueError("the authority's key is not that of its certificate")
            self._name = certificate.subject
            self._certificate = pair.certificate
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(common_name, ())
        public = self._key.public_key()
        builder = (
            _builder(self._name, public, -_BACKDATED, _YEARS)
            .issuer_name(self._name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        )
        self._certificate = _pem(builder.sign(self._key, hashes.SHA256()))

    @property
    def certificate(self) -> bytes:
        """Its own certificate, PEM."""
        return self._certificate

    @property
    def validity(self) -> tuple[datetime, datetime]:
        """Begin and end of its own validity, in UTC."""
        certificate = x509.load_pem_x509_certificate(self._certificate)
        return certificate.not_valid_before_utc, certificate.not_valid_after_utc

    @property
    def pair(self) -> KeyPair:
        """Its own certificate and key."""
        return KeyPair(self.certificate, _private_pem(self._key))

    def issue(
        self,
        common_name: str,
        *,
        organizations: Sequence[str] = (),
        hosts: Sequence[str] = (),
        valid_from: timedelta = -_BACKDATED,
        valid_until: timedelta = _MONTH,
    ) -> KeyPair:
        """Issue a certificate that is good for servers and clients.

        Args:
            common_name: Subject; for Kubernetes clients the user name.
            organizations: For Kubernetes clients the groups.
            hosts: DNS names and IP addresses of a server.
            valid_from: Begin of validity, relative to now.
            valid_until: End of validity, relative to now; a negative one has expired.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        public, issuer = key.public_key(), self._key.public_key()
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer)
        builder = (
            _builder(_name(common_name, organizations), public, valid_from, valid_until)
            .issuer_name(self._name)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(identifier, critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return KeyPair(_pem(builder.sign(self._key, hashes.SHA256())), _private_pem(key))


def signing_key() -> tuple[bytes, bytes]:
    """A fresh signing key without certificate: private and public part, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _private_pem(key), public


def thumbprint(certificate: bytes) -> str:
    """SHA-256 over the DER form of a PEM certificate, in colon-separated upper-case hex."""
    der = x509.load_pem_x509_certificate(certificate).public_bytes(serialization.Encoding.DER)
    return hashlib.sha256(der).digest().hex(":").upper()


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from its first moment on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _builder(
    subject: x509.Name,
    public: ec.EllipticCurvePublicKey,
    valid_from: timedelta,
    valid_until: timedelta,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + min(valid_from, valid_until - _BACKDATED))
        .not_valid_after(now + valid_until)
    )


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
