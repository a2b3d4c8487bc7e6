"""Says for every image whether the Providers served here have it, each in its own row.

What a Provider lacks and can import, it imports; what it imported is deleted with the image.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from banlieue.api import names
from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDERS, VM_IMAGES
from banlieue.api.v1alpha1.vmimage import ImageSource, ProviderImageStatus, VMImage
from banlieue.sdk import installation
from banlieue.sdk.backend import Backend
from banlieue.sdk.driver import Driver, FailureDomain, Image
from banlieue.sdk.errors import DriverError, InvalidSpec, NeedsOperator
from banlieue.sdk.image import imports, lookup, rows
from banlieue.sdk.image.imports import Memory, Step
from banlieue.sdk.image.ports import ImageImport, ImageImporter
from banlieue.sdk.image.rows import Places
from banlieue.sdk.image.sources import import_of, source_for, url_of
from banlieue.sdk.kube import STATUS, Key, Obj
from banlieue.sdk.patches import patch_unchanged
from banlieue.sdk.provider.ports import OpenProvider, OpenProviders
from banlieue.sdk.reconcile import Context, Result

CONTROLLER = "image"
"""Name of the controller in queues, logs and metrics."""

_REFRESH_SECONDS = 600.0
_RETRY_SECONDS = 30.0
_HELD_SECONDS = 5.0


@dataclass(slots=True)
class ImageReconciler:
    """Keeps the VMImage rows of the Providers served here."""

    ctx: Context
    backend: Backend[Any]
    providers: OpenProviders
    installation_namespace: str = names.SYSTEM_NAMESPACE
    _memories: dict[tuple[Key, Key], Memory] = field(default_factory=dict)

    async def reconcile(self, key: Key) -> Result:
        """Look one image up on every Provider served here."""
        raw = self.ctx.cache.get(VM_IMAGES, key)
        if raw is None:
            self._forget(key)
            return Result()
        image = VMImage.from_api(raw)
        leaving = image.metadata.deletion_timestamp is not None
        pauses = [_REFRESH_SECONDS * self.ctx.rng.uniform(0.8, 1.2)]
        for obj in self.ctx.cache.list(PROVIDERS):
            opened = self.providers.open(Key.of(obj))
            if opened is not None:
                served = _Pass(self, raw, image, opened)
                pauses.append(await (served.leave() if leaving else served.look()))
            elif self.providers.provider(Key.of(obj)) is not None:
                pauses.append(self.soon)  # served here, and not reached yet
        return Result(None if leaving and len(pauses) == 1 else min(pauses))

    @property
    def soon(self) -> float:
        """Seconds until what could not be asked is asked again."""
        return _RETRY_SECONDS * self.ctx.rng.uniform(0.8, 1.2)

    def memory(self, image: Key, provider: Key) -> Memory:
        """What this process remembers of the image's import there."""
        return self._memories.setdefault((image, provider), Memory())

    def _forget(self, image: Key) -> None:
        for known in [it for it in self._memories if it[0] == image]:
            del self._memories[known]


@dataclass(slots=True)
class _Pass:
    """One image on one Provider."""

    on: ImageReconciler
    raw: Obj
    image: VMImage
    opened: OpenProvider

    async def look(self) -> float:
        """Write the Provider's row if it changed; gives the seconds until it is to be looked at.

        Not being able to ask changes no fact about the image: what was known stays in the row.
        """
        source = source_for(self.image, self.on.backend.name, self.opened.provider)
        if source is None:
            return _REFRESH_SECONDS
        copy = await self._copy(source)
        known = rows.row_of(self.image, self.opened.provider)
        try:
            places = await self._places(source, copy)
        except InvalidSpec as error:
            row = rows.empty(self.opened.provider, known)
            rows.fails(row, error)
            await self._write(known, row)
            return _REFRESH_SECONDS
        except DriverError:
            return self.on.soon
        if places.nameless:
            return self.on.soon
        row = rows.of_places(self.opened.provider, known, source, places, copy)
        if copy is None or not places.lacking or not places.imports or places.problems:
            await self._write(known, row)
            return _REFRESH_SECONDS
        return await self._bring(known, row, places, copy)

    async def _bring(
        self,
        known: ProviderImageStatus | None,
        row: ProviderImageStatus,
        places: Places,
        copy: ImageImport,
    ) -> float:
        """Import what is lacking, as far as one pass goes."""
        if not imports.is_held(self.image):
            return _HELD_SECONDS
        hindered = imports.hindrance(self.opened, row, copy)
        if hindered is not None:
            rows.waits(row, *hindered)
            await self._write(known, row)
            return self.on.soon
        memory = self.on.memory(Key.of(self.raw), self._provider)
        step = Step(self.on.ctx, self.opened, row, places, copy, memory)
        if imports.begin(step):
            if known is None or copy.name not in known.copies:
                await self._write(known, row)
                known = row.model_copy(deep=True)
            try:
                await imports.advance(step)
            except DriverError:
                return self.on.soon
        await self._write(known, row)
        return self.on.soon if step.after is None else step.after

    async def leave(self) -> float:
        """Delete what was imported, once nothing is made from the image any more."""
        known = rows.row_of(self.image, self.opened.provider)
        if known is None or not known.copies:
            return _REFRESH_SECONDS
        if not imports.may_delete(self.image) or not self.opened.writable:
            return self.on.soon
        if self._is_used():
            return _HELD_SECONDS  # the last machine goes about when the finalizer does
        found = await installation.read_live(self.on.ctx.api, self.on.installation_namespace)
        if found is None or not found.confirmed:
            return self.on.soon
        row = rows.empty(self.opened.provider, known)
        try:
            after = await imports.remove(self.opened, row)
        except DriverError:
            return self.on.soon
        await self._write(known, row)
        return _REFRESH_SECONDS if after is None else after

    def _is_used(self) -> bool:
        """Whether a machine of this Provider is made from the image, or may be for all we know."""
        cache, kind = self.on.ctx.cache, self.on.backend.machine
        name = self.image.metadata.name
        return not cache.synced(kind) or any(
            ((obj.get("spec") or {}).get("imageRef") or {}).get("name") == name
            for obj in cache.list(kind)
        )

    @property
    def _provider(self) -> Key:
        meta = self.opened.provider.metadata
        return Key(meta.namespace or "", meta.name)

    async def _copy(self, source: ImageSource) -> ImageImport | None:
        """What an import would make; None when there is nothing to import from."""
        if url_of(source) is None:
            return None
        found = await installation.read_live(self.on.ctx.api, self.on.installation_namespace)
        if found is None or not found.confirmed:
            return None
        return import_of(self.image, source, self.opened.provider, found.id)

    async def _places(self, source: ImageSource, copy: ImageImport | None) -> Places:
        def look(driver: Driver[Any]) -> Places:
            found: list[tuple[FailureDomain, Image | None]] = []
            problems: list[str] = []
            copied = False
            for where in driver.failure_domains():
                image, problem = _own(driver, source, where)
                problems += [problem] if problem else []
                if image is None:
                    image = lookup.find_copy(driver, source, copy, where)
                    copied = copied or image is not None
                found.append((where, image))
            can_import = isinstance(driver, ImageImporter)
            return Places(found, {}, can_import, copied, tuple(dict.fromkeys(problems)))

        places = await self.opened.call(look)
        named = {where.id: self.opened.domain_name(where.id) for where, _ in places.found}
        known = {identity: name for identity, name in named.items() if name}
        return replace(places, names=known)

    async def _write(self, known: ProviderImageStatus | None, row: ProviderImageStatus) -> None:
        if known == row:
            return
        backend, provider = self.on.backend.name, self._provider
        body = {
            "apiVersion": VM_IMAGES.api_version,
            "kind": VM_IMAGES.kind,
            "metadata": {"name": self.raw["metadata"]["name"]},
            "status": {"perProvider": [row.to_api()]},
        }
        manager = names.provider_manager(backend, provider.namespace, provider.name)
        answer = await self.on.ctx.api.apply(VM_IMAGES, body, manager=manager, subresource=STATUS)
        leftovers = rows.leftovers(answer, row)
        if leftovers:
            # After a restore or an edit by hand somebody else owns fields that an apply leaves.
            await patch_unchanged(
                self.on.ctx.api, VM_IMAGES, answer, leftovers, manager=manager, subresource=STATUS
            )
        said = rows.note(known, row)
        if said is not None:
            self.on.ctx.recorder.event(self.raw, said.reason, said.message, warning=said.warning)


def _own(
    driver: Driver[Any], source: ImageSource, where: FailureDomain
) -> tuple[Image | None, str]:
    """What an admin put into a place, or what is wrong with it there alone."""
    try:
        return lookup.find_own(driver, source, where), ""
    except NeedsOperator as error:
        if error.reason is not Reason.IMAGE_NOT_AVAILABLE:
            raise
        return None, error.message
