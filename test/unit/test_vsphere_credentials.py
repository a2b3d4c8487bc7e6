"""What is told of a Provider whose Secret lacks what a login needs."""

import pytest
from pydantic import SecretStr

from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.providers.vsphere.backend import BACKEND
from banlieue.sdk.driver import Connection
from banlieue.sdk.errors import NeedsOperator


@pytest.mark.parametrize("keys", [(), ("username",), ("password",)])
def test_a_secret_without_a_key_is_told_by_its_field_and_never_as_an_answer_of_the_endpoint(
    keys: tuple[str, ...],
) -> None:
    login = {key: SecretStr("0815") for key in keys}
    to = Connection("ns", "vc", ("https://127.0.0.1:1/sdk",), login, Capabilities())
    with pytest.raises(NeedsOperator) as failure, BACKEND.connect(to):
        pass
    assert failure.value.reason is Reason.SECRET_INVALID
    assert "spec.connection.credentialsRef" in failure.value.message
