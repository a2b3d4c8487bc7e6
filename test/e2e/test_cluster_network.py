"""Who reaches whom: pods, Services, and what listens on this host. The same on every cluster."""

import re
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from hack.cluster.interface import Cluster
from hack.images.archive import StaticImage, write_archive
from test.kit.tools import tool
from test.kit.waiting import wait_until

IMAGE = "localhost/network-kubectl:1"
ANSWER = '{"answer": "from the host"}'

Kubectl = Callable[..., str]


class Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(ANSWER.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """The test says enough."""


@pytest.fixture
def pod(
    cluster: Cluster, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> Iterator[Callable[..., str]]:
    """Runs kubectl in a pod that serves the API server's answers on port 8001."""
    archive = tmp_path / "kubectl.tar"
    write_archive(StaticImage(IMAGE, tool("kubectl"), "/kubectl"), archive)
    cluster.load(archive)
    account = ("get", "serviceaccount", "default", "-n", namespace)
    wait_until(lambda: kubectl(*account), 60, "its account", retry_on=(AssertionError,))
    serve = ("--", "proxy", "--address=0.0.0.0", "--port=8001", "--accept-hosts=.*")
    labels = f"--labels=app={namespace}"
    policy = "--image-pull-policy=Never"
    kubectl(
        "run", "pod", "-n", namespace, f"--image={IMAGE}", policy, labels, "--port=8001", *serve
    )
    kubectl("wait", "--for=condition=Ready", "pod/pod", "-n", namespace, "--timeout=120s")
    yield lambda *arguments: kubectl("exec", "pod", "-n", namespace, "--", "/kubectl", *arguments)
    kubectl("delete", "pod", "pod", "-n", namespace, "--now")


def test_a_service_reaches_its_pods(
    pod: Callable[..., str], kubectl: Kubectl, namespace: str
) -> None:
    kubectl("expose", "pod", "pod", "-n", namespace, "--port=80", "--target-port=8001")
    address = kubectl("get", "service", "pod", "-n", namespace, "-o=jsonpath={.spec.clusterIP}")
    said = wait_until(
        lambda: pod("get", "--raw=/version", f"--server=http://{address}"),
        60,
        "the Service",
        retry_on=(AssertionError,),
    )
    assert re.search(r'"gitVersion": "v1\.', said)


def test_pods_reach_what_listens_on_this_host(pod: Callable[..., str], cluster: Cluster) -> None:
    with ThreadingHTTPServer((cluster.host_address, 0), Answering) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://{cluster.host_address}:{server.server_port}"
            assert pod("get", "--raw=/", f"--server={url}") == ANSWER
        finally:
            server.shutdown()
            thread.join()
