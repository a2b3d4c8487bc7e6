"""How a Provider reaches and trusts its endpoint."""

from __future__ import annotations

from typing import Annotated

from annotated_types import MaxLen
from pydantic import Field

from banlieue.api.markers import Rule
from banlieue.api.meta import (
    ConfigMapKeyRef,
    Model,
    NameRef,
    SecretKeyRef,
)
from banlieue.api.types import (
    Line,
    Thumbprint,
    Url,
)

_URL_WITH_LOGIN = r"'^[^/]*//[^/@]*:[^/@]*@'"


class CaBundle(Model):
    """Where the certificates to trust come from; exactly one of the three."""

    inline: Annotated[str, MaxLen(65536)] | None = Field(
        default=None, description="The certificates themselves, in PEM."
    )
    config_map_ref: ConfigMapKeyRef | None = Field(
        default=None, description="A ConfigMap in the Provider's namespace with PEM certificates."
    )
    secret_ref: SecretKeyRef | None = Field(
        default=None, description="A Secret in the Provider's namespace with PEM certificates."
    )

    cel = (
        Rule(
            "[has(self.inline), has(self.configMapRef), has(self.secretRef)]"
            ".filter(given, given).size() == 1",
            "caBundle must have exactly one of inline, configMapRef and secretRef: remove the "
            "others",
        ),
    )


class Connection(Model):
    """How the endpoint is reached and trusted."""

    endpoint: Url | None = Field(
        default=None,
        description="URL of the endpoint, such as https://vcenter.example.com/sdk. Give either "
        "this or `endpoints`.",
    )
    endpoints: Annotated[list[Url], MaxLen(32)] = Field(
        default_factory=list,
        description="URLs of several nodes or hosts that are served as one Provider.",
    )
    credentials_ref: NameRef | None = Field(
        default=None,
        description="Secret in the Provider's namespace with the credentials; its keys are "
        "documented by the backend. Absent only where the backend needs none.",
    )
    ca_bundle: CaBundle | None = Field(
        default=None,
        description="Certificates to trust. Default: those of the system.",
    )
    thumbprints: Annotated[list[Thumbprint], MaxLen(32)] = Field(
        default_factory=list,
        description="SHA-256 thumbprints of the endpoint's certificate; any match is enough, and "
        "a certificate that matches none is refused.",
    )
    insecure_skip_tls_verify: bool = Field(
        default=False, description="Do not verify certificates. For laboratories only."
    )
    accepted_identities: Annotated[list[Line], MaxLen(16)] = Field(
        default_factory=list,
        description="Further identities of the backend (status.backendIdentity) under which its "
        "machines were made, for an endpoint that was rebuilt or renamed.",
    )

    cel = (
        Rule(
            "has(self.endpoint) != (has(self.endpoints) && size(self.endpoints) > 0)",
            "connection must have exactly one of endpoint and endpoints: remove the other",
            ".endpoint",
        ),
        Rule(
            f"!has(self.endpoint) || !self.endpoint.matches({_URL_WITH_LOGIN})",
            "endpoint must not carry a password: put it into the Secret of credentialsRef",
            ".endpoint",
        ),
        Rule(
            f"!has(self.endpoints) || self.endpoints.all(url, !url.matches({_URL_WITH_LOGIN}))",
            "endpoints must not carry a password: put it into the Secret of credentialsRef",
            ".endpoints",
        ),
    )
