"""The cert-manager of the local repository issues, and injects what it issued."""

import base64
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from test.kit.kube import Kube, KubeError, Object

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200), pytest.mark.usefixtures("management")]
pytest_plugins = ["test.kit.fixtures_clusterctl"]

_SECONDS: Final = 60


def test_a_certificate_is_issued_and_signed_by_its_authority(client: Kube, tenant: str) -> None:
    client.create(issuer("root", {"selfSigned": {}}), tenant)
    client.create(certificate("ca", "root", isCA=True, commonName="ca"), tenant)
    client.create(issuer("ca", {"ca": {"secretName": "ca"}}), tenant)
    client.create(certificate("server", "ca", dnsNames=["server.example"]), tenant)
    client.wait_for(
        "certificates.cert-manager.io", "server", tenant, until=is_ready, timeout=_SECONDS
    )
    authority = x509.load_pem_x509_certificate(content(client, tenant, "ca", "tls.crt"))
    issued = x509.load_pem_x509_certificate(content(client, tenant, "server", "tls.crt"))
    issued.verify_directly_issued_by(authority)
    names = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["server.example"]
    key = load_pem_private_key(content(client, tenant, "server", "tls.key"), None)
    assert public(key.public_key()) == public(issued.public_key())


def test_a_certificate_is_made_again_when_its_secret_is_lost(client: Kube, tenant: str) -> None:
    client.create(issuer("root", {"selfSigned": {}}), tenant)
    client.create(certificate("server", "root", dnsNames=["server.example"]), tenant)
    client.wait_for("secrets", "server", tenant, until=has_certificate, timeout=_SECONDS)
    client.delete("secrets", "server", tenant)
    client.wait_for("secrets", "server", tenant, until=has_certificate, timeout=_SECONDS)


def test_a_wrong_certificate_is_refused_by_the_webhook(client: Kube, tenant: str) -> None:
    wrong = certificate("wrong", "root", dnsNames=["x.example"], duration="1h", renewBefore="2h")
    with pytest.raises(KubeError, match=r"webhook\.cert-manager\.io.*denied"):
        client.create(wrong, tenant)


def test_the_authority_is_injected_into_webhooks(client: Kube, tenant: str) -> None:
    client.create(issuer("root", {"selfSigned": {}}), tenant)
    client.create(certificate("server", "root", dnsNames=["server.example"]), tenant)
    name = f"{tenant}-probe"
    client.create(webhook_configuration(name, f"{tenant}/server"))
    try:
        injected = client.wait_for(
            "validatingwebhookconfigurations",
            name,
            until=lambda obj: obj["webhooks"][0]["clientConfig"].get("caBundle"),
            timeout=_SECONDS,
            what="injected",
        )
    finally:
        client.delete("validatingwebhookconfigurations", name, missing_ok=True)
    bundle = base64.b64decode(injected["webhooks"][0]["clientConfig"]["caBundle"])
    assert bundle == content(client, tenant, "server", "ca.crt")


def test_every_webhook_and_conversion_of_cluster_api_has_an_authority(client: Kube) -> None:
    for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        found = client.list(kind)
        assert found
        for configuration in found:
            for webhook in configuration["webhooks"]:
                assert webhook["clientConfig"].get("caBundle"), configuration["metadata"]["name"]
    for definition in client.list("customresourcedefinitions"):
        conversion = definition["spec"]["conversion"]
        if conversion["strategy"] == "Webhook":
            assert conversion["webhook"]["clientConfig"].get("caBundle")


def issuer(name: str, spec: Object) -> Object:
    return _object("Issuer", name, spec)


def certificate(name: str, issued_by: str, **spec: object) -> Object:
    return _object(
        "Certificate", name, {"secretName": name, "issuerRef": {"name": issued_by}, **spec}
    )


def _object(kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def webhook_configuration(name: str, source: str) -> Object:
    """A webhook that nothing ever calls."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name, "annotations": {"cert-manager.io/inject-ca-from": source}},
        "webhooks": [
            {
                "name": "never.banlieue.io",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "clientConfig": {"service": {"name": "none", "namespace": "default"}},
                "rules": [
                    {
                        "apiGroups": ["never.banlieue.io"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["nothings"],
                    }
                ],
            }
        ],
    }


def is_ready(obj: Object) -> bool:
    conditions = obj.get("status", {}).get("conditions", [])
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)


def has_certificate(secret: Object) -> bool:
    return bool(secret.get("data", {}).get("tls.crt"))


def content(client: Kube, namespace: str, name: str, key: str) -> bytes:
    return base64.b64decode(client.get("secrets", name, namespace)["data"][key])


def public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
