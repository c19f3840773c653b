"""The operations that the tests need of every foreign client, and the values that they exchange."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
#: A client may need this long for one call, on a machine whose cores are busy.
TIMEOUT_S = 60

Headers = tuple[tuple[str, bytes], ...]


class Record(NamedTuple):
    """A record to send. `timestamp_ms` is None if the client stamps the record itself."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


class ReadRecord(NamedTuple):
    """A record as a client returns it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class RefusedError(Exception):
    """The client reported an error; the message is the client's own."""


class ForeignClient(Protocol):
    """One client library, at one cluster. All calls concern partition 0 of a topic.

    name                 the package
    version              the version that is installed
    is_idempotent        whether its producer is idempotent by default
    """

    name: str
    version: str
    is_idempotent: bool

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        codec: str | None = None,
        acks: str | None = None,
        is_idempotent: bool | None = None,
    ) -> list[Record]:
        """Send the records as the iterable yields them; return those that were acknowledged, in the order of sending.

        An argument that is None leaves the client's default. With acks=0 every record counts as acknowledged.
        `RefusedError` is raised if no record was acknowledged.
        """
        ...

    def consume(
        self, topic: str, count: int, *, offset: int | None = None, timestamp_ms: int | None = None
    ) -> list[ReadRecord]:
        """Return `count` records from the offset, the time or, without both, the beginning."""
        ...

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        """Return the first offset whose timestamp is at least this, or None if there is none."""
        ...

    def offset_range(self, topic: str) -> tuple[int, int]:
        """Return the log start offset and the high watermark."""
        ...

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of the topic that the client's metadata has."""
        ...

    def topics(self) -> list[str]:
        """Return the names of all topics, among which may be internal ones."""
        ...

    def begin_transactions(self) -> None:
        """Ask for transactions. `RefusedError` is raised if the cluster has none."""
        ...
