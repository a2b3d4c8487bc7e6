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
    if source.kind is not SourceKind.URL:
        found = driver.find_image(source, where)
        if found is not None:
            return found
    if copy is None:
        return None
    imported = ImageSource(
        provider_class=source.provider_class, kind=SourceKind.TEMPLATE, ref=copy.name
    )
    return driver.find_image(imported, where)
