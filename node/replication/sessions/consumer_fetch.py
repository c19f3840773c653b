"""The fetch of a Kafka consumer in the broker's own protocol, and its response."""

from __future__ import annotations

from dataclasses import field

from node.replication.sessions.consumer_sessions import ConsumerMember, ConsumerSession
from tidelog.frozen_dataclass import frozen
from tidelog.protocol.messages import FetchRequest, FetchResponse


@frozen
class ConsumerFetch(FetchRequest):
    """A fetch that reads the active members of `session`, with `partitions` empty.

    reads_zstd   whether the consumer's version of Fetch (from 10 on) has zstd
    """

    session: ConsumerSession = field(kw_only=True)
    reads_zstd: bool = field(kw_only=True)


@frozen
class ConsumerFetchResponse(FetchResponse):
    """The response, with the member of each of its `partitions`, in the same order."""

    members: tuple[ConsumerMember, ...] = field(kw_only=True)
