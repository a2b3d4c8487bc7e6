"""The operator role: which controllers there are, and what it does when it starts."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from banlieue.api import names
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.operator import classes
from banlieue.operator.class_status import ClassStatusReconciler
from banlieue.operator.grants_roles import GrantsReconciler
from banlieue.operator.hands import Hands
from banlieue.operator.in_use import InUseReconciler
from banlieue.operator.index import Index
from banlieue.operator.objects import Surroundings
from banlieue.operator.provider import WorkloadReconciler
from banlieue.operator.scope import Services
from banlieue.sdk.reconcile import Context, Controller
from banlieue.sdk.runtime.process import Process


@dataclass(frozen=True, slots=True)
class Settings:
    """How the role is run.

    `image` is what providers run where their class does not say, empty for the operator's own;
    `classes` are made when they are missing at the start.
    """

    namespace: str = names.SYSTEM_NAMESPACE
    image: str = ""
    classes: Sequence[ProviderClass] = field(default=())


def build(process: Process, settings: Settings) -> None:
    """Add the controllers of the operator role to a process; nothing is started here."""
    role = OperatorRole(process.context, settings)
    process.on_start(role.prepare)
    for controller in role.controllers():
        process.add_controller(controller)


class OperatorRole:
    """The controllers over one context; a test may run them without a process."""

    def __init__(self, ctx: Context, settings: Settings) -> None:
        self._ctx = ctx
        self._settings = settings
        around = Surroundings(settings.namespace, settings.image)
        self.services = Services(ctx, Hands(ctx.api), Index(ctx.cache), around)

    def controllers(self) -> tuple[Controller, ...]:
        """Everything the role runs."""
        return (
            WorkloadReconciler(self.services).controller(),
            InUseReconciler(self._ctx).controller(),
            ClassStatusReconciler(self._ctx).controller(),
            GrantsReconciler(self.services).controller(),
        )

    async def prepare(self) -> None:
        """Learn the own image, and make the default classes that are missing.

        Raises:
            Unavailable: the API server or our kinds are not there yet; call again.
        """
        if not self._settings.image:
            found = await classes.own_image(self._ctx.api, self._settings.namespace)
            self.services.around = replace(self.services.around, image=found)
        await classes.make_missing(self._ctx.api, self._settings.classes)
