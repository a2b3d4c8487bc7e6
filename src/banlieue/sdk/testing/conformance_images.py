"""What a driver that imports images promises: verified, in one step, once, and gone when asked."""
# ruff: noqa: S101 - a test kit asserts

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import pytest

from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.vmimage import ImageSource
from banlieue.sdk.driver import FailureDomain
from banlieue.sdk.errors import InvalidSpec, NeedsOperator
from banlieue.sdk.image import lookup
from banlieue.sdk.image.ports import ImageImport, ImageImporter
from banlieue.sdk.testing.conformance_target import AnyDriver, Bench, Benched


class ImageConformance(Benched):
    """Only drivers that can import have anything to show here."""

    def test_an_import_ends_in_an_image_that_is_found(self, bench: Bench) -> None:
        driver, where = _importer(bench.driver), bench.target.failure_domain(bench.driver)
        content = bench.target.image_content()
        with _served(content) as url:
            wanted = _wanted(url, content)
            assert not _there(bench, wanted, where)
            first = driver.import_image(wanted, where)
            assert first is None or first.name == wanted.name
            bench.until("the import", lambda: driver.import_image(wanted, where) is None)
        assert _there(bench, wanted, where)
        assert driver.import_image(wanted, where) is None, "what is there is not imported again"
        bench.until("the deletion", lambda: driver.delete_image(wanted.name, where) is None)
        assert not _there(bench, wanted, where)
        assert driver.delete_image(wanted.name, where) is None, "what is gone is gone"

    def test_what_does_not_match_is_never_published(self, bench: Bench) -> None:
        driver, where = _importer(bench.driver), bench.target.failure_domain(bench.driver)
        content = bench.target.image_content()
        with _served(content) as url:
            wanted = _wanted(url, content + b"more")

            def refused() -> bool:
                try:
                    driver.import_image(wanted, where)
                except InvalidSpec as error:
                    return error.reason is Reason.IMAGE_CHECKSUM_MISMATCH
                return False

            bench.until("the refusal", refused)
        assert not _there(bench, wanted, where)

    def test_two_that_import_at_once_end_with_one_image(self, bench: Bench) -> None:
        where = bench.target.failure_domain(bench.driver)
        content = bench.target.image_content()
        target = bench.target
        with target.backend.connect(target.connection()) as other, _served(content) as url:
            wanted = _wanted(url, content)
            both = (_importer(bench.driver), _importer(other))
            for driver in both:
                driver.import_image(wanted, where)
            for driver in both:
                bench.until("both", partial(_published, driver, wanted, where))
        assert _there(bench, wanted, where)
        bench.until("the deletion", lambda: both[0].delete_image(wanted.name, where) is None)

    def test_what_was_not_imported_is_never_deleted(self, bench: Bench) -> None:
        driver, where = _importer(bench.driver), bench.target.failure_domain(bench.driver)
        source = bench.target.image_source()
        with pytest.raises(NeedsOperator):
            driver.delete_image(source.ref, where)
        assert bench.driver.find_image(source, where) is not None


def _importer(driver: AnyDriver) -> ImageImporter:
    if not isinstance(driver, ImageImporter):
        pytest.skip("the driver imports no images: it lacks those of sdk.image.ports.ImageImporter")
    return driver


def _wanted(url: str, content: bytes) -> ImageImport:
    digest = hashlib.sha256(content).hexdigest()
    return ImageImport(f"banlieue-{uuid4().hex[:12]}", url, f"sha256:{digest}")


def _published(driver: ImageImporter, wanted: ImageImport, where: FailureDomain) -> bool:
    return driver.import_image(wanted, where) is None


def _there(bench: Bench, wanted: ImageImport, where: FailureDomain) -> bool:
    source: ImageSource = bench.target.image_source()
    return lookup.find_copy(bench.driver, source, wanted, where) is not None


@contextmanager
def _served(content: bytes) -> Iterator[str]:
    """A URL on loopback that gives the content."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base names it
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/image"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
