"""Which watch engine serves which stream."""

from dataclasses import dataclass

from banlieue.sdk.runtime.sources import EventSource, Sink, Stream


@dataclass(frozen=True, slots=True)
class RoutingSource:
    """Kinds of which there may be very many go one way, all others the usual one.

    Implements `banlieue.sdk.runtime.sources.EventSource`.
    """

    usual: EventSource
    many: EventSource

    async def watch(self, stream: Stream, sink: Sink) -> None:
        """Deliver until cancelled; see `EventSource.watch`."""
        await (self.many if stream.many else self.usual).watch(stream, sink)
