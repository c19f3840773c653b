"""ExamineReplica: return all that one broker knows of its replica, for `tidelog explain`."""

from __future__ import annotations

from cluster.replication.partition import UNKNOWN_OFFSET, FollowerState, Partition, Role
from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from storage.log import retention
from tidelog.model import TopicPartition
from tidelog.protocol.operator_messages import (
    ExamineReplicaRequest,
    ExamineReplicaResponse,
    FollowerReport,
    ReplicaReport,
    RetentionReport,
    SegmentReport,
)

_NEVER = -1


class ReplicaExaminations:
    """The handler of ExamineReplica. `check_interval_ms` is the interval at which retention checks the segments."""

    def __init__(self, replicas: ReplicaManager, check_interval_ms: int = -1) -> None:
        self._replicas = replicas
        self._check_interval_ms = check_interval_ms

    async def examine(self, request: ExamineReplicaRequest) -> ExamineReplicaResponse:
        """Return the report of a replica in any role, also if its disk has failed; then without `retention`.

        Raises the errors of `ReplicaManager.get_or_raise`.
        """
        replica = self._replicas.get_or_raise(TopicPartition(request.topic, request.partition))
        now_ms = self._replicas.clock.now_ms()
        report = None
        if not replica.offline:
            # This may read a file's modification time, so it runs on a thread in case the disk is slow.
            report = await self._replicas.offload(self._retention, replica, replica.partition.high_watermark, now_ms)
        return ExamineReplicaResponse(0, now_ms, self._report(replica, report))

    def _report(self, replica: Replica, report: RetentionReport | None) -> ReplicaReport:
        partition, log, config = replica.partition, replica.log, replica.log.config
        return ReplicaReport(
            role="offline" if replica.offline else partition.role.value,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            replicas=partition.replicas,
            isr=partition.isr,
            proposed_isr=partition.pending.state.isr if partition.pending else (),
            min_insync_replicas=config.min_insync_replicas,
            max_lag_ms=partition.max_lag_ms,
            log_start_offset=log.log_start_offset,
            high_watermark=partition.high_watermark,
            log_end_offset=log.log_end_offset,
            epoch_start_offset=partition.epoch_start_offset if partition.role is Role.LEADER else -1,
            synced_end=-1 if replica.flushed_offset is None else replica.flushed_offset,
            cut_off=self._replicas.cut_off,
            unclean_election=config.unclean_leader_election_enable,
            followers=tuple(self._follower(partition, *each) for each in sorted(partition.followers.items())),
            retention=report,
        )

    def _follower(self, partition: Partition, broker_id: int, state: FollowerState) -> FollowerReport:
        now_ms = self._replicas.clock.monotonic_ms()
        heard = state.log_end_offset != UNKNOWN_OFFSET
        return FollowerReport(
            broker_id,
            broker_id in partition.live,
            state.log_end_offset,
            now_ms - state.last_caught_up_time_ms if heard else _NEVER,
            now_ms - state.last_fetch_time_ms if heard else _NEVER,
        )

    def _retention(self, replica: Replica, high_watermark: int, now_ms: int) -> RetentionReport:
        log, config = replica.log, replica.log.config
        segments = log.segment_facts
        oldest = segments[0]
        deletable = retention.count_deletable(
            segments, config, log_start_offset=log.log_start_offset, high_watermark=high_watermark, now_ms=now_ms
        )
        return RetentionReport(
            len(segments),
            sum(segment.size_bytes for segment in segments),
            deletable,
            config.delete,
            config.retention_ms,
            config.retention_bytes,
            self._check_interval_ms,
            SegmentReport(
                oldest.end_offset,
                oldest.size_bytes,
                oldest.largest_timestamp,
                retention.written_ms(oldest.largest_timestamp, oldest.modified_ms, now_ms),
            ),
        )
