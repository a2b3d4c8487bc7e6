"""Which source of an image is meant for a Provider. Pure."""

from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.vmimage import ImageSource, VMImage


def source_for(image: VMImage, backend: str, provider: Provider) -> ImageSource | None:
    """The image's source on a Provider: the one for its class, else the one for its backend."""
    by_class = {source.provider_class: source for source in image.spec.sources}
    return by_class.get(provider.spec.provider_class_ref.name) or by_class.get(backend)
