"""Says for every image whether the Providers served here have it, each in its own row."""

from dataclasses import dataclass
from typing import Any

from banlieue.api import names
from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDERS, VM_IMAGES
from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.vmimage import ImageSource, ProviderImageStatus, VMImage
from banlieue.sdk.driver import Backend, Driver, FailureDomain, Image
from banlieue.sdk.errors import DriverError
from banlieue.sdk.image.sources import source_for
from banlieue.sdk.kube import STATUS, Key, Obj
from banlieue.sdk.provider.ports import OpenProvider, OpenProviders
from banlieue.sdk.reconcile import Context, Result

CONTROLLER = "image"
"""Name of the controller in queues, logs and metrics."""

_REFRESH_SECONDS = 600.0
_RETRY_SECONDS = 30.0


@dataclass(slots=True)
class ImageReconciler:
    """Keeps the VMImage rows of the Providers served here."""

    ctx: Context
    backend: Backend[Any]
    providers: OpenProviders

    async def reconcile(self, key: Key) -> Result:
        """Look one image up on every Provider served here."""
        raw = self.ctx.cache.get(VM_IMAGES, key)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            return Result()
        image = VMImage.from_api(raw)
        settled = True
        for obj in self.ctx.cache.list(PROVIDERS):
            opened = self.providers.open(Key.of(obj))
            if opened is not None:
                settled &= await self._row(raw, image, opened)
            elif self.providers.provider(Key.of(obj)) is not None:
                settled = False  # served here, and not reached yet
        spread = self.ctx.rng.uniform(0.8, 1.2)
        return Result((_REFRESH_SECONDS if settled else _RETRY_SECONDS) * spread)

    async def _row(self, raw: Obj, image: VMImage, opened: OpenProvider) -> bool:
        """Write one Provider's row if it changed; False when the backend could not be asked."""
        provider = opened.provider
        source = source_for(image, self.backend.name, provider)
        if source is None:
            return True
        try:
            row = await self._look(opened, source)
        except DriverError:
            # What was known stays in the row: not being able to ask changes no fact about it.
            return False
        if _row_of(image, provider) != row:
            body = {
                "apiVersion": VM_IMAGES.api_version,
                "kind": VM_IMAGES.kind,
                "metadata": {"name": raw["metadata"]["name"]},
                "status": {"perProvider": [row.to_api()]},
            }
            manager = names.provider_manager(
                self.backend.name, provider.metadata.namespace or "", provider.metadata.name
            )
            await self.ctx.api.apply(VM_IMAGES, body, manager=manager, subresource=STATUS)
        return True

    async def _look(self, opened: OpenProvider, source: ImageSource) -> ProviderImageStatus:
        def look(driver: Driver[Any]) -> list[tuple[FailureDomain, Image | None]]:
            return [(where, driver.find_image(source, where)) for where in driver.failure_domains()]

        found = await opened.call(look)
        provider = opened.provider.metadata
        row = ProviderImageStatus(
            provider_namespace=provider.namespace or "", provider_name=provider.name, ready=False
        )
        lacking = [where for where, image in found if image is None]
        if len(lacking) < len(found):
            row.ready = True
            row.resolved_ref = next(image.handle for _, image in found if image is not None)
        if lacking:
            places = ", ".join(sorted(opened.domain_name(w.id) or w.id for w in lacking)[:5])
            row.reason = Reason.IMAGE_NOT_AVAILABLE
            row.message = f"{source.kind.value} {source.ref!r} was not found in {places}"
        elif not found:
            row.reason = Reason.NO_FAILURE_DOMAIN_MATCHED
            row.message = "the Provider has no failure domain to look in"
        return row


def _row_of(image: VMImage, provider: Provider) -> ProviderImageStatus | None:
    mine = (provider.metadata.namespace, provider.metadata.name)
    for row in image.status.per_provider:
        if (row.provider_namespace, row.provider_name) == mine:
            return row
    return None
