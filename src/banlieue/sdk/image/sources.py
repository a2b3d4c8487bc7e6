"""Which source of an image is meant for a Provider, and what it is called there. Pure."""

import hashlib

from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.vmimage import ImageSource, SourceKind, VMImage
from banlieue.sdk.image.ports import ImageImport


def source_for(image: VMImage, backend: str, provider: Provider) -> ImageSource | None:
    """The image's source on a Provider: the one for its class, else the one for its backend."""
    by_class = {source.provider_class: source for source in image.spec.sources}
    return by_class.get(provider.spec.provider_class_ref.name) or by_class.get(backend)


def url_of(source: ImageSource) -> str | None:
    """Where the source can be imported from; None when it can only be found."""
    return source.ref if source.kind is SourceKind.URL else source.import_from


def is_importable(image: VMImage) -> bool:
    """Whether any Provider may have to import it."""
    return any(url_of(source) for source in image.spec.sources)


def import_of(
    image: VMImage, source: ImageSource, provider: Provider, installation_id: str
) -> ImageImport | None:
    """The import a Provider would make of a source; None when there is nothing to import from.

    The name tells the digest, and whose copy it is: of this image, Provider and installation. So a
    copy is found again after any restore, and deleting it takes nothing from anybody else.
    """
    url = url_of(source)
    if url is None or source.checksum is None:
        return None
    meta = provider.metadata
    whose = "\0".join((installation_id, meta.namespace or "", meta.name, image.metadata.name))
    digest = hashlib.sha256(source.checksum.encode()).hexdigest()[:12]
    mine = hashlib.sha256(whose.encode()).hexdigest()[:12]
    firmware = image.spec.firmware[0].value if image.spec.firmware else None
    return ImageImport(f"banlieue-{digest}-{mine}", url, source.checksum, firmware)
