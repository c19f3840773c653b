"""Implement the admin for programs without asyncio: each call runs the asyncio admin's on an I/O thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Unpack, overload

from tidelog.aio.admin import Admin as AsyncAdmin
from tidelog.client.admin.admin_results import ClusterDescription, TopicDescription
from tidelog.client.admin.config_requests import Changes, ConfigResource
from tidelog.client.admin.topic_time_spans import PartitionTimes
from tidelog.client.blocking.blocking_client import BlockingClient
from tidelog.client.diagnosis.explain_partition import PartitionFacts
from tidelog.client.environment import ClientEnvironment
from tidelog.client.help import client_repr, shows_settings
from tidelog.client.metrics.snapshot import Metrics
from tidelog.client.settings import AdminOptions, AdminSettings, BootstrapServers
from tidelog.errors import TidelogError
from tidelog.groups.descriptions import (
    ConsumerGroupDescription,
    ConsumerGroupListings,
    MemberDescription,
    MemberToRemove,
)
from tidelog.groups.lag import PartitionLag
from tidelog.groups.migration import OffsetMigration
from tidelog.groups.reset import OffsetReset, ResetTarget
from tidelog.groups.zookeeper_requests import ZooKeeperOffset
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.protocol.admin_messages import ConfigEntry, LogDir
from tidelog.protocol.messages import CreatedTopic, NewTopic
from tidelog.protocol.operator_messages import ConnectionReport
from tidelog.protocol.partition_messages import ElectionType, NewPartitions, PartitionReassignment


@shows_settings(AdminSettings, AdminOptions)
class Admin(BlockingClient[AsyncAdmin]):
    """Create, delete, describe and configure topics, and manage consumer groups.

    bootstrap_servers       "host:port,host:port" or a list; by default $TIDELOG_BOOTSTRAP_SERVERS, else the cluster of
                            this user's last `tidelog up`
    default_api_timeout_ms, request_timeout_ms, retry_backoff_ms, retry_backoff_max_ms, metadata_max_age_ms,
    bootstrap_timeout_ms, client_id

    `timeout_ms` is by default `default_api_timeout_ms` (1 min).

    Each call finds the controller and the leaders itself, and repeats requests until its timeout. A call raises
    NoBrokersError, TimeoutError or a broker's error; TypeError or ValueError for a wrong argument; ClosedError after
    `close`. If several topics or partitions fail, the first error is raised, and its `others` has the rest.

    Example:

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([NewTopic("orders", num_partitions=3, replication_factor=3)])
            for topic in admin.describe_topics(["orders"]):
                print(topic.topic, [partition.leader for partition in topic.partitions])
    """

    def __init__(self, bootstrap_servers: BootstrapServers | None = None, **options: Unpack[AdminOptions]) -> None:
        self._set_up(bootstrap_servers, options, ClientEnvironment())

    def _set_up(
        self, bootstrap_servers: BootstrapServers | None, options: Mapping[str, Any], environment: ClientEnvironment
    ) -> None:
        core = environment.create(AsyncAdmin, bootstrap_servers, **options)
        super().__init__(core, "tidelog-admin", core.settings.default_api_timeout_ms)

    def __repr__(self) -> str:
        return client_repr(self, self._core.settings, closed=self._io.stopped)

    def create_topics(
        self, topics: Iterable[NewTopic], timeout_ms: int | None = None, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Create topics; return each topic's id, number of partitions and replication factor, in the given order.

        The call returns when every partition has a leader that this client sees. Raises the first topic's error; the
        other topics may have been created. After a TimeoutError the topics may exist. With `validate_only` nothing is
        created, and the result says what would be created.
        """
        return self._wait(self._core.create_topics(topics, timeout_ms, validate_only), timeout_ms)

    def delete_topics(self, topics: Sequence[str], timeout_ms: int | None = None) -> None:
        """Delete topics; return when all live brokers and ZooKeeper have deleted them.

        Raises the first topic's error, for example UnknownTopicOrPartitionError; the other topics are deleted. After a
        RequestTimedOutError or a TimeoutError the deletion may be in progress.
        """
        self._wait(self._core.delete_topics(topics, timeout_ms), timeout_ms)

    def create_partitions(
        self, topics: Iterable[NewPartitions], timeout_ms: int | None = None, validate_only: bool = False
    ) -> None:
        """Extend topics to `total_count` partitions; return when every partition has a leader that this client sees.

        Raises the first topic's error; the other topics may have been extended. InvalidPartitionsError: the new number
        is not larger. Later records with a key may go to another partition than earlier records with the same key. With
        `validate_only` nothing changes.
        """
        self._wait(self._core.create_partitions(topics, timeout_ms, validate_only), timeout_ms)

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, TidelogError | None]:
        """Elect leaders, and return each partition's error; None: the new leader has confirmed the election.

        The call returns when all new leaders have confirmed, or at the deadline (at most `request_timeout_ms`); a
        leader that has not confirmed then counts as RequestTimedOutError. A partition that needs no election has
        ElectionNotNeededError. Without `partitions` the election covers all partitions, and the result omits those that
        needed no election.
        """
        return self._wait(self._core.elect_leaders(election_type, partitions, timeout_ms), timeout_ms)

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int | None = None
    ) -> None:
        """Begin to move partitions to these replicas, the preferred leader first; None cancels a reassignment.

        The call returns when ZooKeeper has the reassignments; `list_partition_reassignments` shows what is in progress.
        Raises the first error: InvalidReplicaAssignmentError, NoReassignmentInProgressError,
        UnknownTopicOrPartitionError. The other partitions' reassignments have begun.
        """
        self._wait(self._core.alter_partition_reassignments(reassignments, timeout_ms), timeout_ms)

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the reassignments in progress, of these partitions or of all.

        The result omits partitions that are not reassigned or do not exist.
        """
        return self._wait(self._core.list_partition_reassignments(partitions, timeout_ms), timeout_ms)

    def list_topics(self, timeout_ms: int | None = None) -> list[str]:
        """Return the names of all topics in alphabetical order, internal topics included, as one broker knows them."""
        return self._wait(self._core.list_topics(timeout_ms), timeout_ms)

    def describe_topics(
        self, topics: Iterable[str] | None = None, timeout_ms: int | None = None
    ) -> list[TopicDescription]:
        """Describe the named topics in the given order, or all, internal ones included, in alphabetical order.

        A partition has its leader, leader epoch, replicas, ISR, log start offset, high watermark, log end offset and
        lag. Values that only the leader knows are None if the leader does not answer within 2 s. Raises
        UnknownTopicOrPartitionError for a topic that does not exist.
        """
        return self._wait(self._core.describe_topics(topics, timeout_ms), timeout_ms)

    def describe_times(self, topic: str, timeout_ms: int | None = None) -> list[PartitionTimes]:
        """Return each partition's size and time span, in the order of the partitions.

        If a partition's leader does not answer a request within 3 s, the values in question are None. `error` is then
        set, unless only the size is unknown. Raises UnknownTopicOrPartitionError if the topic does not exist.
        `tidelog.client.admin.timestamp_skew.find_skew` reports which timestamps make look-ups by time surprising.
        """
        return self._wait(self._core.describe_times(topic, timeout_ms), timeout_ms)

    def describe_cluster(self, timeout_ms: int | None = None) -> ClusterDescription:
        """Return the cluster's id, kind, controller (−1: none), and its live brokers and their racks by id.

        They are as one broker knows them now.
        """
        return self._wait(self._core.describe_cluster(timeout_ms), timeout_ms)

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        timeout_ms: int | None = None,
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return the settings of topics and brokers by name, each with its value, source and further properties.

        Raises the first resource's error, for example UnknownTopicOrPartitionError or BrokerNotAvailableError.
        """
        call = self._core.describe_configs(
            resources, timeout_ms, include_synonyms=include_synonyms, include_documentation=include_documentation
        )
        return self._wait(call, timeout_ms)

    def alter_configs(
        self, configs: Mapping[ConfigResource, Changes], timeout_ms: int | None = None, *, validate_only: bool = False
    ) -> None:
        """Change the named settings and leave the others: `{ConfigResource.topic("t"): {"retention.ms": "60000"}}`.

        A value of None deletes a setting. ConfigChange objects in place of the mapping append to lists and subtract
        from them. The call returns when the changes are stored; the brokers apply them a moment later. With
        `validate_only` nothing is stored. Raises the first resource's error; the changes of other resources may be
        stored. InvalidConfigError names the setting (also one that a broker cannot change while it runs).
        """
        self._wait(self._core.alter_configs(configs, timeout_ms, validate_only=validate_only), timeout_ms)

    def partition_facts(self, partition: TopicPartition, timeout_ms: int | None = None) -> PartitionFacts:
        """Return the metadata of a partition, and the report of each live broker with a replica.

        A broker that does not answer within 3 s has the reason instead of a report. Raises
        UnknownTopicOrPartitionError. `tidelog.client.diagnosis.explain_partition.explain` interprets the result.
        """
        return self._wait(self._core.partition_facts(partition, timeout_ms), timeout_ms)

    def delete_records(
        self, before: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete all records below each partition's offset; −1 means all records below the high watermark.

        Returns each partition's new log start offset when every live replica has applied it. Raises
        OffsetOutOfRangeError if an offset is above the high watermark, and PolicyViolationError if the topic is
        compacted only; records of other partitions may be deleted. TimeoutError means that a leader or a live replica
        did not follow in time; records may be deleted.
        """
        return self._wait(self._core.delete_records(before, timeout_ms), timeout_ms)

    def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, timeout_ms: int | None = None
    ) -> dict[int, tuple[LogDir, ...]]:
        """Return the log directories of these brokers, by broker id; None chooses all live brokers.

        Each directory has its error, the size and free space of its disk, and the sizes of its logs. Raises
        BrokerNotAvailableError for a broker that is not in the cluster, and TimeoutError if a broker does not answer.
        """
        return self._wait(self._core.describe_log_dirs(brokers, timeout_ms), timeout_ms)

    def alter_replica_log_dirs(
        self, broker: int, log_dirs: Mapping[TopicPartition, str], timeout_ms: int | None = None
    ) -> None:
        """Begin to move this broker's replicas of partitions to other log directories of this broker.

        `log_dirs` has the absolute path of the directory for each partition. Returns when the moves have begun;
        `describe_log_dirs` shows their progress. The replicas are read and written meanwhile. A move to the directory
        in which the log already lies ends a move to another one.

        Raises LogDirNotFoundError for a path that is no log directory of the broker, StorageError if the directory or
        the replica is offline, and BrokerNotAvailableError for a broker that is not in the cluster. Raises
        ReplicaNotAvailableError if the broker has no replica of a partition. The broker then remembers the directory
        until it stops, and creates a later replica there.
        """
        self._wait(self._core.alter_replica_log_dirs(broker, log_dirs, timeout_ms), timeout_ms)

    def describe_clients(
        self, brokers: Iterable[int] | None = None, topics: Iterable[str] | None = None, timeout_ms: int | None = None
    ) -> dict[int, tuple[ConnectionReport, ...] | TidelogError]:
        """Return the connections of clients to these brokers, or to all live ones, by broker id.

        A broker that does not answer or is not in the cluster has its error instead. With `topics`, only connections
        that read or write one of them are returned.
        """
        return self._wait(self._core.describe_clients(brokers, topics, timeout_ms), timeout_ms)

    def list_zookeeper_groups(self, timeout_ms: int | None = None) -> list[str]:
        """Return the names of the groups that have offsets in ZooKeeper, in alphabetical order.

        OffsetCommit requests of version 0 store offsets there.
        """
        return self._wait(self._core.list_zookeeper_groups(timeout_ms), timeout_ms)

    def list_zookeeper_group_offsets(
        self, group_id: str, timeout_ms: int | None = None
    ) -> dict[TopicPartition, ZooKeeperOffset]:
        """Return a group's offsets in ZooKeeper by partition; empty if the group has none there.

        An entry has an error if the cluster does not have the partition any more, or if the value is not an offset.
        Raises InvalidGroupIdError for a name that ZooKeeper cannot hold.
        """
        return self._wait(self._core.list_zookeeper_group_offsets(group_id, timeout_ms), timeout_ms)

    def alter_zookeeper_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> None:
        """Commit a group's offsets to ZooKeeper, as consumers of OffsetCommit version 0 do.

        Raises the error of the first partition that failed, with the errors of the other partitions in `others`; the
        remaining offsets are committed.
        """
        self._wait(self._core.alter_zookeeper_group_offsets(group_id, offsets, timeout_ms), timeout_ms)

    def migrate_zookeeper_group(
        self, group_id: str, timeout_ms: int | None = None, *, force: bool = False, execute: bool = False
    ) -> dict[TopicPartition, OffsetMigration]:
        """Return a plan to copy a group's offsets from ZooKeeper to its coordinator; with `execute`, commit them.

        The plan has each partition's outcome, after `execute` with the errors of refused commits. An offset for which
        the coordinator has a later commit is not copied, unless `force` is True. The offsets in ZooKeeper stay. Raises
        GroupIdNotFoundError if ZooKeeper has none, and NonEmptyGroupError, which names members, if the group has
        members.
        """
        call = self._core.migrate_zookeeper_group(group_id, timeout_ms, force=force, execute=execute)
        return self._wait(call, timeout_ms)

    def list_consumer_groups(self, states: Iterable[str] = (), timeout_ms: int | None = None) -> ConsumerGroupListings:
        """Return the groups that live brokers coordinate, ordered by name, in these states ("Stable", …) or in any.

        Each broker lists the groups that it coordinates. A broker that does not answer within 5 s, or is still loading
        its groups, is named in `errors`; `all()` raises an error if there is such a broker. `leaderless` names
        partitions of the offsets topic whose groups no broker lists.
        """
        return self._wait(self._core.list_consumer_groups(states, timeout_ms), timeout_ms)

    @overload
    def describe_consumer_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None, *, partial: Literal[False] = False
    ) -> dict[str, ConsumerGroupDescription]: ...

    @overload
    def describe_consumer_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None, *, partial: bool
    ) -> dict[str, ConsumerGroupDescription | TidelogError]: ...

    def describe_consumer_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None, *, partial: bool = False
    ) -> Mapping[str, ConsumerGroupDescription | TidelogError]:
        """Return the state, assignor, coordinator and members of each group; state DEAD: the group does not exist.

        The first error is raised. With `partial`, a group whose coordinator returns an error or does not answer has the
        error as its value instead, and the other groups are described.
        """
        return self._wait(self._core.describe_consumer_groups(group_ids, timeout_ms, partial=partial), timeout_ms)

    def list_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets, of these partitions (None: no commit) or of all that have one.

        For a group that does not exist the result has no commits.
        """
        return self._wait(self._core.list_consumer_group_offsets(group_id, partitions, timeout_ms), timeout_ms)

    def alter_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None = None
    ) -> dict[TopicPartition, TidelogError | None]:
        """Commit offsets for a group, and return each partition's error; None: the offset is committed.

        The group must have no members (otherwise UnknownMemberIdError in the result); a group that does not exist is
        created. The result may also have OffsetMetadataTooLargeError and UnknownTopicOrPartitionError.
        """
        return self._wait(self._core.alter_consumer_group_offsets(group_id, offsets, timeout_ms), timeout_ms)

    def delete_consumer_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TidelogError | None]:
        """Delete groups without members and their committed offsets; return each group's error; None: deleted.

        The errors are GroupIdNotFoundError, NonEmptyGroupError, and those of the group's coordinator, for example
        TimeoutError.
        """
        return self._wait(self._core.delete_consumer_groups(group_ids, timeout_ms), timeout_ms)

    def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, TidelogError | None]:
        """Delete the group's committed offsets of these partitions; return each one's error; None: deleted (KIP-496).

        A partition without a commit counts as deleted. The result has GroupSubscribedToTopicError if a member is
        subscribed to the topic, or if the group is rebalancing. Raises GroupIdNotFoundError, and NonEmptyGroupError if
        the group has members of another type than "consumer".
        """
        return self._wait(self._core.delete_consumer_group_offsets(group_id, partitions, timeout_ms), timeout_ms)

    def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove | MemberDescription], timeout_ms: int | None = None
    ) -> dict[MemberToRemove, TidelogError | None]:
        """Remove members from a group, and return each member's error; None: the member is removed (KIP-345).

        A member is named by its `member_id`, by its `group_instance_id`, or by both; the members of a group's
        description name themselves. The group rebalances at once, and does not wait for the session timeout of these
        members. A consumer that still runs joins again, so stop it first. The result may have UnknownMemberIdError,
        also if the group does not exist, and FencedInstanceIdError if another consumer has the instance id now.
        """
        return self._wait(self._core.remove_group_members(group_id, members, timeout_ms), timeout_ms)

    def consumer_group_lag(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionLag]:
        """Return how far the group is behind, in records and in time: see `PartitionLag`.

        The result covers these partitions, or all that the group has committed or that its members are assigned. A
        partition whose leader does not answer within 4 s has its error, and unknown values are None.
        """
        return self._wait(self._core.consumer_group_lag(group_id, partitions, timeout_ms), timeout_ms)

    def reset_consumer_group_offsets(
        self,
        group_id: str,
        target: ResetTarget,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
        *,
        execute: bool = False,
    ) -> dict[TopicPartition, OffsetReset]:
        """Return the offsets to which a group would be reset; with `execute`, commit them.

        `target` comes from `tidelog.groups.reset`: ToEarliest(), ToLatest(), ToCurrent(), ToOffset(n), ShiftBy(±n) or
        ToTime(t). The reset covers these partitions, or all that the group has committed, and stays within the log.
        Without `execute` a partition that cannot be reset has its error in the plan; with `execute` the first such
        error is raised before anything is committed, and later errors of the coordinator are in the result. Raises
        NonEmptyGroupError, which names members, if the group has members, and GroupIdNotFoundError if the group does
        not exist and no `partitions` are given.
        """
        call = self._core.reset_consumer_group_offsets(group_id, target, partitions, timeout_ms, execute=execute)
        return self._wait(call, timeout_ms)

    def metrics(self) -> Metrics:
        """Return a snapshot of this admin's metrics, under Kafka's names: `metrics()["admin-client-metrics"][name]`.

        Any thread may call this method at any time, also after `close`. Totals, averages and maxima count from the
        start of the admin. A value that is not known yet is NaN. `print` shows each metric on a line.

        connection-count, connection-creation-total     open connections, and all that were opened
        request-total, response-total       requests sent, and requests answered
        requests-in-flight          requests that have neither an answer nor an error yet
        request-latency-avg, -max   time from a request to its answer (ms)
        throttle-time-max           longest time for which a broker has throttled this client (ms, KIP-219)
        metadata-age                time since the last answer with metadata (s)
        """
        return self._core.metrics()
