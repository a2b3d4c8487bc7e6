"""From a Provider and the objects it names to a driver's `Connection`, every mistake explained.

Everything here is pure; the caller reads the objects `sources` names.
"""

import base64
import binascii
import hashlib
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import SecretStr

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.reasons import Reason
from banlieue.api.resources import CONFIG_MAPS, SECRETS
from banlieue.api.v1alpha1.provider import CaBundle, Provider
from banlieue.sdk.driver import Connection
from banlieue.sdk.kube import Key, Obj

Source = tuple[Resource, Key]

_THUMBPRINT = re.compile(r"[0-9a-f]{64}")


class ConnectionInvalid(Exception):
    """The Provider cannot be connected to as it is written.

    Attributes:
        reason: the reason its Ready condition gets.
        message: names field and remedy; never shows a credential.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Sources:
    """The objects a Provider's connection is made of, as references."""

    credentials: Source | None
    ca: Source | None

    def all(self) -> tuple[Source, ...]:
        """Those that are named, each once."""
        return tuple(dict.fromkeys(s for s in (self.credentials, self.ca) if s is not None))


def sources(provider: Provider) -> Sources:
    """Which Secrets and ConfigMap the Provider names; all of them in its own namespace."""
    namespace = provider.metadata.namespace or ""
    to = provider.spec.connection
    ca: Source | None = None
    if to.ca_bundle and to.ca_bundle.config_map_ref:
        ca = CONFIG_MAPS, Key(namespace, to.ca_bundle.config_map_ref.name)
    elif to.ca_bundle and to.ca_bundle.secret_ref:
        ca = SECRETS, Key(namespace, to.ca_bundle.secret_ref.name)
    credentials = to.credentials_ref
    return Sources((SECRETS, Key(namespace, credentials.name)) if credentials else None, ca)


def make_connection(provider: Provider, objects: Mapping[Source, Obj | None]) -> Connection:
    """What the driver needs to log in.

    Args:
        provider: the Provider.
        objects: what `sources` names, None for what does not exist.

    Raises:
        ConnectionInvalid: the first mistake found.
    """
    to, needed = provider.spec.connection, sources(provider)
    return Connection(
        provider_namespace=provider.metadata.namespace or "",
        provider_name=provider.metadata.name,
        endpoints=_endpoints(provider),
        credentials=_credentials(needed.credentials, objects),
        capabilities=provider.spec.capabilities,
        settings=dict(provider.spec.settings),
        ca_bundle=_ca_bundle(to.ca_bundle, needed.ca, objects),
        thumbprints=tuple(map(_thumbprint, to.thumbprints)),
        insecure_skip_tls_verify=to.insecure_skip_tls_verify,
    )


def login_digest(connection: Connection) -> str:
    """A digest of all that decides whether a login succeeds; kept in memory only.

    Two connections with the same digest get the same answer from the same endpoint, so a refused
    one is not tried again at once.
    """
    digest = hashlib.sha256()
    for part in (
        *connection.endpoints,
        connection.ca_bundle or "",
        *sorted(connection.thumbprints),
        str(connection.insecure_skip_tls_verify),
    ):
        digest.update(part.encode() + b"\0")
    for key, value in sorted(connection.credentials.items()):
        digest.update(key.encode() + b"\0" + value.get_secret_value().encode() + b"\0")
    return digest.hexdigest()


def session_digest(connection: Connection) -> str:
    """A digest of all a session is opened with; another one asks for a new session."""
    declared = connection.capabilities.model_dump_json()
    settings = sorted(connection.settings.items())
    text = f"{login_digest(connection)}{declared}{settings}"
    return hashlib.sha256(text.encode()).hexdigest()


def _endpoints(provider: Provider) -> tuple[str, ...]:
    to = provider.spec.connection
    found = tuple(filter(None, (to.endpoint, *to.endpoints)))
    if not found or (to.endpoint and to.endpoints):
        raise ConnectionInvalid(
            Reason.INVALID_CONFIGURATION,
            "spec.connection: give exactly one of endpoint and endpoints",
        )
    for url in found:
        _check_url("endpoint" if to.endpoint else "endpoints", url)
    return found


def _check_url(field: str, url: str) -> None:
    where = f"spec.connection.{field}"
    try:
        parts = urlsplit(url)
        password, complete = parts.password, bool(parts.hostname or parts.path.strip("/"))
        _ = parts.port
    except ValueError:
        # The text stays out of the message, as a broken URL may hold a password anywhere.
        raise ConnectionInvalid(
            Reason.INVALID_CONFIGURATION, f"{where}: not a URL; write it like https://host/path"
        ) from None
    if password is not None:
        raise ConnectionInvalid(
            Reason.INVALID_CONFIGURATION,
            f"{where}: holds a password; put it into the Secret of credentialsRef",
        )
    if not parts.scheme or not complete or any(char.isspace() for char in url):
        raise ConnectionInvalid(
            Reason.INVALID_CONFIGURATION,
            f"{where}: {url!r} is no complete URL; write it like https://host/path",
        )


def _credentials(
    source: Source | None, objects: Mapping[Source, Obj | None]
) -> dict[str, SecretStr]:
    if source is None:
        return {}
    obj = objects.get(source)
    if obj is None:
        raise ConnectionInvalid(
            Reason.SECRET_MISSING,
            f"spec.connection.credentialsRef: Secret {source[1]} does not exist; create it",
        )
    found: dict[str, SecretStr] = {}
    for key, text in sorted((obj.get("data") or {}).items()):
        try:
            # Editors and `base64` without -n leave a line end that no password contains.
            value = base64.b64decode(text, validate=True).decode().rstrip("\r\n")
        except (binascii.Error, ValueError):
            raise ConnectionInvalid(
                Reason.SECRET_INVALID,
                f"Secret {source[1]}: key {key!r} is not text in UTF-8; correct it",
            ) from None
        found[key] = SecretStr(value)
    if not found:
        raise ConnectionInvalid(
            Reason.SECRET_INVALID,
            f"Secret {source[1]} has no keys; add those the backend's documentation names",
        )
    return found


def _ca_bundle(
    bundle: CaBundle | None, source: Source | None, objects: Mapping[Source, Obj | None]
) -> str | None:
    if bundle is None:
        return None
    given = (bundle.inline, bundle.config_map_ref, bundle.secret_ref)
    if sum(part is not None for part in given) != 1:
        raise ConnectionInvalid(
            Reason.INVALID_CONFIGURATION,
            "spec.connection.caBundle: give exactly one of inline, configMapRef and secretRef",
        )
    if bundle.inline is not None:
        return _check_pem("spec.connection.caBundle.inline", bundle.inline)
    ref = bundle.config_map_ref or bundle.secret_ref
    if source is None or ref is None:
        return None  # not reached: one of the three is given
    resource, key = source
    field = ref.key or names.DEFAULT_CA_KEY
    where = f"{resource.kind} {key}, key {field!r}"
    text = ((objects.get(source) or {}).get("data") or {}).get(field)
    if text is None:
        raise ConnectionInvalid(
            Reason.CA_BUNDLE_MISSING,
            f"spec.connection.caBundle: {where} does not exist; create it or correct the reference",
        )
    if resource == SECRETS:
        try:
            text = base64.b64decode(text, validate=True).decode()
        except (binascii.Error, ValueError):
            text = ""
    return _check_pem(where, str(text))


def _check_pem(where: str, text: str) -> str:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise ConnectionInvalid(
            Reason.PROVIDER_TLS_INVALID,
            f"{where}: holds no readable PEM certificates; put the CA's there",
        ) from None
    return text


def _thumbprint(text: str) -> str:
    bare = text.replace(":", "").strip().lower()
    if not _THUMBPRINT.fullmatch(bare):
        raise ConnectionInvalid(
            Reason.INVALID_CONFIGURATION,
            "spec.connection.thumbprints: a thumbprint is the SHA-256 of the certificate, "
            "64 hexadecimal digits with or without colons",
        )
    return bare
