"""Where VirtualMachines would be placed now, by the scheduler itself and without a write."""

from dataclasses import dataclass

from banlieue.api.resources import VIRTUAL_MACHINES, VM_CLASSES, VM_IMAGES
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.api.v1alpha1.vmclass import VMClass
from banlieue.api.v1alpha1.vmimage import VMImage
from banlieue.controller.capi import berths
from banlieue.controller.infra import devices
from banlieue.controller.infra.kinds import named_kinds
from banlieue.controller.scheduling import census, facts
from banlieue.controller.scheduling.atlas import Atlas
from banlieue.controller.scheduling.crowd import Crowd
from banlieue.controller.scheduling.placement import Decision, Place, Placed, Survey
from banlieue.controller.scheduling.placing import place
from banlieue.controller.scheduling.scheduler import survey
from banlieue.sdk.kube import Key, ObjectReader


class BadInput(Exception):
    """The VirtualMachine cannot be looked at as it is; the message names field and remedy."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the controller would decide.

    Attributes:
        key: the VirtualMachine.
        decision: its place, or why it has none.
        survey: every candidate; only for information when the machine has a past.
        before: where a machine of this name was placed already, None when it was not.
    """

    key: Key
    decision: Decision
    survey: Survey
    before: Place | None = None


class DryRun:
    """Places one VirtualMachine after the other; each counts for those after it.

    Args:
        reader: Providers with their classes, images, classes, namespaces, VirtualMachines, and
            machines of Cluster API of the kinds the Providers' classes name.
        installation_id: as in ConfigMap `banlieue-installation`; empty when it is not known, so
            that Providers' figures are taken to count every machine that was seen on a backend.
        recovery: whether the installation is in recovery.
    """

    def __init__(
        self, reader: ObjectReader, *, installation_id: str = "", recovery: bool = False
    ) -> None:
        self._reader = reader
        self._installation_id = installation_id
        self._recovery = recovery
        self._atlas = Atlas(reader)
        self._crowd = Crowd(census.residents(reader, installation_id))
        for resident in berths.residents(reader, named_kinds(reader), installation_id):
            self._crowd.put(resident)

    def check(self, vm: VirtualMachine) -> None:
        """Refuse what no Provider could make into a machine.

        Raises:
            BadInput: class or image is missing, or they and the object contradict each other.
        """
        self._inputs(vm)

    def place(self, vm: VirtualMachine) -> Verdict:
        """Decide as the controller would, and count the machine at its place from now on.

        Raises:
            BadInput: as `check`.
        """
        vm_class, image = self._inputs(vm)
        wanted = facts.demand(vm, vm_class, image, installation_id=self._installation_id)
        sites = self._atlas.sites(image, wanted.key.namespace)
        before = self._before(wanted.key)
        decision = place(wanted, sites, self._crowd, before=before, recovery=self._recovery)
        surveyed = survey(wanted, sites, self._crowd)
        if isinstance(decision, Placed):
            self._crowd.put(facts.promised(wanted, decision.place))
        return Verdict(wanted.key, decision, surveyed, before)

    def _inputs(self, vm: VirtualMachine) -> tuple[VMClass, VMImage]:
        spec = vm.spec
        if spec.adopt is not None:
            raise BadInput(
                "spec.adopt takes over a machine that is somewhere already; there is nothing to "
                "place"
            )
        if spec.class_ref is None or spec.image_ref is None:
            missing = "classRef" if spec.class_ref is None else "imageRef"
            raise BadInput(f"spec.{missing} is required; name one")
        found = self._reader.get(VM_CLASSES, Key("", spec.class_ref.name))
        if found is None:
            raise BadInput(
                f"spec.classRef: VMClass {spec.class_ref.name} does not exist; "
                f"{_others(self._names(VMClass))}"
            )
        pictured = self._reader.get(VM_IMAGES, Key("", spec.image_ref.name))
        if pictured is None:
            raise BadInput(
                f"spec.imageRef: VMImage {spec.image_ref.name} does not exist; "
                f"{_others(self._names(VMImage))}"
            )
        vm_class = VMClass.from_api(found)
        problem = devices.problem(vm_class.spec, spec)
        if problem is not None:
            raise BadInput(problem)
        return vm_class, VMImage.from_api(pictured)

    def _names(self, kind: type[VMClass] | type[VMImage]) -> list[str]:
        return [Key.of(obj).name for obj in self._reader.list(kind.resource)]

    def _before(self, key: Key) -> Place | None:
        obj = self._reader.get(VIRTUAL_MACHINES, key)
        if obj is None:
            return None
        known = VirtualMachine.from_api(obj)
        reference = known.status.infrastructure_ref
        if reference is not None and reference.namespace != key.namespace:
            return None  # restored from elsewhere: that machine is somebody else's
        return facts.place_of(known)


_SHOWN = 5


def _others(names: list[str]) -> str:
    if not names:
        return "there is none"
    more = ", …" if len(names) > _SHOWN else ""
    return f"there are {', '.join(names[:_SHOWN])}{more}"
