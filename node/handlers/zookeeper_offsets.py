"""OffsetCommit and OffsetFetch of version 0, with offsets in ZooKeeper; and the list of groups that have some there.

Any broker answers, because version 0 has no coordinator, no generation and no fencing. As in Kafka, the commit's
metadata is checked against a bound and then dropped, and partitions that do not exist are refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sized
from typing import TypeVar

from cluster.zookeeper.store import StoreError
from cluster.zookeeper.znodes import MalformedZnodeError
from cluster.zookeeper.zookeeper_offsets import ZooKeeperOffsets
from node.controller.command_errors import broker_error_of
from node.metadata.metadata_cache import MetadataCache
from node.net.server import RequestContext
from tidelog.clock import Clock
from tidelog.errors import (
    BrokerError,
    CoordinatorNotAvailableError,
    InvalidRequestError,
    OffsetMetadataTooLargeError,
    RequestTimedOutError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    text_for_response,
)
from tidelog.groups.zookeeper_names import group_in_path_or_raise
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import (
    CommittedPartition,
    ListedGroup,
    ListGroupsResponse,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchPartition,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

#: The limit of partitions in one request, because each costs one round trip to ZooKeeper.
MAX_PARTITIONS = 10_000
#: The longest time that ZooKeeper may take, and the part of the client's timeout that is kept for the answer's way.
_TIMEOUT_MS, _ANSWER_MS = 10_000, 100


class ZooKeeperOffsetHandlers:
    """Commits and fetches offsets in ZooKeeper.

    `max_metadata_bytes` is Kafka's `offset.metadata.max.bytes`.
    """

    def __init__(
        self, offsets: ZooKeeperOffsets, metadata: MetadataCache, clock: Clock, max_metadata_bytes: int
    ) -> None:
        self._offsets = offsets
        self._metadata = metadata
        self._clock = clock
        self._max_metadata_bytes = max_metadata_bytes

    async def commit(self, request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
        """Commit offsets and return one outcome for each partition. If one occurs twice, the later offset counts.

        Raises InvalidRequestError if there are too many partitions.
        """
        _raise_if_too_many(request.partitions)
        wanted = {TopicPartition(part.topic, part.partition): part for part in request.partitions}
        commits = {tp: self._commit(request.group_id, tp, part) for tp, part in wanted.items()}
        outcomes = await self._side_by_side(commits, context)
        partitions = []
        for part in request.partitions:
            outcome = outcomes[TopicPartition(part.topic, part.partition)]
            error = outcome if isinstance(outcome, BrokerError) else None
            code, message = (0, None) if error is None else (error.code, text_for_response(error))
            partitions.append(CommittedPartition(part.topic, part.partition, code, message))
        return OffsetCommitResponse(tuple(partitions))

    async def fetch(self, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
        """Return the committed offsets of the named partitions, or of all; −1 without an error if there is none.

        A request for all partitions also returns deleted partitions, with their offset and an error. Raises
        InvalidRequestError if too many partitions are named. If the group has too many, the response has only that
        error code.
        """
        group_id, named = request.group_id, request.partitions
        if named is not None:
            _raise_if_too_many(named)
            asked = [TopicPartition(part.topic, part.partition) for part in named]
        else:
            listing = await self._in_time(self._partitions(group_id), self._timeout_s(context))
            if isinstance(listing, BrokerError):
                return OffsetFetchResponse(listing.code)
            asked = listing
        reads = {tp: self._read(group_id, tp, anyway=named is None) for tp in dict.fromkeys(asked)}
        outcomes = await self._side_by_side(reads, context)
        return OffsetFetchResponse(0, tuple(self._fetched(tp, outcomes[tp]) for tp in asked))

    async def list_groups(self, context: RequestContext) -> ListGroupsResponse:
        """Return the groups that have offsets in ZooKeeper, without types and states, or only an error code."""
        groups = await self._in_time(self._offsets.groups(), self._timeout_s(context))
        if isinstance(groups, BrokerError):
            return ListGroupsResponse(groups.code)
        return ListGroupsResponse(0, tuple(ListedGroup(group_id, "", "") for group_id in groups))

    # --- one partition ---------------------------------------------------------------------------------------

    async def _commit(self, group_id: str, tp: TopicPartition, part: OffsetCommitPartition) -> None:
        group_in_path_or_raise(group_id)
        self._raise_if_unknown(tp)
        size_bytes = len(part.committed_metadata.encode())
        if size_bytes > self._max_metadata_bytes:
            raise OffsetMetadataTooLargeError(
                f"{tp}: metadata of {size_bytes} bytes; "
                f"must be at most {self._max_metadata_bytes} (offset.metadata.max.bytes)"
            )
        if part.committed_offset < 0:
            raise InvalidRequestError(f"{tp}: offset {part.committed_offset}: must be at least 0")
        await self._offsets.commit(group_id, tp, part.committed_offset)

    async def _partitions(self, group_id: str) -> list[TopicPartition]:
        found = await self._offsets.partitions(group_in_path_or_raise(group_id))
        _raise_if_too_many(found)
        return found

    async def _read(self, group_id: str, tp: TopicPartition, *, anyway: bool) -> int | None:
        """Return the committed offset, or None if there is none.

        `anyway`: read without checks, because the names come from ZooKeeper itself and the partition may be deleted.
        """
        if not anyway:
            group_in_path_or_raise(group_id)
            self._raise_if_unknown(tp)
        return await self._offsets.read(group_id, tp)

    def _fetched(self, tp: TopicPartition, outcome: int | BrokerError | None) -> OffsetFetchPartition:
        if isinstance(outcome, BrokerError):
            return OffsetFetchPartition(*tp, outcome.code)
        gone = self._metadata.informed and not self._metadata.exists(*tp)
        return OffsetFetchPartition(
            *tp, UnknownTopicOrPartitionError.code if gone else 0, -1 if outcome is None else outcome
        )

    def _raise_if_unknown(self, tp: TopicPartition) -> None:
        if not self._metadata.informed:
            # Without this check, a broker that has just started would answer that there is no committed offset.
            raise CoordinatorNotAvailableError("this broker has received no metadata from the controller yet; retry")
        if not self._metadata.exists(*tp):
            raise UnknownTopicOrPartitionError(f"{tp} does not exist")

    # --- timeouts --------------------------------------------------------------------------------------------

    async def _side_by_side(
        self, calls: Mapping[TopicPartition, Awaitable[T]], context: RequestContext
    ) -> dict[TopicPartition, T | BrokerError]:
        timeout_s = self._timeout_s(context)
        outcomes = await asyncio.gather(*(self._in_time(call, timeout_s) for call in calls.values()))
        return dict(zip(calls, outcomes, strict=True))

    async def _in_time(self, call: Awaitable[T], timeout_s: float) -> T | BrokerError:
        """Return the result of the call, or its error as a BrokerError; after `timeout_s`, RequestTimedOutError."""
        try:
            async with asyncio.timeout(timeout_s):
                return await call
        except TimeoutError:
            return RequestTimedOutError("ZooKeeper did not answer within the request's timeout")
        except MalformedZnodeError as error:
            log.warning("ZooKeeper holds a malformed offset: %s", error)
            return UnknownServerError(str(error))
        except (BrokerError, StoreError) as error:
            return broker_error_of(error)

    def _timeout_s(self, context: RequestContext) -> float:
        now_ms = self._clock.monotonic_ms()
        return max(1, context.due_ms(now_ms, _TIMEOUT_MS) - _ANSWER_MS - now_ms) / 1000


def _raise_if_too_many(partitions: Sized) -> None:
    if len(partitions) > MAX_PARTITIONS:
        raise InvalidRequestError(f"{len(partitions)} partitions in one request; must be at most {MAX_PARTITIONS}")
