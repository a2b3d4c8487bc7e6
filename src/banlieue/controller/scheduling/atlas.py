"""All Providers as the scheduler sees them, read once per change and not once per machine."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from banlieue.api.resources import NAMESPACES, PROVIDER_CLASSES, PROVIDERS
from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.api.v1alpha1.vmimage import VMImage
from banlieue.controller.scheduling import facts
from banlieue.controller.scheduling.placement import Claim, ImageState, Site
from banlieue.sdk import tenancy
from banlieue.sdk.kube import Key, ObjectReader

_MAX_VIEWS = 256


@dataclass(frozen=True, slots=True)
class _Page:
    """One Provider and what was made from it and its class, while neither is replaced."""

    revisions: tuple[object, object]
    provider: Provider
    class_key: Key
    site: Site
    views: dict[tuple[bool, str, ImageState | None], Site] = field(default_factory=dict)

    def seen(self, offer: facts.Offer, *, allowed: bool) -> Site:
        """The Provider for a namespace that may or may not use it, and for one image."""
        state = offer.at(self.site)
        view = (allowed, offer.image, state)
        if view not in self.views:
            if len(self.views) >= _MAX_VIEWS:
                self.views.clear()
            images = {offer.image: state} if state is not None else {}
            self.views[view] = replace(self.site, allowed=allowed, images=images)
        return self.views[view]

    def made_from(self, own: object, of_class: object) -> bool:
        return self.revisions[0] is own and self.revisions[1] is of_class


class Atlas:
    """Gives the Providers for a namespace and an image from a cache.

    Sites of a Provider that was not replaced share their failure domains, so what others keep by
    them stays valid.
    """

    def __init__(self, cache: ObjectReader) -> None:
        self._cache = cache
        self._pages: dict[Key, _Page] = {}

    def sites(self, image: VMImage | None, namespace: str) -> list[Site]:
        """All Providers as a namespace sees them."""
        return self._seen(self._read().values(), image, namespace)

    def site(self, provider: Key, image: VMImage | None, namespace: str) -> Site | None:
        """One Provider as a namespace sees it, None when there is none of that name."""
        page = self._read().get(provider)
        return self._seen((page,), image, namespace)[0] if page else None

    def claims(self) -> Iterator[tuple[Key, Claim]]:
        """VMs on all Providers that no machine object claims."""
        for key, page in self._read().items():
            for claim in page.site.claims:
                yield key, claim

    def _seen(self, pages: Iterable[_Page], image: VMImage | None, namespace: str) -> list[Site]:
        obj = self._cache.get(NAMESPACES, Key("", namespace))
        labels: Mapping[str, str] = (obj or {}).get("metadata", {}).get("labels") or {}
        offer = facts.Offer(image)
        return [
            page.seen(offer, allowed=tenancy.namespace_allowed(page.provider, namespace, labels))
            for page in pages
        ]

    def _read(self) -> dict[Key, _Page]:
        """Every Provider; only what changed is read again."""
        providers = self._cache.revisions(PROVIDERS)
        classes = self._cache.revisions(PROVIDER_CLASSES)
        fresh: dict[Key, _Page] = {}
        for key, revision in providers.items():
            page = self._pages.get(key)
            of_class = classes.get(page.class_key) if page else None
            if page is None or not page.made_from(revision, of_class):
                page = self._page(key, revision, classes)
            if page is not None:
                fresh[key] = page
        self._pages = fresh
        return fresh

    def _page(self, key: Key, revision: object, classes: Mapping[Key, object]) -> _Page | None:
        obj = self._cache.get(PROVIDERS, key)
        if obj is None:
            return None
        provider = Provider.from_api(obj)
        class_key = Key("", provider.spec.provider_class_ref.name)
        found = self._cache.get(PROVIDER_CLASSES, class_key)
        provider_class = ProviderClass.from_api(found) if found else None
        site = facts.site_for_anybody(provider, provider_class)
        return _Page((revision, classes.get(class_key)), provider, class_key, site)
