"""The methods of producers and consumers that chaos clients call, so that the same chaos client runs on other client
libraries too.

`tidelog.aio.Producer` and `tidelog.aio.Consumer` have these methods, and so have those of
`verify.chaos.clients.confluent`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord
from tidelog.groups.membership.rebalance_listener import RebalanceListener
from tidelog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

#: The result of a look-up by time: offset, timestamp and leader epoch. A timestamp or an epoch that the library does
#: not tell is None.
FoundOffset: TypeAlias = tuple[int, int | None, int | None]


class SentRecord(Protocol):
    """A record whose outcome may not be known yet."""

    def add_callback(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function(*args, metadata)` when the record is acknowledged."""

    def add_errback(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function(*args, error)` when the record fails."""

    def may_be_stored(self) -> bool:
        """Return whether a failed record may still be in the log, now or later."""
        ...


class RecordProducer(Protocol):
    """The producer of a producing client."""

    async def partitions_for(self, topic: str) -> object: ...

    async def send(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SentRecord: ...

    async def flush(self, timeout_s: float) -> object: ...

    async def close(self, timeout_ms: int) -> object: ...


class RecordConsumer(Protocol):
    """The consumer of members, readers and clients that look up offsets."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def assign(self, partitions: Iterable[TopicPartition]) -> None: ...

    def subscribe(self, topics: Iterable[str], *, listener: RebalanceListener) -> None: ...

    def assignment(self) -> Collection[TopicPartition]: ...

    def group_metadata(self) -> ConsumerGroupMetadata: ...

    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    def seek_to_beginning(self, *partitions: TopicPartition) -> None: ...

    async def poll(self, timeout_ms: int, max_records: int) -> Mapping[TopicPartition, list[ConsumerRecord]]: ...

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None: ...

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]: ...

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, FoundOffset | None]: ...

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...
