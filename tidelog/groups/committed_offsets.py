"""What a consumer commits, and where it finds what was committed."""

from __future__ import annotations

import asyncio
import builtins
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
    "the group has gone on without this consumer, and its partitions may be others' by now. What was read since the "
    "last commit may be read again. That happens where the time between two polls exceeds max_poll_interval_ms: raise "
    "it, lower max_poll_records, or poll from time to time while processing"
)
COMMIT_LATER = "a rebalance is under way: poll until it is over, then commit what is still assigned"


def commit_entry(tp: TopicPartition, wanted: OffsetAndMetadata) -> OffsetCommitPartition:
    """Return the entry of a commit request for one partition, from values that `arguments.commits` has checked.

    OffsetMetadataTooLargeError if the metadata is longer than a message can hold.
    """
    if (size_bytes := len(wanted.metadata.encode())) > MAX_STRING:
        raise OffsetMetadataTooLargeError(f"{tp}: metadata of {size_bytes} bytes: must be at most {MAX_STRING}")
    epoch = -1 if wanted.leader_epoch is None else wanted.leader_epoch
    return OffsetCommitPartition(*tp, wanted.offset, epoch, wanted.metadata)


def found_offset(entry: OffsetFetchPartition) -> OffsetAndMetadata | None:
    """What an answer says of one partition; None: nothing is committed."""
    if entry.committed_offset < 0:
        return None
    epoch = entry.committed_leader_epoch
    return OffsetAndMetadata(entry.committed_offset, entry.metadata, epoch if epoch >= 0 else None)


class CommittedOffsets:
    """One consumer's. Its commits reach the coordinator one after the other: none is overtaken by an earlier one.

    on_refusal   told of each refusal, and who had committed
    """

    def __init__(self, client: ClusterClient, group_id: str) -> None:
        self.on_refusal: Callable[[ConsumerGroupMetadata, TidelogError], None] = lambda committer, error: None
        self._client = client
        self._group_id = group_id
        self._turn = asyncio.Lock()

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        committer: Callable[[], ConsumerGroupMetadata],
        deadline_ms: int,
    ) -> None:
        """`committer` tells who it is now, and must tell the same when its turn has come.

        CommitFailedError, RebalanceInProgressError, what the broker refuses; TimeoutError: the outcome is unknown.
        """
        entries = tuple(commit_entry(tp, wanted) for tp, wanted in offsets.items())
        if not entries:
            return
        who = committer()
        await self._take_turn(deadline_ms)
        try:
            if committer() != who:  # of another generation, in which these may be another's
                raise RebalanceInProgressError(f"group {self._group_id!r}: {COMMIT_LATER}")
            refusals = await self._commit(entries, who, deadline_ms)
        finally:
            self._turn.release()
        for error in refusals.values():
            if error is not None:
                self.on_refusal(who, error)
        raise_first(self._named(entry, error, who) for entry, error in refusals.items() if error is not None)

    async def _commit(
        self, entries: tuple[OffsetCommitPartition, ...], who: ConsumerGroupMetadata, deadline_ms: int
    ) -> dict[OffsetCommitPartition, BrokerError | None]:
        """What became of each. A new partition may be read from its leader before the coordinator has heard of it:
        it is asked again for those of which it has not, until it is certain that they are not there.
        """
        client, attempt = self._client, 0
        refusals: dict[OffsetCommitPartition, BrokerError | None] = {}
        while True:
            request = OffsetCommitRequest(self._group_id, entries, *who[1:])
            answer = await ask_coordinator(client, self._group_id, request, deadline_ms)
            assert isinstance(answer, OffsetCommitResponse)
            told = {(each.topic, each.partition): (each.error_code, each.error_message) for each in answer.partitions}
            for each in entries:
                code, message = told.get((each.topic, each.partition), (InvalidRequestError.code, None))
                refusals[each] = error_for(code, message or "")
            unheard = [each for each in entries if isinstance(refusals[each], UnknownTopicOrPartitionError)]
            if unheard:
                client.track(*{each.topic for each in unheard})
                await client.try_refresh(deadline_ms)
            entries = tuple(
                [each for each in unheard if not client.partition_refusal(TopicPartition(each.topic, each.partition))]
            )
            if entries:
                await client.backoff(attempt, deadline_ms)
            if not entries or client.clock.monotonic_ms() >= deadline_ms:
                return refusals
            attempt += 1

    async def _take_turn(self, deadline_ms: int) -> None:
        left_ms = max(0, deadline_ms - self._client.clock.monotonic_ms())
        try:
            async with asyncio.timeout(left_ms / 1000):
                await self._turn.acquire()
        except builtins.TimeoutError:
            raise TimeoutError(f"group {self._group_id!r}: an earlier commit is under way for {left_ms} ms") from None

    def _named(self, entry: OffsetCommitPartition, error: BrokerError, who: ConsumerGroupMetadata) -> TidelogError:
        where = f"group {self._group_id!r}, {entry.topic}-{entry.partition}"
        if isinstance(error, RebalanceInProgressError):
            return RebalanceInProgressError(f"{where}: {COMMIT_LATER}")
        if isinstance(error, UnknownMemberIdError) and not who.member_id:
            return CommitFailedError(f"{where}: the group has members that were assigned their partitions; subscribe")
        if isinstance(error, UnknownMemberIdError | IllegalGenerationError):
            return CommitFailedError(f"{where}: {COMMIT_FAILED}")
        return type(error)(f"{where}: {error}")

    async def fetch(
        self, partitions: Iterable[TopicPartition], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Of each partition; None: nothing is committed. It comes behind the commits that are under way."""
        wanted = list(dict.fromkeys(partitions))
        if not wanted:
            return {}
        await self._take_turn(deadline_ms)
        self._turn.release()
        request = OffsetFetchRequest(self._group_id, tuple(DescribePartition(*tp) for tp in wanted))
        answer = await ask_coordinator(self._client, self._group_id, request, deadline_ms)
        assert isinstance(answer, OffsetFetchResponse)
        if error := error_for(answer.error_code):
            raise type(error)(f"group {self._group_id!r}: {error}")
        told = {TopicPartition(each.topic, each.partition): each for each in answer.partitions}
        for tp in wanted:
            code = told[tp].error_code if tp in told else InvalidRequestError.code
            if error := error_for(code):
                raise type(error)(f"group {self._group_id!r}, {tp}: {error}")
        return {tp: found_offset(told[tp]) for tp in wanted}
