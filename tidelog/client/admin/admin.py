"""The admin for ordinary programs: each call is answered by the asyncio one on an I/O thread."""

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
from tidelog.client.settings import AdminOptions, AdminSettings, BootstrapServers
from tidelog.errors import TidelogError
from tidelog.groups.descriptions import ConsumerGroupDescription, ConsumerGroupListings
from tidelog.groups.lag import PartitionLag
from tidelog.groups.migration import OffsetMigration
from tidelog.groups.reset import OffsetReset, ResetTarget
from tidelog.groups.zookeeper_requests import ZooKeeperOffset
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.protocol.admin_messages import ConfigEntry, LogDir
from tidelog.protocol.messages import CreatedTopic, NewTopic
from tidelog.protocol.partition_messages import ElectionType, NewPartitions, PartitionReassignment


@shows_settings(AdminSettings, AdminOptions)
class Admin(BlockingClient[AsyncAdmin]):
    """Creates, deletes and describes topics, and looks after consumer groups.

    bootstrap_servers       "host:port,host:port" or a list; by default $TIDELOG_BOOTSTRAP_SERVERS, else the cluster of
                            this user's last `tidelog up`
    default_api_timeout_ms, request_timeout_ms, retry_backoff_ms, retry_backoff_max_ms, metadata_max_age_ms,
    bootstrap_timeout_ms, client_id

    `timeout_ms` is by default `default_api_timeout_ms` (1 min).

    Calls find the controller and the leaders by themselves and raise NoBrokersError, TimeoutError, or what refuses:
    of several refusals the first, which has the errors of the other topics or partitions in `others`.
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
        """Returns when every partition has a leader. The first topic's refusal is raised."""
        return self._wait(self._core.create_topics(topics, timeout_ms, validate_only), timeout_ms)

    def delete_topics(self, topics: Sequence[str], timeout_ms: int | None = None) -> None:
        """UnknownTopicOrPartitionError and other refusals are raised, the first topic's."""
        self._wait(self._core.delete_topics(topics, timeout_ms), timeout_ms)

    def create_partitions(
        self, topics: Iterable[NewPartitions], timeout_ms: int | None = None, validate_only: bool = False
    ) -> None:
        """Gives topics more partitions; returns when every one has a leader. The first topic's refusal is raised.

        InvalidPartitionsError where a topic would not get more than it has. Records with a key may go to another
        partition from now on than those before them.
        """
        self._wait(self._core.create_partitions(topics, timeout_ms, validate_only), timeout_ms)

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, TidelogError | None]:
        """What came of each partition's election; None: it has the leader that was wished for.

        Without `partitions` all of them, and those that needed no election are left out.
        """
        return self._wait(self._core.elect_leaders(election_type, partitions, timeout_ms), timeout_ms)

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int | None = None
    ) -> None:
        """Begins to move partitions to these replicas, the preferred leader first; None turns a move back.

        Returns when that is written down; `list_partition_reassignments` tells what is in progress. The first refusal
        is raised: InvalidReplicaAssignmentError, NoReassignmentInProgressError, UnknownTopicOrPartitionError.
        """
        self._wait(self._core.alter_partition_reassignments(reassignments, timeout_ms), timeout_ms)

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments in progress, of these partitions or of all."""
        return self._wait(self._core.list_partition_reassignments(partitions, timeout_ms), timeout_ms)

    def list_topics(self, timeout_ms: int | None = None) -> list[str]:
        """All names in order, the cluster's own topics included."""
        return self._wait(self._core.list_topics(timeout_ms), timeout_ms)

    def describe_topics(
        self, topics: Iterable[str] | None = None, timeout_ms: int | None = None
    ) -> list[TopicDescription]:
        """The named topics, or all: leader, epoch, ISR, high watermark, log end offset and lag of each partition.

        What only a leader knows is None for a partition whose leader does not answer within 2 s.
        """
        return self._wait(self._core.describe_topics(topics, timeout_ms), timeout_ms)

    def describe_times(self, topic: str, timeout_ms: int | None = None) -> list[PartitionTimes]:
        """How much each partition holds and of which times; who has no answering leader has the error instead.

        `tidelog.client.admin.timestamp_skew.find_skew` says what of it makes look-ups by time surprising.
        """
        return self._wait(self._core.describe_times(topic, timeout_ms), timeout_ms)

    def describe_cluster(self, timeout_ms: int | None = None) -> ClusterDescription:
        """Its id, controller and live brokers, as the answering broker sees them now."""
        return self._wait(self._core.describe_cluster(timeout_ms), timeout_ms)

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        timeout_ms: int | None = None,
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Each resource's settings by name, with value and source; of topics and brokers.

        UnknownTopicOrPartitionError, BrokerNotAvailableError and other refusals are raised, the first resource's.
        """
        call = self._core.describe_configs(
            resources, timeout_ms, include_synonyms=include_synonyms, include_documentation=include_documentation
        )
        return self._wait(call, timeout_ms)

    def alter_configs(
        self, configs: Mapping[ConfigResource, Changes], timeout_ms: int | None = None, *, validate_only: bool = False
    ) -> None:
        """Changes the named settings and leaves the others: `{ConfigResource.topic("t"): {"retention.ms": "60000"}}`.

        A value of None deletes a setting; ConfigChange objects in place of the mapping append to lists and subtract
        from them. Returns when it is written; the brokers obey a moment later. With `validate_only` nothing is written.
        InvalidConfigError (also for a broker's settings, which are read-only) names the setting.
        """
        self._wait(self._core.alter_configs(configs, timeout_ms, validate_only=validate_only), timeout_ms)

    def partition_facts(self, partition: TopicPartition, timeout_ms: int | None = None) -> PartitionFacts:
        """What each broker with a replica knows of the partition; `tidelog.client.diagnosis.explain_partition.explain`
        makes sense of it.
        """
        return self._wait(self._core.partition_facts(partition, timeout_ms), timeout_ms)

    def delete_records(
        self, before: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """All records below each partition's offset go for good; −1 stands for all that are committed.

        Returns where each partition begins then, once every live replica of it does. OffsetOutOfRangeError above the
        high watermark, PolicyViolationError for a topic that is compacted only; TimeoutError: a live replica did not
        follow in time, and the records are gone from the others.
        """
        return self._wait(self._core.delete_records(before, timeout_ms), timeout_ms)

    def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, timeout_ms: int | None = None
    ) -> dict[int, tuple[LogDir, ...]]:
        """The log directories of these brokers, or of all that live, by broker id: error, space, logs with sizes.

        BrokerNotAvailableError for one that is not in the cluster.
        """
        return self._wait(self._core.describe_log_dirs(brokers, timeout_ms), timeout_ms)

    def list_zookeeper_groups(self, timeout_ms: int | None = None) -> list[str]:
        """The groups that have offsets in ZooKeeper, where commits of version 0 lie."""
        return self._wait(self._core.list_zookeeper_groups(timeout_ms), timeout_ms)

    def list_zookeeper_group_offsets(
        self, group_id: str, timeout_ms: int | None = None
    ) -> dict[TopicPartition, ZooKeeperOffset]:
        """What a group has in ZooKeeper, also of partitions that are gone (with that error). InvalidGroupIdError."""
        return self._wait(self._core.list_zookeeper_group_offsets(group_id, timeout_ms), timeout_ms)

    def alter_zookeeper_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> None:
        """Commits into ZooKeeper, as consumers of version 0 do. The first partition's refusal is raised."""
        self._wait(self._core.alter_zookeeper_group_offsets(group_id, offsets, timeout_ms), timeout_ms)

    def migrate_zookeeper_group(
        self, group_id: str, timeout_ms: int | None = None, *, force: bool = False, execute: bool = False
    ) -> dict[TopicPartition, OffsetMigration]:
        """What a group would take over from ZooKeeper, and with `execute` takes over: commits with its coordinator.

        An offset that is committed further on stays, unless `force`d back. What stands in ZooKeeper is left there.
        GroupIdNotFoundError where nothing does; NonEmptyGroupError names the members where the group has some.
        """
        call = self._core.migrate_zookeeper_group(group_id, timeout_ms, force=force, execute=execute)
        return self._wait(call, timeout_ms)

    def list_consumer_groups(self, states: Iterable[str] = (), timeout_ms: int | None = None) -> ConsumerGroupListings:
        """The groups of every broker, in these states ("Stable", "Empty", …) or in any, by name.

        Each broker is asked for those that it coordinates. One that does not answer within 5 s, or still loads them, is
        named in `errors`; `all()` raises where there is such a one.
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
        """State, assignor, coordinator and members of each group; state DEAD: there is no such group.

        The first error is raised. With `partial` a group whose coordinator does not answer has its error for a value,
        and the others are told.
        """
        return self._wait(self._core.describe_consumer_groups(group_ids, timeout_ms, partial=partial), timeout_ms)

    def list_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed: of these partitions (None where nothing is), or of all that have something.

        A group that does not exist has committed nothing.
        """
        return self._wait(self._core.list_consumer_group_offsets(group_id, partitions, timeout_ms), timeout_ms)

    def alter_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None = None
    ) -> dict[TopicPartition, TidelogError | None]:
        """Commits in the group's place; what came of each partition, None: it is committed.

        Only a group without members can be changed so (UnknownMemberIdError); one that does not exist is made.
        OffsetMetadataTooLargeError, UnknownTopicOrPartitionError.
        """
        return self._wait(self._core.alter_consumer_group_offsets(group_id, offsets, timeout_ms), timeout_ms)

    def delete_consumer_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TidelogError | None]:
        """Groups without members go, and all that they have committed; what came of each, None: it is gone.

        GroupIdNotFoundError, NonEmptyGroupError.
        """
        return self._wait(self._core.delete_consumer_groups(group_ids, timeout_ms), timeout_ms)

    def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, TidelogError | None]:
        """What the group has committed for these goes; what came of each partition, None: it is gone (KIP-496).

        GroupSubscribedToTopicError where a member reads the topic. GroupIdNotFoundError is raised.
        """
        return self._wait(self._core.delete_consumer_group_offsets(group_id, partitions, timeout_ms), timeout_ms)

    def consumer_group_lag(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionLag]:
        """How far behind the group is, in records and in time: see `PartitionLag`.

        Of these partitions, or of all that it has committed or that its members are assigned. One whose leader does not
        answer within 4 s has its error, and what is not known of it is None.
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
        """Where a group would go on, and with `execute` goes on; `target` is of `tidelog.groups.reset`.

        ToEarliest(), ToLatest(), ToCurrent(), ToOffset(n), ShiftBy(±n) or ToTime(t), in these partitions or in all
        that it has committed; within the log. NonEmptyGroupError names the members where it has some. With `execute` it
        is all or nothing until it is written: an error of one partition is raised.
        """
        call = self._core.reset_consumer_group_offsets(group_id, target, partitions, timeout_ms, execute=execute)
        return self._wait(call, timeout_ms)
