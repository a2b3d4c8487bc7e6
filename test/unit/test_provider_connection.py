import base64
import datetime as dt
from collections.abc import Mapping
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from banlieue.api.reasons import Reason
from banlieue.api.resources import CONFIG_MAPS, SECRETS
from banlieue.api.v1alpha1.provider import Provider
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.provider.connection import (
    ConnectionInvalid,
    Source,
    login_digest,
    make_connection,
    session_digest,
    sources,
)

CREDENTIALS: Source = (SECRETS, Key("ns", "creds"))
PASSWORD = "planted-password"


def b64(text: str | bytes) -> str:
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


def secret(**data: str) -> Obj:
    return {"metadata": {"name": "x"}, "data": {key: b64(value) for key, value in data.items()}}


OBJECTS: dict[Source, Obj | None] = {CREDENTIALS: secret(username="u", password=PASSWORD)}


@pytest.fixture(scope="module")
def pem() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1000))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def provider(**connection: object) -> Provider:
    to = {"endpoint": "https://vc.example/sdk", "credentialsRef": {"name": "creds"}, **connection}
    given = {key: value for key, value in to.items() if value is not None}
    spec = {"providerClassRef": {"name": "c"}, "connection": given}
    return Provider.from_api({"metadata": {"namespace": "ns", "name": "p"}, "spec": spec})


def refused(
    given: Provider, objects: Mapping[Source, Obj | None] | None = None
) -> ConnectionInvalid:
    with pytest.raises(ConnectionInvalid) as caught:
        make_connection(given, OBJECTS if objects is None else objects)
    assert PASSWORD not in repr(caught.value)
    return caught.value


def test_a_whole_connection() -> None:
    thumbprint = ":".join(["AB"] * 32)
    made = make_connection(provider(thumbprints=[thumbprint]), OBJECTS)
    assert made.endpoints == ("https://vc.example/sdk",)
    assert made.credentials["password"].get_secret_value() == PASSWORD
    assert made.thumbprints == ("ab" * 32,)
    assert PASSWORD not in repr(made)


def test_a_trailing_line_end_is_no_part_of_a_password() -> None:
    made = make_connection(provider(), {CREDENTIALS: secret(password=PASSWORD + "\n")})
    assert made.credentials["password"].get_secret_value() == PASSWORD


def test_several_endpoints_and_no_credentials() -> None:
    urls = ["qemu+tls://h1/system", "qemu:///system"]
    made = make_connection(provider(endpoint=None, endpoints=urls, credentialsRef=None), {})
    assert made.endpoints == tuple(urls)
    assert not made.credentials


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ({}, Reason.SECRET_MISSING),
        ({CREDENTIALS: None}, Reason.SECRET_MISSING),
        ({CREDENTIALS: {"data": {}}}, Reason.SECRET_INVALID),
        ({CREDENTIALS: {"data": {"password": b64(b"\xff\xfe")}}}, Reason.SECRET_INVALID),
        ({CREDENTIALS: {"data": {"password": "***"}}}, Reason.SECRET_INVALID),
    ],
)
def test_a_bad_secret_is_named(objects: dict[Source, Obj | None], reason: Reason) -> None:
    error = refused(provider(), objects)
    assert error.reason == reason
    assert "ns/creds" in error.message


@pytest.mark.parametrize(
    "connection",
    [
        {"endpoint": f"https://user:{PASSWORD}@vc/sdk"},
        {"endpoint": f"https://user:{PASSWORD}@[vc/sdk"},
        {"endpoint": "https://"},
        {"endpoint": "https://vc:port/"},
        {"endpoint": None},
        {"endpoints": ["https://other"]},
    ],
)
def test_a_bad_endpoint_is_explained_without_its_password(connection: dict[str, Any]) -> None:
    error = refused(provider(**connection))
    assert error.reason == Reason.INVALID_CONFIGURATION
    assert "endpoint" in error.message
    assert PASSWORD not in error.message


def test_certificates_from_each_place(pem: str) -> None:
    inline = make_connection(provider(caBundle={"inline": pem}), OBJECTS)
    assert inline.ca_bundle == pem
    from_map = provider(caBundle={"configMapRef": {"name": "ca"}})
    objects = {**OBJECTS, (CONFIG_MAPS, Key("ns", "ca")): {"data": {"ca.crt": pem}}}
    assert make_connection(from_map, objects).ca_bundle == pem
    from_secret = provider(caBundle={"secretRef": {"name": "ca", "key": "tls"}})
    objects = {**OBJECTS, (SECRETS, Key("ns", "ca")): {"data": {"tls": b64(pem)}}}
    assert make_connection(from_secret, objects).ca_bundle == pem


def test_missing_and_unreadable_certificates(pem: str) -> None:
    given = provider(caBundle={"configMapRef": {"name": "ca"}})
    key: Source = (CONFIG_MAPS, Key("ns", "ca"))
    assert refused(given).reason == Reason.CA_BUNDLE_MISSING
    no_key = refused(given, {**OBJECTS, key: {"data": {"other": pem}}})
    assert no_key.reason == Reason.CA_BUNDLE_MISSING
    assert "ca.crt" in no_key.message
    broken = refused(given, {**OBJECTS, key: {"data": {"ca.crt": "nonsense"}}})
    assert broken.reason == Reason.PROVIDER_TLS_INVALID
    two = provider(caBundle={"inline": pem, "configMapRef": {"name": "ca"}})
    assert refused(two).reason == Reason.INVALID_CONFIGURATION


def test_sources_are_in_the_providers_namespace_and_named_once() -> None:
    given = provider(caBundle={"secretRef": {"name": "creds"}})
    assert sources(given).all() == (CREDENTIALS,)


def test_digests_follow_what_they_are_about() -> None:
    base = make_connection(provider(), OBJECTS)
    other_password = make_connection(provider(), {CREDENTIALS: secret(username="u", password="n")})
    assert login_digest(base) != login_digest(other_password)
    assert login_digest(base) == login_digest(make_connection(provider(), OBJECTS))
    declared = Provider.from_api(
        {
            "metadata": {"namespace": "ns", "name": "p"},
            "spec": {
                "providerClassRef": {"name": "c"},
                "connection": {
                    "endpoint": "https://vc.example/sdk",
                    "credentialsRef": {"name": "creds"},
                },
                "capabilities": {"storageClasses": [{"name": "gold"}]},
            },
        }
    )
    with_class = make_connection(declared, OBJECTS)
    assert login_digest(base) == login_digest(with_class)
    assert session_digest(base) != session_digest(with_class)
    assert PASSWORD not in login_digest(base)
