"""The admin for ordinary programs: each call is answered by the asyncio one on an I/O thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self, Unpack

from tidelog.aio.admin import Admin as AsyncAdmin
from tidelog.client import Opener, open_connection
from tidelog.clock import Clock
from tidelog.descriptions import ClusterDescription, TopicDescription
from tidelog.io_thread import IoThread
from tidelog.messages import CreatedTopic, NewTopic
from tidelog.settings import AdminOptions, BootstrapServers


class Admin:
    """Creates, deletes and describes topics. `timeout_ms` is by default `default_api_timeout_ms` (1 min).

    Calls find the controller and the leaders by themselves and raise NoBrokersError, TimeoutError, or what refuses.
    """

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        *,
        _clock: Clock | None = None,
        _opener: Opener = open_connection,
        **options: Unpack[AdminOptions],
    ) -> None:
        self._core = AsyncAdmin(bootstrap_servers, _clock=_clock, _opener=_opener, **options)
        self._io = IoThread("tidelog-admin")

    def create_topics(
        self, topics: Iterable[NewTopic], timeout_ms: int | None = None, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Returns when every partition has a leader. The first topic's refusal is raised."""
        return self._io.run(self._core.create_topics(topics, timeout_ms, validate_only), self._seconds(timeout_ms))

    def delete_topics(self, topics: Sequence[str], timeout_ms: int | None = None) -> None:
        """UnknownTopicOrPartitionError and other refusals are raised, the first topic's."""
        self._io.run(self._core.delete_topics(topics, timeout_ms), self._seconds(timeout_ms))

    def list_topics(self, timeout_ms: int | None = None) -> list[str]:
        """All names in order, the cluster's own topics included."""
        return self._io.run(self._core.list_topics(timeout_ms), self._seconds(timeout_ms))

    def describe_topics(
        self, topics: Iterable[str] | None = None, timeout_ms: int | None = None
    ) -> list[TopicDescription]:
        """The named topics, or all: leader, epoch, ISR, high watermark, log end offset and lag of each partition.

        What only a leader knows is None for a partition whose leader does not answer within 2 s.
        """
        return self._io.run(self._core.describe_topics(topics, timeout_ms), self._seconds(timeout_ms))

    def describe_cluster(self, timeout_ms: int | None = None) -> ClusterDescription:
        """Its id, controller and live brokers, as the answering broker sees them now."""
        return self._io.run(self._core.describe_cluster(timeout_ms), self._seconds(timeout_ms))

    def close(self) -> None:
        """Idempotent."""
        if self._core.closed:
            return
        try:
            self._io.run(self._core.close(), 0)
        finally:
            self._io.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _seconds(self, timeout_ms: int | None) -> float:
        return (self._core.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms) / 1000
