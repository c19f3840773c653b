"""OffsetCommit and OffsetFetch of version 0: offsets that lie in ZooKeeper; and which groups have some there.

Any broker answers, whoever coordinates the group: there is no coordinator, no generation and no fencing. As in Kafka
metadata is bounded and then dropped, and partitions that the cluster does not have are refused.
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
from node.metadata_cache import MetadataCache
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

#: Of one request: each is a round trip to ZooKeeper of its own.
MAX_PARTITIONS = 10_000
#: How long ZooKeeper may take, and what is left of the sender's patience for the way back.
_PATIENCE_MS, _WAY_BACK_MS = 10_000, 100


class ZooKeeperOffsetHandlers:
    """What one broker reads and writes there. `max_metadata_bytes` is Kafka's `offset.metadata.max.bytes`."""

    def __init__(
        self, offsets: ZooKeeperOffsets, metadata: MetadataCache, clock: Clock, max_metadata_bytes: int
    ) -> None:
        self._offsets = offsets
        self._metadata = metadata
        self._clock = clock
        self._max_metadata_bytes = max_metadata_bytes

    async def commit(self, request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
        """One outcome for each partition; of two for the same partition the later counts. InvalidRequestError."""
        _raise_if_too_many(request.partitions)
        wanted = {TopicPartition(part.topic, part.partition): part for part in request.partitions}
        commits = {tp: self._commit(request.group_id, tp, part) for tp, part in wanted.items()}
        outcomes = await self._side_by_side(commits, context)
        partitions = []
        for part in request.partitions:
            outcome = outcomes[TopicPartition(part.topic, part.partition)]
            error = outcome if isinstance(outcome, BrokerError) else None
            code, message = (0, None) if error is None else (error.code, str(error) or None)
            partitions.append(CommittedPartition(part.topic, part.partition, code, message))
        return OffsetCommitResponse(tuple(partitions))

    async def fetch(self, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
        """The offsets of these partitions or of all; −1 without an error where there is none. InvalidRequestError.

        Where all are asked for, those of partitions that are gone stand there too, with their offset and their error.
        """
        group_id, named = request.group_id, request.partitions
        if named is not None:
            _raise_if_too_many(named)
            asked = [TopicPartition(part.topic, part.partition) for part in named]
        else:
            listing = await self._in_time(self._partitions(group_id), self._patience_s(context))
            if isinstance(listing, BrokerError):
                return OffsetFetchResponse(listing.code)
            asked = listing
        reads = {tp: self._read(group_id, tp, anyway=named is None) for tp in dict.fromkeys(asked)}
        outcomes = await self._side_by_side(reads, context)
        return OffsetFetchResponse(0, tuple(self._fetched(tp, outcomes[tp]) for tp in asked))

    async def list_groups(self, context: RequestContext) -> ListGroupsResponse:
        """The groups that have offsets there; nobody knows of their members."""
        groups = await self._in_time(self._offsets.groups(), self._patience_s(context))
        if isinstance(groups, BrokerError):
            return ListGroupsResponse(groups.code)
        return ListGroupsResponse(0, tuple(ListedGroup(group_id, "", "") for group_id in groups))

    # --- one partition ---------------------------------------------------------------------------------------

    async def _commit(self, group_id: str, tp: TopicPartition, part: OffsetCommitPartition) -> None:
        group_in_path_or_raise(group_id)
        self._raise_if_unknown(tp)
        if len(part.committed_metadata) > self._max_metadata_bytes:
            raise OffsetMetadataTooLargeError(
                f"{tp}: metadata of {len(part.committed_metadata)} characters; {self._max_metadata_bytes} are the most"
            )
        if part.committed_offset < 0:
            raise InvalidRequestError(f"{tp}: {part.committed_offset} is no offset")
        await self._offsets.commit(group_id, tp, part.committed_offset)

    async def _partitions(self, group_id: str) -> list[TopicPartition]:
        found = await self._offsets.partitions(group_in_path_or_raise(group_id))
        _raise_if_too_many(found)
        return found

    async def _read(self, group_id: str, tp: TopicPartition, *, anyway: bool) -> int | None:
        """`anyway`: ZooKeeper has it, so it is a path there, whether the cluster knows the partition or not."""
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
            # Else a consumer that comes to a broker which has just started would hear that it has no offset.
            raise CoordinatorNotAvailableError("this broker has not been told of the topics yet")
        if not self._metadata.exists(*tp):
            raise UnknownTopicOrPartitionError(f"{tp} is not in the cluster")

    # --- in time ---------------------------------------------------------------------------------------------

    async def _side_by_side(
        self, calls: Mapping[TopicPartition, Awaitable[T]], context: RequestContext
    ) -> dict[TopicPartition, T | BrokerError]:
        patience_s = self._patience_s(context)
        outcomes = await asyncio.gather(*(self._in_time(call, patience_s) for call in calls.values()))
        return dict(zip(calls, outcomes, strict=True))

    async def _in_time(self, call: Awaitable[T], patience_s: float) -> T | BrokerError:
        """What became of it, while the sender still waits for an answer."""
        try:
            async with asyncio.timeout(patience_s):
                return await call
        except TimeoutError:
            return RequestTimedOutError("ZooKeeper does not answer in time")
        except MalformedZnodeError as error:
            log.warning("somebody wrote into ZooKeeper: %s", error)
            return UnknownServerError(str(error))
        except (BrokerError, StoreError) as error:
            return broker_error_of(error)

    def _patience_s(self, context: RequestContext) -> float:
        now_ms = self._clock.monotonic_ms()
        return max(1, context.due_ms(now_ms, _PATIENCE_MS) - _WAY_BACK_MS - now_ms) / 1000


def _raise_if_too_many(partitions: Sized) -> None:
    if len(partitions) > MAX_PARTITIONS:
        raise InvalidRequestError(f"{len(partitions)} partitions at once; {MAX_PARTITIONS} are the most")
