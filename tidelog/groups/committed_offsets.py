"""Commits the offsets of a consumer, and fetches committed offsets."""

from __future__ import annotations

import asyncio
import builtins
import itertools
from collections.abc import Callable, Iterable, Mapping

from tidelog.client.cluster_client import ClusterClient
from tidelog.errors import (
    BrokerError,
    CommitFailedError,
    IllegalGenerationError,
    InvalidRequestError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    TidelogError,
    TimeoutError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    error_for,
    raise_first,
)
from tidelog.groups.coordinator_requests import ask_coordinator
from tidelog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tidelog.protocol.codec import MAX_STRING
from tidelog.protocol.group_messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchPartition,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tidelog.protocol.messages import DescribePartition

COMMIT_FAILED = (
    "the group has removed this consumer, and its partitions may belong to other members now. Records that were read "
    "since the last commit may be read again. This happens if the time between two polls exceeds max_poll_interval_ms: "
    "raise it, lower max_poll_records, or poll from time to time while processing"
)
COMMIT_LATER = (
    "a rebalance is in progress: poll until it is complete, then commit the partitions that are still assigned"
)


def commit_entry(tp: TopicPartition, committed: OffsetAndMetadata) -> OffsetCommitPartition:
    """Return the entry of a commit request for one partition, from values that `arguments.commits` has checked.

    Raises OffsetMetadataTooLargeError if the metadata is longer than a message can hold.
    """
    if (size_bytes := len(committed.metadata.encode())) > MAX_STRING:
        raise OffsetMetadataTooLargeError(f"{tp}: metadata of {size_bytes} bytes: must be at most {MAX_STRING}")
    epoch = -1 if committed.leader_epoch is None else committed.leader_epoch
    return OffsetCommitPartition(*tp, committed.offset, epoch, committed.metadata)


def found_offset(entry: OffsetFetchPartition) -> OffsetAndMetadata | None:
    """Return the committed offset in one partition's entry of an answer; None if no offset is committed."""
    if entry.committed_offset < 0:
        return None
    epoch = entry.committed_leader_epoch
    return OffsetAndMetadata(entry.committed_offset, entry.metadata, epoch if epoch >= 0 else None)


class CommittedOffsets:
    """The committed offsets of one consumer.

    Its commits are sent one after the other, so that no commit overtakes a later one. Each has a higher sequence number
    than the one before, so that the coordinator refuses a copy of an earlier commit that the network has delayed.
    """

    def __init__(self, client: ClusterClient, group_id: str) -> None:
        self._client = client
        self._group_id = group_id
        self._lock = asyncio.Lock()
        self._committer_id = client.random_id()
        self._sequences = itertools.count()

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        committer: Callable[[], ConsumerGroupMetadata],
        deadline_ms: int,
        on_refusal: Callable[[ConsumerGroupMetadata, TidelogError], None],
    ) -> None:
        """Commit the offsets after all earlier commits of this consumer. Without offsets nothing is sent.

        committer    returns the consumer's identity in the group at the time of the call, or raises an error
        on_refusal   called with that identity and each error of a broker

        The identity must be the same when this commit is sent (otherwise RebalanceInProgressError), because in another
        generation the partitions may belong to another member. Raises CommitFailedError, RebalanceInProgressError or
        the broker's error, the first one with the others in `others`; after a TimeoutError the outcome is unknown.
        """
        entries = tuple(commit_entry(tp, committed) for tp, committed in offsets.items())
        if not entries:
            return
        identity = committer()
        await self._acquire_lock(deadline_ms)
        try:
            if committer() != identity:  # a new generation has begun meanwhile
                raise RebalanceInProgressError(f"group {self._group_id!r}: {COMMIT_LATER}")
            refusals = await self._commit(entries, identity, deadline_ms)
        finally:
            self._lock.release()
        for error in refusals.values():
            if error is not None:
                on_refusal(identity, error)
        raise_first(self._named(entry, error, identity) for entry, error in refusals.items() if error is not None)

    async def _commit(
        self, entries: tuple[OffsetCommitPartition, ...], identity: ConsumerGroupMetadata, deadline_ms: int
    ) -> dict[OffsetCommitPartition, BrokerError | None]:
        """Return the error of each entry, or None if its offset is committed.

        A consumer may read a new partition from its leader before the coordinator has heard of the partition. Such an
        entry is sent again until the metadata shows that the partition does not exist, or until the deadline.
        """
        client, attempt = self._client, 0
        refusals: dict[OffsetCommitPartition, BrokerError | None] = {}
        while True:
            request = OffsetCommitRequest(
                self._group_id,
                entries,
                *identity[1:],
                committer_id=self._committer_id,
                sequence=next(self._sequences),
            )
            answer = await ask_coordinator(client, self._group_id, request, deadline_ms)
            assert isinstance(answer, OffsetCommitResponse)
            codes = {(each.topic, each.partition): (each.error_code, each.error_message) for each in answer.partitions}
            for each in entries:
                code, message = codes.get((each.topic, each.partition), (InvalidRequestError.code, None))
                refusals[each] = error_for(code, message or "")
            unknown = [each for each in entries if isinstance(refusals[each], UnknownTopicOrPartitionError)]
            if unknown:
                client.track(*{each.topic for each in unknown})
                await client.try_refresh(deadline_ms)
            entries = tuple(
                [each for each in unknown if not client.partition_refusal(TopicPartition(each.topic, each.partition))]
            )
            if entries:
                await client.backoff(attempt, deadline_ms)
            if not entries or client.clock.monotonic_ms() >= deadline_ms:
                return refusals
            attempt += 1

    async def _acquire_lock(self, deadline_ms: int) -> None:
        left_ms = max(0, deadline_ms - self._client.clock.monotonic_ms())
        try:
            async with asyncio.timeout(left_ms / 1000):
                await self._lock.acquire()
        except builtins.TimeoutError:
            raise TimeoutError(
                f"group {self._group_id!r}: timed out after {left_ms} ms waiting for an earlier commit"
            ) from None

    def _named(self, entry: OffsetCommitPartition, error: BrokerError, identity: ConsumerGroupMetadata) -> TidelogError:
        where = f"group {self._group_id!r}, {entry.topic}-{entry.partition}"
        if isinstance(error, RebalanceInProgressError):
            return RebalanceInProgressError(f"{where}: {COMMIT_LATER}")
        if isinstance(error, UnknownMemberIdError) and not identity.member_id:
            return CommitFailedError(
                f"{where}: the group assigns partitions to its members, and only members may commit: subscribe"
            )
        if isinstance(error, UnknownMemberIdError | IllegalGenerationError):
            return CommitFailedError(f"{where}: {COMMIT_FAILED}")
        return type(error)(f"{where}: {error}")

    async def fetch(
        self, partitions: Iterable[TopicPartition], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each partition; None for a partition without one.

        The request is sent after all earlier commits of this consumer. Raises the coordinator's first error, and
        TimeoutError at the deadline.
        """
        chosen = list(dict.fromkeys(partitions))
        if not chosen:
            return {}
        await self._acquire_lock(deadline_ms)
        self._lock.release()
        request = OffsetFetchRequest(self._group_id, tuple(DescribePartition(*tp) for tp in chosen))
        answer = await ask_coordinator(self._client, self._group_id, request, deadline_ms)
        assert isinstance(answer, OffsetFetchResponse)
        if error := error_for(answer.error_code):
            raise type(error)(f"group {self._group_id!r}: {error}")
        entries = {TopicPartition(each.topic, each.partition): each for each in answer.partitions}
        for tp in chosen:
            code = entries[tp].error_code if tp in entries else InvalidRequestError.code
            if error := error_for(code):
                raise type(error)(f"group {self._group_id!r}, {tp}: {error}")
        return {tp: found_offset(entries[tp]) for tp in chosen}
