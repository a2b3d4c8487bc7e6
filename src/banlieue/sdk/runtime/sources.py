"""Where watch events come from: the seam between the hub and the watch engine."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

from banlieue.api.meta import Resource
from banlieue.sdk.kube import Obj
from banlieue.sdk.reconcile import Watch


@dataclass(frozen=True, slots=True)
class Stream:
    """One list-and-watch: a kind, selectors the API server evaluates, and a namespace or all.

    `many` says that there may be tens of thousands of objects.
    """

    resource: Resource
    field_selector: str = ""
    label_selector: str = ""
    namespace: str = ""
    many: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, watch: Watch) -> "Stream":
        """The stream that serves a watch; equal watches share it."""
        namespace = watch.namespace if watch.resource.namespaced else ""
        return cls(
            watch.resource, watch.field_selector, watch.label_selector, namespace, watch.many
        )

    def covers(self, namespace: str) -> bool:
        """Whether every object of that namespace is in the stream."""
        if self.field_selector or self.label_selector:
            return False
        return not self.namespace or self.namespace == namespace

    def __str__(self) -> str:
        selectors = [it for it in (self.field_selector, self.label_selector) if it]
        where = [self.namespace] if self.namespace else []
        return " ".join([f"{self.resource.plural}.{self.resource.group}", *where, *selectors])


class Sink(Protocol):
    """Takes what a source delivers. Every method is total and runs on the process's loop."""

    def event(self, kind: Literal["ADDED", "MODIFIED", "DELETED"] | None, obj: Obj) -> None:
        """An object came (None: by a list), changed or went."""

    def listed(self) -> None:
        """A list was answered, perhaps an empty one: what it does not hold is not there any more.

        Its objects may be delivered before or after.
        """

    def watching(self) -> None:
        """A list is through and a watch is open.

        For a stream of many, every object of the list was delivered before.
        """

    def trouble(self, what: str) -> None:
        """The API server refuses or does not answer; the source goes on trying."""

    def refused(self) -> None:
        """The API server says that we may not read the kind; told with the trouble it is."""


class KindGoneError(Exception):
    """The API server no longer serves the kind."""


class EventSource(Protocol):
    """A watch engine."""

    async def watch(self, stream: Stream, sink: Sink) -> None:
        """Deliver until cancelled, across lost connections and expired versions.

        Raises:
            KindGoneError: the kind is not served any more.
            Exception: anything else is a reason to end the process.
        """
