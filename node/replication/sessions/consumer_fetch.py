"""The fetch of a Kafka consumer in the broker's own protocol, and its response."""

from __future__ import annotations

from dataclasses import field

from node.replication.sessions.consumer_sessions import ConsumerMember, ConsumerSession
from tidelog.errors import InvalidRequestError
from tidelog.frozen_dataclass import frozen
from tidelog.protocol.kafka.messages.records import FetchRequest as KafkaFetchRequest
from tidelog.protocol.messages import FetchRequest, FetchResponse


def check_limits(request: FetchRequest | KafkaFetchRequest) -> None:
    """Raise InvalidRequestError if a limit of the fetch is negative."""
    if request.max_wait_ms < 0 or request.min_bytes < 0 or request.max_bytes < 0:
        raise InvalidRequestError(
            f"max_wait_ms={request.max_wait_ms}, min_bytes={request.min_bytes}, max_bytes={request.max_bytes}: "
            "all must be at least 0"
        )


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
