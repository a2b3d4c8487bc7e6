"""Reads first-boot data from the Secrets a machine names; the provider may read just those."""

import base64
import binascii
from collections.abc import Mapping

from pydantic import SecretBytes

from banlieue.api import names
from banlieue.api.reasons import Reason
from banlieue.api.resources import SECRETS, VM_IMAGES
from banlieue.api.v1alpha1.vmimage import BootstrapFormat, VMImage
from banlieue.sdk.driver import Bootstrap
from banlieue.sdk.errors import InvalidSpec, NeedsOperator
from banlieue.sdk.kube import Forbidden, Key, NotFound
from banlieue.sdk.machine.granted import not_granted
from banlieue.sdk.machine.scope import Scope
from banlieue.sdk.machine.vigil import ABSENT, REFUSED, version_of
from banlieue.sdk.seed.check import CLOUD_CONFIG, IGNITION, check

_DEFAULT_FORMAT = CLOUD_CONFIG
_FORMATS = (CLOUD_CONFIG, IGNITION)
_READERS = {
    BootstrapFormat.CLOUD_INIT: CLOUD_CONFIG,
    BootstrapFormat.IGNITION: IGNITION,
}


async def read_bootstrap(scope: Scope) -> Bootstrap:
    """The data the machine's first boot needs; empty when it asks for none.

    Raises:
        NeedsOperator: a Secret or key is missing, or nobody will grant it by himself.
        Transient: the provider may not read the Secret yet.
        InvalidSpec: the data cannot be decoded, its format is unknown or another than the image
            reads, or it is not what its format says.
    """
    spec = scope.machine.spec
    scope.memory.secrets.clear()
    keys = tuple(spec.ssh_authorized_keys)
    user_data, data_format = None, _read_by(scope) or _DEFAULT_FORMAT
    if spec.user_data is not None:
        name = spec.user_data.secret_ref.name
        data = await _secret(scope, name)
        user_data = _value(data, name, spec.user_data.key or names.BOOTSTRAP_DATA_KEY)
        data_format = _agreed(spec.user_data.format or _format(data, name), _read_by(scope), name)
    network_data = None
    if spec.network_data is not None:
        name = spec.network_data.secret_ref.name
        data = await _secret(scope, name)
        network_data = _value(data, name, spec.network_data.key or names.DEFAULT_NETWORK_DATA_KEY)
    bootstrap = Bootstrap(user_data, str(data_format), network_data, keys)
    check(bootstrap)
    return bootstrap


def _read_by(scope: Scope) -> str | None:
    """The format that the machine's image reads; None when it names no image that says so."""
    reference = scope.machine.spec.image_ref
    raw = scope.ctx.cache.get(VM_IMAGES, Key("", reference.name)) if reference else None
    return _READERS.get(VMImage.from_api(raw).spec.bootstrap) if raw else None


def _agreed(given: str | None, read: str | None, secret: str) -> str:
    """The format of the data, which has to be the one that the image reads."""
    if given is not None and read is not None and given != read:
        raise InvalidSpec(
            Reason.USER_DATA_INVALID,
            f"Secret {secret} is said to hold {given}, and the image reads {read}; "
            "correct the format, or the image's bootstrap",
        )
    return given or read or _DEFAULT_FORMAT


async def _secret(scope: Scope, name: str) -> Mapping[str, str]:
    namespace = scope.key.namespace
    try:
        secret = await scope.ctx.api.get(SECRETS, Key(namespace, name))
    except NotFound:
        scope.memory.secrets[name] = ABSENT
        raise NeedsOperator(
            Reason.USER_DATA_NOT_FOUND,
            f"Secret {name} does not exist in namespace {namespace}; create it",
        ) from None
    except Forbidden as refusal:
        scope.memory.secrets[name] = REFUSED
        raise not_granted(scope, name, refusal) from None
    scope.memory.secrets[name] = version_of(secret)
    data: Mapping[str, str] = secret.get("data") or {}
    return data


def _value(data: Mapping[str, str], secret: str, key: str) -> SecretBytes:
    if key not in data:
        raise NeedsOperator(
            Reason.USER_DATA_NOT_FOUND, f"Secret {secret} has no key {key!r}; add it"
        )
    try:
        return SecretBytes(base64.b64decode(data[key], validate=True))
    except binascii.Error:
        # The data must not be quoted, not even in an error about its shape.
        raise InvalidSpec(
            Reason.USER_DATA_INVALID, f"key {key!r} of Secret {secret} is not valid base64"
        ) from None


def _format(data: Mapping[str, str], secret: str) -> str | None:
    if names.BOOTSTRAP_FORMAT_KEY not in data:
        return None
    raw = _value(data, secret, names.BOOTSTRAP_FORMAT_KEY).get_secret_value()
    found = raw.decode(errors="replace").strip()
    if found not in _FORMATS:
        raise InvalidSpec(
            Reason.USER_DATA_INVALID,
            f"key {names.BOOTSTRAP_FORMAT_KEY!r} of Secret {secret} must be one of "
            f"{', '.join(_FORMATS)}",
        )
    return found
