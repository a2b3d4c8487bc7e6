"""The kinds of group ``banlieue.io``; backends list their own."""

from __future__ import annotations

from banlieue.api.meta import ResourceObject
from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.api.v1alpha1.vmclass import VMClass
from banlieue.api.v1alpha1.vmimage import VMImage

KINDS: tuple[type[ResourceObject], ...] = (
    VirtualMachine,
    VMClass,
    VMImage,
    Provider,
    ProviderClass,
)
