"""Committed offsets: commit, fetch and delete them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cluster.groups.committed_offsets import CommittedOffsets
from node.groups.coordinator import GroupCoordinator
from node.groups.group_log_writer import TOO_LARGE
from node.groups.shard import HostedGroup, Shard
from tidelog.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidCommitOffsetSizeError,
    InvalidRequestError,
    NonEmptyGroupError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    UnknownTopicOrPartitionError,
    text_for_response,
)
from tidelog.groups.assignment.consumer_protocol import PROTOCOL_TYPE
from tidelog.groups.offsets_topic import Commit, CommitKey, encode_commit, encode_key
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import (
    CommittedPartition,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchPartition,
    OffsetFetchRequest,
)
from tidelog.protocol.messages import DescribePartition

#: Called with the result of each partition of the request, in the order of the request.
OnDone = Callable[[tuple[CommittedPartition, ...]], None]

#: The number of tombstones in one batch. A tombstone has some hundred bytes, so a batch is far below
#: `max.message.bytes`.
TOMBSTONES = 1000

_INT32, _INT64 = 2**31, 2**63


class OffsetCommits:
    """Reads and writes the committed offsets of groups (Kafka's OffsetMetadataManager)."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    # --- committing ----------------------------------------------------------------------------------

    def commit(self, request: OffsetCommitRequest, done: OnDone) -> None:
        """Write the offsets. `done` is called once, when they are committed or refused, before this returns or later.

        A BrokerError refuses the request as a whole. If the request names a partition twice, the last offset counts. A
        copy of a commit that was acknowledged is acknowledged without effect, and one of an earlier commit of the same
        committer is refused (`cluster.groups.commit_sequences`).
        """
        coordinator = self._coordinator
        if self._is_acknowledged(request):
            done(_results(request, {}))
            return
        shard, hosted = self._find_for_commit(request)
        if request.committer_id:
            shard.commits.accept(request.committer_id, request.sequence, coordinator.clock.monotonic_ms())
        refused: dict[TopicPartition, BrokerError] = {}
        commits: dict[TopicPartition, Commit] = {}
        now_ms = coordinator.clock.now_ms()
        expires_ms = -1 if request.retention_ms < 0 else min(now_ms + request.retention_ms, _INT64 - 1)
        for part in request.partitions:
            tp = TopicPartition(part.topic, part.partition)
            error = self._refusal(part)
            if error is not None:
                refused[tp] = error
                continue
            # A record with an expiry has no place for the leader epoch, so that the cache must not know it either.
            leader_epoch = part.committed_leader_epoch if expires_ms < 0 else -1
            committed_ms = now_ms if part.commit_timestamp_ms < 0 else part.commit_timestamp_ms
            commits[tp] = Commit(part.committed_offset, leader_epoch, part.committed_metadata, committed_ms, expires_ms)
        if not commits:
            coordinator.drop_if_unused(shard, hosted)
            done(_results(request, refused))
            return
        records = [
            (encode_key(CommitKey(request.group_id, *tp)), encode_commit(commit)) for tp, commit in commits.items()
        ]
        hosted.offsets.begin(commits)

        def written(first_offset: int, error: BrokerError | None) -> None:
            if error is None:
                hosted.offsets.written(commits, first_offset)
                if not refused:
                    shard.commits.acknowledge(request.committer_id, request.sequence)
            else:
                hosted.offsets.failed(commits)
                coordinator.drop_if_unused(shard, hosted)
                if isinstance(error, TOO_LARGE):
                    error = InvalidCommitOffsetSizeError(str(error))
                refused.update(dict.fromkeys(commits, error))
            done(_results(request, refused))

        coordinator.writes.write(shard, records, written)

    def _is_acknowledged(self, request: OffsetCommitRequest) -> bool:
        """Return whether the request is a copy of a commit that was acknowledged.

        Raise OutOfOrderSequenceError if it is a copy of an earlier commit of its committer, and NotCoordinatorError if
        it was sent to the coordinator of another leader epoch, which knew other commits.
        """
        shard = self._coordinator.shard_of(request.group_id)
        if request.coordinator_epoch not in (-1, shard.leader_epoch):
            raise NotCoordinatorError(
                f"group {request.group_id!r}: the commit is for its coordinator of epoch {request.coordinator_epoch},"
                f" but this broker is its coordinator of epoch {shard.leader_epoch}"
            )
        return bool(request.committer_id) and shard.commits.is_acknowledged(request.committer_id, request.sequence)

    def _find_for_commit(self, request: OffsetCommitRequest) -> tuple[Shard, HostedGroup]:
        """Return the group if the sender may commit for it, else raise; create a missing group without a generation."""
        coordinator, generation = self._coordinator, request.generation_id
        shard, hosted = coordinator.find(request.group_id)
        if hosted is None:
            if generation >= 0:
                raise IllegalGenerationError(
                    f"group {request.group_id!r} does not exist, so that it has no generation {generation}"
                )
            shard, hosted = coordinator.find_or_create(request.group_id)
        try:
            hosted.group.check_commit(
                request.member_id, request.group_instance_id, generation, coordinator.clock.monotonic_ms()
            )
        except BrokerError:
            coordinator.drop_if_unused(shard, hosted)
            raise
        return shard, hosted

    def _refusal(self, part: OffsetCommitPartition) -> BrokerError | None:
        coordinator = self._coordinator
        if not coordinator.metadata.exists(part.topic, part.partition):
            if not coordinator.metadata.informed:
                return CoordinatorLoadInProgressError(
                    "this broker has not received the names of all topics from the controller yet; try again"
                )
            return UnknownTopicOrPartitionError()
        if len(part.committed_metadata.encode()) > coordinator.settings.offset_metadata_max_bytes:
            return OffsetMetadataTooLargeError()
        # A record stores the offset and the time in 64 bits, and the epoch in 32 bits.
        is_in_range = (
            -_INT64 <= part.committed_offset < _INT64
            and -_INT32 <= part.committed_leader_epoch < _INT32
            and part.commit_timestamp_ms < _INT64
        )
        if not is_in_range:
            return InvalidRequestError()
        return None

    # --- fetching ------------------------------------------------------------------------------------

    def fetch(self, request: OffsetFetchRequest) -> tuple[OffsetFetchPartition, ...]:
        """Return the committed offsets of the requested partitions (−1: none), or all of the group (None requested).

        Offsets of deleted topics count as not committed, even before their tombstones are. Raise the BrokerError to
        answer if this broker does not know the offsets, or another leader may have newer ones.
        """
        shard, hosted = self._coordinator.find_to_read(request.group_id)
        offsets = CommittedOffsets() if hosted is None else hosted.offsets
        void = set(offsets.committed_below(shard.deleted))
        if request.partitions is None:
            return tuple(_fetched(tp, commit) for tp, commit in offsets.all().items() if tp not in void)
        tps = [TopicPartition(part.topic, part.partition) for part in request.partitions]
        return tuple(_fetched(tp, None if tp in void else offsets.get(tp)) for tp in tps)

    # --- deleting ------------------------------------------------------------------------------------

    def delete(self, request: OffsetDeleteRequest, done: OnDone) -> None:
        """Write tombstones for these offsets, except those of topics that members are subscribed to (KIP-496).

        `done` is called once with each partition's result, before this method returns or later. During a rebalance
        every partition gets GROUP_SUBSCRIBED_TO_TOPIC. Raise GroupIdNotFoundError, or NonEmptyGroupError if the group
        has members of another protocol type than "consumer".
        """
        shard, hosted = self._coordinator.find(request.group_id)
        if hosted is None:
            raise GroupIdNotFoundError(f"group {request.group_id!r} does not exist")
        group = hosted.group
        if group.members and group.protocol_type != PROTOCOL_TYPE:
            raise NonEmptyGroupError(
                f"group {request.group_id!r} has members of protocol type {group.protocol_type!r}, whose subscriptions"
                " are not known"
            )
        subscribed = hosted.subscribed
        refused: dict[TopicPartition, BrokerError] = {}
        to_delete: dict[TopicPartition, None] = {}
        for part in request.partitions:
            tp = TopicPartition(part.topic, part.partition)
            if subscribed is None or part.topic in subscribed:
                refused[tp] = GroupSubscribedToTopicError()
            elif not self._coordinator.metadata.exists(*tp) and hosted.offsets.get(tp) is None:
                refused[tp] = UnknownTopicOrPartitionError()
            else:
                to_delete[tp] = None

        def deleted(failed: Mapping[TopicPartition, BrokerError]) -> None:
            done(_results(request, {**refused, **failed}))

        self.write_tombstones(shard, hosted, list(to_delete), deleted)

    def write_tombstones(
        self,
        shard: Shard,
        hosted: HostedGroup,
        tps: list[TopicPartition],
        done: Callable[[Mapping[TopicPartition, BrokerError]], None] = lambda failed: None,
    ) -> None:
        """Write tombstones for these partitions. Commits that come later stay.

        A group without members whose last offset is deleted so is deleted too. `done` is called once, with the error of
        each failed partition, when the outcome of all tombstones is known. That may be before this method returns.
        """
        failed: dict[TopicPartition, BrokerError] = {}
        batches = [tps[first : first + TOMBSTONES] for first in range(0, len(tps), TOMBSTONES)]
        left = len(batches)
        if not left:
            done(failed)

        def write(batch: list[TopicPartition]) -> None:
            def written(first_offset: int, error: BrokerError | None) -> None:
                nonlocal left
                left -= 1
                if error is None:
                    # A tombstone at `record_offset` deletes only commits at lower offsets.
                    for record_offset, tp in enumerate(batch, first_offset):
                        hosted.offsets.read(tp, None, record_offset)
                else:
                    failed.update(dict.fromkeys(batch, error))
                hosted.offsets.failed(batch)
                if left:
                    return
                if hosted.offsets:
                    done(failed)
                else:
                    self._coordinator.delete_if_empty(shard, hosted, lambda _: done(failed))

            hosted.offsets.begin(batch)
            keys = [encode_key(CommitKey(hosted.group_id, *tp)) for tp in batch]
            self._coordinator.writes.write(shard, [(key, None) for key in keys], written)

        for batch in batches:
            write(batch)


def _fetched(tp: TopicPartition, commit: Commit | None) -> OffsetFetchPartition:
    if commit is None:
        return OffsetFetchPartition(*tp, 0)
    return OffsetFetchPartition(*tp, 0, commit.offset, commit.leader_epoch, commit.metadata)


def _results(
    request: OffsetCommitRequest | OffsetDeleteRequest, refused: Mapping[TopicPartition, BrokerError]
) -> tuple[CommittedPartition, ...]:
    parts: tuple[OffsetCommitPartition, ...] | tuple[DescribePartition, ...] = request.partitions

    def result(tp: TopicPartition) -> CommittedPartition:
        error = refused.get(tp)
        return (
            CommittedPartition(*tp, 0)
            if error is None
            else CommittedPartition(*tp, error.code, text_for_response(error))
        )

    return tuple(result(TopicPartition(part.topic, part.partition)) for part in parts)
