"""Implement the admin for asyncio programs; the synchronous admin uses it as its core."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload

from tidelog import arguments
from tidelog.aio.group_admin import GroupAdmin
from tidelog.aio.group_migration import migrate_offsets
from tidelog.aio.offset_reset import reset_offsets
from tidelog.aio.partition_admin import PartitionAdmin
from tidelog.client.admin import admin_arguments, client_requests, config_requests, log_dir_requests, record_deletion
from tidelog.client.admin.admin_results import ClusterDescription, TopicDescription, describe_partition
from tidelog.client.admin.config_requests import Changes, ConfigResource
from tidelog.client.admin.partition_offsets import ask_leaders
from tidelog.client.admin.topic_time_spans import PartitionTimes, describe_times
from tidelog.client.cluster_client import ClusterClient
from tidelog.client.controller_requests import ControllerRequests, about_topic
from tidelog.client.diagnosis.explain_partition import PartitionFacts
from tidelog.client.diagnosis.gather_replica_status import ask_facts
from tidelog.client.environment import ClientEnvironment
from tidelog.client.help import client_repr, shows_settings
from tidelog.client.metrics.snapshot import Metrics, admin_metrics
from tidelog.client.settings import AdminOptions, AdminSettings, BootstrapServers, make_settings
from tidelog.client.tasks.lifecycle import LoopBound
from tidelog.display.listing import ByBroker, ByGroup, Errors, ErrorsByGroup, Listing, Table
from tidelog.errors import (
    ClosedError,
    RequestTimedOutError,
    TidelogError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    error_for,
    raise_first,
)
from tidelog.groups import zookeeper_requests
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
from tidelog.protocol.messages import (
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
)
from tidelog.protocol.operator_messages import ConnectionReport
from tidelog.protocol.partition_messages import ElectionType, NewPartitions, PartitionReassignment

#: How long a description waits for leaders that are missing or do not answer; it shows these leaders as missing.
DESCRIBE_TIME_LIMIT_MS = 2_000


@shows_settings(AdminSettings, AdminOptions)
class Admin(LoopBound):
    """Create, delete, describe and configure topics, and manage consumer groups; see `tidelog.Admin` for the settings.

    client                           the connections and the metadata that all calls share
    controller, partitions, groups   the parts that send the requests

    Example:

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            print(await admin.list_topics())
    """

    def __init__(self, bootstrap_servers: BootstrapServers | None = None, **options: Unpack[AdminOptions]) -> None:
        self._set_up(bootstrap_servers, options, ClientEnvironment())

    def _set_up(
        self, bootstrap_servers: BootstrapServers | None, options: Mapping[str, Any], environment: ClientEnvironment
    ) -> None:
        self.settings = make_settings(AdminSettings, bootstrap_servers, options)
        self.clock = environment.clock
        self.client = ClusterClient(self.settings, clock=self.clock, opener=environment.opener, rng=environment.rng)
        self.controller = ControllerRequests(self.client, self.clock, self.settings.request_timeout_ms)
        self.partitions = PartitionAdmin(self.client, self.controller)
        self.groups = GroupAdmin(self.client)
        self.closed = False

    async def create_topics(
        self, topics: Iterable[NewTopic], timeout_ms: int | None = None, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Create topics; return each topic's id, number of partitions and replication factor, in the given order.

        The call returns when every partition has a leader that this client sees. Raises the first topic's error; the
        other topics may have been created. After a TimeoutError the topics may exist. With `validate_only` nothing is
        created, and the result says what would be created.
        """
        wanted = admin_arguments.new_topics("topics", topics)
        validate_only, deadline_ms = arguments.flag("validate_only", validate_only), self._deadline_ms(timeout_ms)
        self._client()
        answer = await self.controller.ask(
            lambda left_ms: CreateTopicsRequest(wanted, left_ms, validate_only),
            CreateTopicsResponse,
            deadline_ms,
            refusals=lambda answer: map(_error_in, answer.topics),
            done_before=(TopicAlreadyExistsError,),
        )
        if validate_only:
            return Listing(answer.topics)
        for topic in wanted:
            await self.controller.await_leaders(topic.name, deadline_ms)
        return Listing(self._as_seen(created) if created.error_code else created for created in answer.topics)

    def _as_seen(self, created: CreatedTopic) -> CreatedTopic:
        """Return the entry of a creation whose answer was lost, made from the topic's metadata in the view."""
        view = self._client().view.topics[created.name]
        replicas = next(iter(view.partitions.values())).replicas
        return CreatedTopic(created.name, 0, None, view.topic_id, len(view.partitions), len(replicas))

    async def delete_topics(self, topics: Sequence[str], timeout_ms: int | None = None) -> None:
        """Delete topics; return when all live brokers and ZooKeeper have deleted them.

        Raises the first topic's error, for example UnknownTopicOrPartitionError; the other topics are deleted. After a
        RequestTimedOutError or a TimeoutError the deletion may be in progress.
        """
        names = tuple(arguments.texts("topics", topics))
        deadline_ms = self._deadline_ms(timeout_ms)
        self._client()
        await self.controller.ask(
            lambda left_ms: DeleteTopicsRequest(names, left_ms),
            DeleteTopicsResponse,
            deadline_ms,
            refusals=lambda answer: map(_error_in, answer.topics),
            done_before=(UnknownTopicOrPartitionError,),
        )
        for name in names:
            self.client.forget(name)

    async def create_partitions(
        self, topics: Iterable[NewPartitions], timeout_ms: int | None = None, validate_only: bool = False
    ) -> None:
        """Extend topics to `total_count` partitions; return when every partition has a leader that this client sees.

        Raises the first topic's error; the other topics may have been extended. InvalidPartitionsError: the new number
        is not larger. Later records with a key may go to another partition than earlier records with the same key. With
        `validate_only` nothing changes.
        """
        wanted = admin_arguments.new_partitions("topics", topics)
        validate_only, deadline_ms = arguments.flag("validate_only", validate_only), self._deadline_ms(timeout_ms)
        self._client()
        await self.partitions.create(wanted, deadline_ms, validate_only)

    async def elect_leaders(
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
        election_type = arguments.choice("election_type", election_type, ElectionType)
        wanted, deadline_ms = _optional_partitions(partitions), self._deadline_ms(timeout_ms)
        self._client()
        return Errors(await self.partitions.elect(election_type, wanted, deadline_ms))

    async def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int | None = None
    ) -> None:
        """Begin to move partitions to these replicas, the preferred leader first; None cancels a reassignment.

        The call returns when ZooKeeper has the reassignments; `list_partition_reassignments` shows what is in progress.
        Raises the first error: InvalidReplicaAssignmentError, NoReassignmentInProgressError,
        UnknownTopicOrPartitionError. The other partitions' reassignments have begun.
        """
        wanted = admin_arguments.replicas_by_partition("reassignments", reassignments)
        deadline_ms = self._deadline_ms(timeout_ms)
        self._client()
        await self.partitions.reassign(wanted, deadline_ms)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the reassignments in progress, of these partitions or of all.

        The result omits partitions that are not reassigned or do not exist.
        """
        wanted, deadline_ms = _optional_partitions(partitions), self._deadline_ms(timeout_ms)
        self._client()
        return Table(await self.partitions.reassignments(wanted, deadline_ms))

    async def list_topics(self, timeout_ms: int | None = None) -> list[str]:
        """Return the names of all topics in alphabetical order, internal topics included, as one broker knows them."""
        answer = await self._client().fetch_all(self._deadline_ms(timeout_ms))
        return sorted(topic.name for topic in answer.topics if not topic.error_code or topic.partitions)

    async def describe_topics(
        self, topics: Iterable[str] | None = None, timeout_ms: int | None = None
    ) -> list[TopicDescription]:
        """Describe the named topics in the given order, or all, internal ones included, in alphabetical order.

        A partition has its leader, leader epoch, replicas, ISR, log start offset, high watermark, log end offset and
        lag. Values that only the leader knows are None if the leader does not answer within 2 s. Brokers of Kafka do
        not tell the log end offset and the lag. Raises UnknownTopicOrPartitionError for a topic that does not exist.
        """
        deadline_ms = self._deadline_ms(timeout_ms)
        names = None if topics is None else arguments.topics("topics", topics)
        client = self._client()
        if names is None:
            names = await self.list_topics(timeout_ms)
        client.track(*names)
        await client.wait_for_metadata(deadline_ms)
        await client.refresh(deadline_ms)
        views = [await client.topic(name, deadline_ms) for name in names]
        partitions = [TopicPartition(view.name, number) for view in views for number in view.partitions]
        time_limit_ms = max(1, min(DESCRIBE_TIME_LIMIT_MS, deadline_ms - self.clock.monotonic_ms()))
        answers = await ask_leaders(client, partitions, time_limit_ms)
        views = [client.view.topics.get(view.name, view) for view in views]
        return Listing(
            TopicDescription(
                view.name,
                view.topic_id,
                view.is_internal,
                tuple(
                    describe_partition(
                        known,
                        answers.replicas.get(tp := TopicPartition(view.name, number)),
                        answers.ends.get(tp),
                    )
                    for number, known in sorted(view.partitions.items())
                ),
            )
            for view in views
        )

    async def describe_times(self, topic: str, timeout_ms: int | None = None) -> list[PartitionTimes]:
        """Return each partition's size and time span, in the order of the partitions.

        If a partition's leader does not answer a request within 3 s, the values in question are None. `error` is then
        set, unless only the size is unknown. Raises UnknownTopicOrPartitionError if the topic does not exist.
        `tidelog.client.admin.timestamp_skew.find_skew` reports which timestamps make look-ups by time surprising.
        """
        name, deadline_ms = arguments.topic("topic", topic), self._deadline_ms(timeout_ms)
        return Listing(await describe_times(self._client(), name, deadline_ms))

    async def describe_cluster(self, timeout_ms: int | None = None) -> ClusterDescription:
        """Return the cluster's id, kind, controller (−1: none), and its live brokers and their racks by id.

        They are as one broker knows them now.
        """
        client = self._client()
        deadline_ms = self._deadline_ms(timeout_ms)
        await client.wait_for_metadata(deadline_ms)
        await client.refresh(deadline_ms)
        view = client.view
        brokers = dict(sorted(view.brokers.items()))
        racks = dict(sorted(view.racks.items()))
        return ClusterDescription(view.cluster_id, view.controller_id, brokers, client.cluster_kind, racks)

    async def describe_configs(
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
        wanted, deadline_ms = admin_arguments.resources("resources", resources), self._deadline_ms(timeout_ms)
        described = await config_requests.describe_configs(
            self._client(),
            wanted,
            deadline_ms,
            include_synonyms=arguments.flag("include_synonyms", include_synonyms),
            include_documentation=arguments.flag("include_documentation", include_documentation),
        )
        return Table({resource: Table(entries) for resource, entries in described.items()})

    async def alter_configs(
        self, configs: Mapping[ConfigResource, Changes], timeout_ms: int | None = None, *, validate_only: bool = False
    ) -> None:
        """Change the named settings and leave the others: `{ConfigResource.topic("t"): {"retention.ms": "60000"}}`.

        A value of None deletes a setting. ConfigChange objects in place of the mapping append to lists and subtract
        from them. The call returns when the changes are stored; the brokers apply them a moment later. With
        `validate_only` nothing is stored. Raises the first resource's error; the changes of other resources may be
        stored. InvalidConfigError names the setting (also one that a broker cannot change while it runs).
        """
        wanted = admin_arguments.config_changes("configs", configs)
        validate_only, deadline_ms = arguments.flag("validate_only", validate_only), self._deadline_ms(timeout_ms)
        await config_requests.alter_configs(self._client(), wanted, deadline_ms, validate_only=validate_only)

    async def partition_facts(self, partition: TopicPartition, timeout_ms: int | None = None) -> PartitionFacts:
        """Return the metadata of a partition, and the report of each live broker with a replica.

        A broker that does not answer within 3 s has the reason instead of a report. Raises
        UnknownTopicOrPartitionError. `tidelog.client.diagnosis.explain_partition.explain` interprets the result.
        """
        tp, deadline_ms = arguments.partition("partition", partition), self._deadline_ms(timeout_ms)
        return await ask_facts(self._client(), tp, deadline_ms)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete all records below each partition's offset; −1 means all records below the high watermark.

        Returns each partition's new log start offset when every live replica has applied it. Raises
        OffsetOutOfRangeError if an offset is above the high watermark, and PolicyViolationError if the topic is
        compacted only; records of other partitions may be deleted. TimeoutError means that a leader or a live replica
        did not follow in time; records may be deleted.
        """
        wanted = arguments.offsets_by_partition("before", before, least=-1)
        return Table(await record_deletion.delete_records(self._client(), wanted, self._timeout_ms(timeout_ms)))

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, timeout_ms: int | None = None
    ) -> dict[int, tuple[LogDir, ...]]:
        """Return the log directories of these brokers, by broker id; None chooses all live brokers.

        Each directory has its error, the size and free space of its disk, and the sizes of its logs. Raises
        BrokerNotAvailableError for a broker that is not in the cluster, and TimeoutError if a broker does not answer.
        """
        wanted = None if brokers is None else arguments.broker_ids("brokers", brokers)
        deadline_ms = self._deadline_ms(timeout_ms)
        return ByBroker(await log_dir_requests.describe_log_dirs(self._client(), wanted, deadline_ms))

    async def alter_replica_log_dirs(
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
        (broker_id,) = arguments.broker_ids("broker", [broker])
        wanted = arguments.log_dirs("log_dirs", log_dirs)
        deadline_ms = self._deadline_ms(timeout_ms)
        await log_dir_requests.alter_replica_log_dirs(self._client(), broker_id, wanted, deadline_ms)

    async def describe_clients(
        self, brokers: Iterable[int] | None = None, topics: Iterable[str] | None = None, timeout_ms: int | None = None
    ) -> dict[int, tuple[ConnectionReport, ...] | TidelogError]:
        """Return the connections of clients to these brokers, or to all live ones, by broker id.

        A broker that does not answer or is not in the cluster has its error instead. With `topics`, only connections
        that read or write one of them are returned.
        """
        wanted = None if brokers is None else arguments.broker_ids("brokers", brokers)
        named = () if topics is None else arguments.topics("topics", topics)
        deadline_ms = self._deadline_ms(timeout_ms)
        return ByBroker(await client_requests.describe_clients(self._client(), wanted, named, deadline_ms))

    async def list_zookeeper_groups(self, timeout_ms: int | None = None) -> list[str]:
        """Return the names of the groups that have offsets in ZooKeeper, in alphabetical order.

        OffsetCommit requests of version 0 store offsets there.
        """
        return await zookeeper_requests.list_groups(self._client(), self._deadline_ms(timeout_ms))

    async def list_zookeeper_group_offsets(
        self, group_id: str, timeout_ms: int | None = None
    ) -> dict[TopicPartition, ZooKeeperOffset]:
        """Return a group's offsets in ZooKeeper by partition; empty if the group has none there.

        An entry has an error if the cluster does not have the partition any more, or if the value is not an offset.
        Raises InvalidGroupIdError for a name that ZooKeeper cannot hold.
        """
        name, deadline_ms = arguments.group_id("group_id", group_id), self._deadline_ms(timeout_ms)
        return Table(await zookeeper_requests.group_offsets(self._client(), name, deadline_ms))

    async def alter_zookeeper_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> None:
        """Commit a group's offsets to ZooKeeper, as consumers of OffsetCommit version 0 do.

        Raises the error of the first partition that failed, with the errors of the other partitions in `others`; the
        remaining offsets are committed.
        """
        name, wanted = arguments.group_id("group_id", group_id), arguments.offsets_by_partition("offsets", offsets)
        deadline_ms = self._deadline_ms(timeout_ms)
        await zookeeper_requests.commit_offsets(self._client(), name, wanted, deadline_ms)

    async def migrate_zookeeper_group(
        self, group_id: str, timeout_ms: int | None = None, *, force: bool = False, execute: bool = False
    ) -> dict[TopicPartition, OffsetMigration]:
        """Return a plan to copy a group's offsets from ZooKeeper to its coordinator; with `execute`, commit them.

        The plan has each partition's outcome, after `execute` with the errors of refused commits. An offset for which
        the coordinator has a later commit is not copied, unless `force` is True. The offsets in ZooKeeper stay. Raises
        GroupIdNotFoundError if ZooKeeper has none, and NonEmptyGroupError, which names members, if the group has
        members.
        """
        name, deadline_ms = arguments.group_id("group_id", group_id), self._deadline_ms(timeout_ms)
        force, execute = arguments.flag("force", force), arguments.flag("execute", execute)
        plan = await migrate_offsets(self.client, self._groups(), name, deadline_ms, force=force, execute=execute)
        return Table(plan)

    async def list_consumer_groups(
        self, states: Iterable[str] = (), timeout_ms: int | None = None
    ) -> ConsumerGroupListings:
        """Return the groups that live brokers coordinate, ordered by name, in these states ("Stable", …) or in any.

        Each broker lists the groups that it coordinates. A broker that does not answer within 5 s, or is still loading
        its groups, is named in `errors`; `all()` raises an error if there is such a broker. `leaderless` names
        partitions of the offsets topic whose groups no broker lists.
        """
        wanted, deadline_ms = arguments.texts("states", states), self._deadline_ms(timeout_ms)
        return await self._groups().list(wanted, deadline_ms)

    @overload
    async def describe_consumer_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None, *, partial: Literal[False] = False
    ) -> dict[str, ConsumerGroupDescription]: ...

    @overload
    async def describe_consumer_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None, *, partial: bool
    ) -> dict[str, ConsumerGroupDescription | TidelogError]: ...

    async def describe_consumer_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None, *, partial: bool = False
    ) -> Mapping[str, ConsumerGroupDescription | TidelogError]:
        """Return the state, assignor, coordinator and members of each group; state DEAD: the group does not exist.

        The first error is raised. With `partial`, a group whose coordinator returns an error or does not answer has the
        error as its value instead, and the other groups are described.
        """
        names, deadline_ms = arguments.group_ids("group_ids", group_ids), self._deadline_ms(timeout_ms)
        partial = arguments.flag("partial", partial)
        described = await self._groups().describe(names, deadline_ms)
        if not partial:
            raise_first(each for each in described.values() if isinstance(each, TidelogError))
        return ByGroup(described)

    async def list_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets, of these partitions (None: no commit) or of all that have one.

        For a group that does not exist the result has no commits.
        """
        name, wanted = arguments.group_id("group_id", group_id), _optional_partitions(partitions)
        deadline_ms = self._deadline_ms(timeout_ms)
        return Table(await self._groups().offsets(name, wanted, deadline_ms))

    async def alter_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None = None
    ) -> dict[TopicPartition, TidelogError | None]:
        """Commit offsets for a group, and return each partition's error; None: the offset is committed.

        The group must have no members (otherwise UnknownMemberIdError in the result); a group that does not exist is
        created. The result may also have OffsetMetadataTooLargeError and UnknownTopicOrPartitionError.
        """
        name, wanted = arguments.group_id("group_id", group_id), arguments.commits("offsets", offsets)
        deadline_ms = self._deadline_ms(timeout_ms)
        return Errors(await self._groups().alter_offsets(name, wanted, deadline_ms))

    async def delete_consumer_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TidelogError | None]:
        """Delete groups without members and their committed offsets; return each group's error; None: deleted.

        The errors are GroupIdNotFoundError, NonEmptyGroupError, and those of the group's coordinator, for example
        TimeoutError.
        """
        names, deadline_ms = arguments.group_ids("group_ids", group_ids), self._deadline_ms(timeout_ms)
        return ErrorsByGroup(await self._groups().delete(names, deadline_ms))

    async def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, TidelogError | None]:
        """Delete the group's committed offsets of these partitions; return each one's error; None: deleted (KIP-496).

        A partition without a commit counts as deleted. The result has GroupSubscribedToTopicError if a member is
        subscribed to the topic, or if the group is rebalancing. Raises GroupIdNotFoundError, and NonEmptyGroupError if
        the group has members of another type than "consumer".
        """
        name, wanted = arguments.group_id("group_id", group_id), arguments.partitions("partitions", partitions)
        deadline_ms = self._deadline_ms(timeout_ms)
        return Errors(await self._groups().delete_offsets(name, wanted, deadline_ms))

    async def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove | MemberDescription], timeout_ms: int | None = None
    ) -> dict[MemberToRemove, TidelogError | None]:
        """Remove members from a group, and return each member's error; None: the member is removed (KIP-345).

        See `tidelog.Admin.remove_group_members`.
        """
        name, wanted = arguments.group_id("group_id", group_id), admin_arguments.members_to_remove("members", members)
        deadline_ms = self._deadline_ms(timeout_ms)
        return Errors(await self._groups().remove_members(name, wanted, deadline_ms))

    async def consumer_group_lag(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionLag]:
        """Return how far the group is behind, in records and in time: see `PartitionLag`.

        The result covers these partitions, or all that the group has committed or that its members are assigned. A
        partition whose leader does not answer within 4 s has its error, and unknown values are None.
        """
        name, wanted = arguments.group_id("group_id", group_id), _optional_partitions(partitions)
        deadline_ms = self._deadline_ms(timeout_ms)
        return Table(await self._groups().lag(name, wanted, deadline_ms))

    async def reset_consumer_group_offsets(
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
        name, target = arguments.group_id("group_id", group_id), admin_arguments.reset_target("target", target)
        wanted, deadline_ms = _optional_partitions(partitions), self._deadline_ms(timeout_ms)
        execute, groups = arguments.flag("execute", execute), self._groups()
        return Table(await reset_offsets(self.client, groups, name, target, wanted, deadline_ms, execute=execute))

    def metrics(self) -> Metrics:
        """Return a snapshot of this admin's metrics; see `tidelog.Admin.metrics`."""
        return admin_metrics(self.client.metrics, self.clock.monotonic_ms())

    async def close(self) -> None:
        """Cancel the background tasks, and close all connections, so that calls in progress fail. Idempotent."""
        if self.closed:
            return
        self._enter_loop()
        self.closed = True
        await self.client.close()

    async def __aenter__(self) -> Self:
        self._client()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return client_repr(self, self.settings, closed=self.closed)

    # --- helpers ----------------------------------------------------------------------------------

    def _client(self) -> ClusterClient:
        if self.closed:
            raise ClosedError("the admin is closed")
        self._enter_loop()
        self.client.background.raise_failure()
        return self.client

    def _groups(self) -> GroupAdmin:
        self._client()
        return self.groups

    def _deadline_ms(self, timeout_ms: int | None) -> int:
        return self.clock.monotonic_ms() + self._timeout_ms(timeout_ms)

    def _timeout_ms(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self.settings.default_api_timeout_ms
        return arguments.timeout_ms("timeout_ms", timeout_ms)


def _optional_partitions(partitions: Iterable[TopicPartition] | None) -> list[TopicPartition] | None:
    return None if partitions is None else arguments.partitions("partitions", partitions)


def _error_in(topic: CreatedTopic | DeletedTopic) -> TidelogError | None:
    if topic.error_code == UnknownTopicOrPartitionError.code:
        return UnknownTopicOrPartitionError(f"topic {topic.name!r} does not exist")
    if topic.error_code == RequestTimedOutError.code and isinstance(topic, CreatedTopic) and topic.topic_id:
        return None  # the topic is created, so the caller waits for its leaders; without an id it may not be created
    error = error_for(topic.error_code)
    return error and type(error)(about_topic(topic.name, topic.error_message or str(error)))
