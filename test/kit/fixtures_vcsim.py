"""Fixtures with a simulated vCenter; a pytest plugin."""

from collections.abc import Iterator

import pytest

from test.kit.soapproxy import SoapProxy
from test.kit.vcsim import VCSim
from test.kit.vsphere_client import VSphereClient


@pytest.fixture
def vcsim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VCSim]:
    """A vCenter for one test, with the templates ubuntu and debian."""
    directory = tmp_path_factory.mktemp("vcsim")
    with VCSim(directory, templates=["ubuntu", "debian"]) as vcenter:
        yield vcenter


@pytest.fixture
def soap_proxy(vcsim: VCSim) -> Iterator[SoapProxy]:
    """A proxy in front of the test's vCenter."""
    with SoapProxy(vcsim.address) as proxy:
        yield proxy


@pytest.fixture
def vsphere(vcsim: VCSim) -> Iterator[VSphereClient]:
    """A session at the test's vCenter, past the proxy."""
    with VSphereClient(vcsim.url, ca_pem=vcsim.ca_pem) as client:
        yield client.login(vcsim.username, vcsim.password)
