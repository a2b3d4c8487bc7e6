"""Reads first-boot data from the Secrets a machine names; the provider may read just those."""

import base64
import binascii
import re
from collections.abc import Mapping

from pydantic import SecretBytes

from banlieue.api import names
from banlieue.api.reasons import Reason
from banlieue.api.resources import SECRETS
from banlieue.sdk.driver import Bootstrap
from banlieue.sdk.errors import InvalidSpec, NeedsOperator, Transient
from banlieue.sdk.kube import Forbidden, Key, NotFound
from banlieue.sdk.machine.scope import Scope

_DEFAULT_FORMAT = "cloud-config"
_FORMATS = ("cloud-config", "ignition")
_ACCOUNT = re.compile(r"system:serviceaccount:(?P<namespace>[^:\s\"]+):(?P<name>[^:\s\"]+)")


async def read_bootstrap(scope: Scope) -> Bootstrap:
    """The data the machine's first boot needs; empty when it asks for none.

    Raises:
        NeedsOperator: a Secret or key is missing.
        Transient: the provider may not read the Secret yet.
        InvalidSpec: the data cannot be decoded, or its format is unknown.
    """
    spec = scope.machine.spec
    keys = tuple(spec.ssh_authorized_keys)
    user_data, data_format = None, _DEFAULT_FORMAT
    if spec.user_data is not None:
        name = spec.user_data.secret_ref.name
        data = await _secret(scope, name)
        user_data = _value(data, name, spec.user_data.key or names.BOOTSTRAP_DATA_KEY)
        data_format = spec.user_data.format or _format(data, name)
    network_data = None
    if spec.network_data is not None:
        name = spec.network_data.secret_ref.name
        data = await _secret(scope, name)
        network_data = _value(data, name, spec.network_data.key or names.DEFAULT_NETWORK_DATA_KEY)
    return Bootstrap(user_data, str(data_format), network_data, keys)


async def _secret(scope: Scope, name: str) -> Mapping[str, str]:
    namespace = scope.key.namespace
    try:
        secret = await scope.ctx.api.get(SECRETS, Key(namespace, name))
    except NotFound:
        raise NeedsOperator(
            Reason.USER_DATA_NOT_FOUND,
            f"Secret {name} does not exist in namespace {namespace}; create it",
        ) from None
    except Forbidden as refusal:
        raise Transient(
            Reason.WAITING_FOR_GRANT,
            f"the provider may not read Secret {name} yet; bind a Role in namespace {namespace} "
            f"that lets {_account(refusal)} get it",
        ) from None
    data: Mapping[str, str] = secret.get("data") or {}
    return data


def _account(refusal: Forbidden) -> str:
    """Who was refused, as the API server names him; only it knows for certain who we are."""
    found = _ACCOUNT.search(refusal.message)
    return f"ServiceAccount {found['namespace']}/{found['name']}" if found else "its ServiceAccount"


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


def _format(data: Mapping[str, str], secret: str) -> str:
    if names.BOOTSTRAP_FORMAT_KEY not in data:
        return _DEFAULT_FORMAT
    raw = _value(data, secret, names.BOOTSTRAP_FORMAT_KEY).get_secret_value()
    found = raw.decode(errors="replace").strip()
    if found not in _FORMATS:
        raise InvalidSpec(
            Reason.USER_DATA_INVALID,
            f"key {names.BOOTSTRAP_FORMAT_KEY!r} of Secret {secret} must be one of "
            f"{', '.join(_FORMATS)}",
        )
    return found
