"""Test the admin's requests about settings, old records and disks: their addressees and their results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tidelog.clients import in_memory
from tests.tidelog.fake_cluster import FakeCluster, Fault
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog import ConfigChange, ConfigOp, ConfigResource
from tidelog.aio import Admin
from tidelog.errors import (
    BrokerNotAvailableError,
    InvalidConfigError,
    InvalidRequestError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    TimeoutError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.admin_messages import (
    AlteredConfigs,
    ConfigEntry,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    DeletedRecords,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribedConfigs,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    LogDir,
)
from tidelog.protocol.messages import Request, Response
from tidelog.protocol.operator_messages import (
    ConnectionReport,
    DescribeClientsRequest,
    DescribeClientsResponse,
    TopicUse,
)

TP = TopicPartition("t", 0)


def a_report(client_id: str) -> ConnectionReport:
    none = TopicUse((), 0, True)
    return ConnectionReport(client_id, "a", "1", "10.0.0.1", -1, "KAFKA", (), none, none, 0, 0, 0, 0)


class Resources(FakeCluster):
    """Brokers that report which of them was asked.

    settings   the settings of the topics
    late       how often a deletion is not applied by all replicas in time
    """

    def __init__(self) -> None:
        super().__init__()
        self.settings: dict[str, dict[str, str]] = {}
        self.late = 0

    async def handle(self, broker: int, request: Request) -> Response:
        match request:
            case DescribeConfigsRequest(resources):
                return DescribeConfigsResponse(
                    tuple(self._describe_settings(broker, each.resource_type, each.resource_name) for each in resources)
                )
            case IncrementalAlterConfigsRequest(resources):
                return IncrementalAlterConfigsResponse(tuple(self._alter(each) for each in resources))
            case DeleteRecordsRequest(partitions):
                return DeleteRecordsResponse(
                    tuple(self._delete_records(broker, each.topic, each.partition, each.offset) for each in partitions)
                )
            case DescribeLogDirsRequest():
                return DescribeLogDirsResponse((LogDir(f"/disk{broker}", 0),))
            case DescribeClientsRequest(after, topics):
                return DescribeClientsResponse(0, (a_report(f"{broker}/{after}/{topics}"),), -1 if after else 7)
        return await super().handle(broker, request)

    def _describe_settings(self, broker: int, kind: int, name: str) -> DescribedConfigs:
        if kind == ConfigResourceType.BROKER:
            described = {"broker.id": str(broker)}
        elif name not in self.settings:
            return DescribedConfigs(kind, name, UnknownTopicOrPartitionError.code, f"topic {name!r} does not exist")
        else:
            described = self.settings[name]
        source = ConfigSource.DYNAMIC_TOPIC_CONFIG
        entries = tuple(ConfigEntry(key, value, source, ConfigType.STRING) for key, value in described.items())
        return DescribedConfigs(kind, name, 0, entries=entries)

    def _alter(self, each: Any) -> AlteredConfigs:
        for change in each.changes:
            if change.value == "wrong":
                message = f"{change.name}=wrong"
                return AlteredConfigs(each.resource_type, each.resource_name, InvalidConfigError.code, message)
        settings = self.settings.setdefault(each.resource_name, {})
        for change in each.changes:
            if change.operation == ConfigOp.DELETE:
                settings.pop(change.name)
            else:
                settings[change.name] = f"{ConfigOp(change.operation).name} {change.value}"
        return AlteredConfigs(each.resource_type, each.resource_name, 0)

    def _delete_records(self, broker: int, topic: str, number: int, offset: int) -> DeletedRecords:
        partition = self.partitions[topic][number]
        if partition.leader != broker:
            return DeletedRecords(topic, number, NotLeaderOrFollowerError.code)
        if offset > 5:
            return DeletedRecords(topic, number, OffsetOutOfRangeError.code, error_message="it ends at 5")
        if self.late:
            self.late -= 1
            return DeletedRecords(topic, number, RequestTimedOutError.code, 0)
        return DeletedRecords(topic, number, 0, 5 if offset < 0 else offset)

    def asked(self, kind: type[Request]) -> list[int]:
        return [broker for broker, request in self.requests if isinstance(request, kind)]


def an_admin(cluster: FakeCluster, **options: Any) -> Admin:
    return in_memory(Admin, cluster, clock=VirtualClock(), **options)


@on_virtual_time
async def test_broker_settings_come_from_that_broker_and_topic_settings_from_any() -> None:
    cluster = Resources()
    cluster.settings = {"a": {"flush.ms": "1"}, "b": {}}
    async with an_admin(cluster) as admin:
        topics = [ConfigResource.topic("a"), ConfigResource.topic("b")]
        brokers = [ConfigResource.broker(2), ConfigResource.broker(3)]
        described = await admin.describe_configs([*topics, *brokers])
        values = {whose.name: {name: entry.value for name, entry in each.items()} for whose, each in described.items()}
        assert values == {"a": {"flush.ms": "1"}, "b": {}, "2": {"broker.id": "2"}, "3": {"broker.id": "3"}}
        assert len(cluster.asked(DescribeConfigsRequest)) == 3, "topics share a request"


@on_virtual_time
async def test_many_topics_are_requested_in_several_requests() -> None:
    cluster = Resources()
    cluster.settings = {f"t{number}": {} for number in range(250)}
    async with an_admin(cluster) as admin:
        described = await admin.describe_configs(map(ConfigResource.topic, cluster.settings))
        assert [each.name for each in described] == list(cluster.settings)
        assert len(cluster.asked(DescribeConfigsRequest)) == 3


@on_virtual_time
async def test_settings_are_set_deleted_and_lists_appended_to() -> None:
    cluster = Resources()
    cluster.settings = {"a": {"flush.ms": "1"}}
    async with an_admin(cluster) as admin:
        await admin.alter_configs({ConfigResource.topic("a"): {"flush.ms": None, "retention.ms": "5"}})
        assert cluster.settings == {"a": {"retention.ms": "SET 5"}}
        await admin.alter_configs(
            {ConfigResource.topic("a"): [ConfigChange("cleanup.policy", "compact", ConfigOp.APPEND)]}
        )
        assert cluster.settings["a"]["cleanup.policy"] == "APPEND compact"


@on_virtual_time
async def test_change_with_a_lost_answer_is_requested_again() -> None:
    cluster = Resources()
    faults = iter([Fault.LOSE_ANSWER])
    cluster.fault_of = lambda _, request: (
        next(faults, None) if isinstance(request, IncrementalAlterConfigsRequest) else None
    )
    async with an_admin(cluster) as admin:
        await admin.alter_configs({ConfigResource.topic("a"): {"flush.ms": "5"}})
        assert cluster.settings == {"a": {"flush.ms": "SET 5"}}
        assert len(cluster.asked(IncrementalAlterConfigsRequest)) == 2


@on_virtual_time
async def test_errors_are_raised_with_the_brokers_message() -> None:
    cluster = Resources()
    cluster.create("t")
    async with an_admin(cluster) as admin:
        with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere' does not exist"):
            await admin.describe_configs([ConfigResource.topic("nowhere")])
        with pytest.raises(InvalidConfigError, match=r"flush\.ms=wrong"):
            await admin.alter_configs({ConfigResource.topic("t"): {"flush.ms": "wrong"}})
        with pytest.raises(InvalidRequestError, match="'x' is not the id"):
            await admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, "x")])
        with pytest.raises(OffsetOutOfRangeError, match="delete records of t-0: it ends at 5"):
            await admin.delete_records({TP: 6})


@on_virtual_time
async def test_clients_of_all_brokers_are_listed_part_by_part() -> None:
    async with an_admin(Resources()) as admin:
        found = await admin.describe_clients(topics=["t"])
    names = {
        broker: [each.client_id for each in answer] for broker, answer in found.items() if isinstance(answer, tuple)
    }
    assert names == {broker: [f"{broker}/0/('t',)", f"{broker}/7/('t',)"] for broker in (1, 2, 3)}


@on_virtual_time
async def test_clients_of_other_brokers_are_listed_when_one_hangs() -> None:
    cluster = Resources()
    async with an_admin(cluster) as admin:
        await admin.describe_clients()
        cluster.hung.add(2)
        found = await admin.describe_clients([1, 2, 9], timeout_ms=5000)
    assert isinstance(found[1], tuple) and len(found[1]) == 2
    assert isinstance(found[2], TimeoutError) and "broker 2 did not answer in time" in str(found[2])
    assert isinstance(found[9], BrokerNotAvailableError)


@on_virtual_time
async def test_unknown_broker_is_named_at_once_and_a_hanging_one_in_time() -> None:
    cluster = Resources()
    async with an_admin(cluster) as admin:
        begun_ms = admin.clock.monotonic_ms()
        with pytest.raises(BrokerNotAvailableError, match=r"broker 9 .* \(there are: 1, 2, 3\)"):
            await admin.describe_log_dirs([9])
        assert admin.clock.monotonic_ms() - begun_ms < 1000
        cluster.hung.add(2)
        with pytest.raises(TimeoutError, match="broker 2 did not answer in time"):
            await admin.describe_log_dirs(timeout_ms=5000)
        assert {broker: each[0].path for broker, each in (await admin.describe_log_dirs([1, 3])).items()} == {
            1: "/disk1",
            3: "/disk3",
        }


@on_virtual_time
async def test_record_deletion_is_repeated_until_every_replica_has_followed() -> None:
    cluster = Resources()
    cluster.create("t")
    async with an_admin(cluster) as admin:
        assert await admin.delete_records({TP: -1}) == {TP: 5}
        cluster.move(cluster.partitions["t"][0])
        cluster.late = 2
        assert await admin.delete_records({TP: 3}) == {TP: 3}
        cluster.late = 1_000_000
        with pytest.raises(TimeoutError, match="t-0: some live replicas have not followed in 500 ms"):
            await admin.delete_records({TP: 3}, timeout_ms=500)
        many = [TopicPartition("many", each.number) for each in cluster.create("many", 8)]
        with pytest.raises(TimeoutError, match="many-4 and 3 more: some live replicas"):
            await admin.delete_records(dict.fromkeys(many, 3), timeout_ms=500)
