"""How an image is found on a backend: what an admin put there first, then what was imported."""

from typing import Any

from banlieue.api.v1alpha1.vmimage import ImageSource, SourceKind
from banlieue.sdk.driver import Driver, FailureDomain, Image
from banlieue.sdk.image.ports import ImageImport


def find(
    driver: Driver[Any], source: ImageSource, copy: ImageImport | None, where: FailureDomain
) -> Image | None:
    """The image in a failure domain, None when it is not there.

    Raises:
        DriverError: the backend could not be asked.
    """
    return find_own(driver, source, where) or find_copy(driver, source, copy, where)


def find_own(driver: Driver[Any], source: ImageSource, where: FailureDomain) -> Image | None:
    """What an admin put there under the source's name. Raises like `find`."""
    return None if source.kind is SourceKind.URL else driver.find_image(source, where)


def find_copy(
    driver: Driver[Any], source: ImageSource, copy: ImageImport | None, where: FailureDomain
) -> Image | None:
    """What was imported. Raises like `find`."""
    if copy is None:
        return None
    imported = ImageSource(
        provider_class=source.provider_class, kind=SourceKind.TEMPLATE, ref=copy.name
    )
    return driver.find_image(imported, where)
