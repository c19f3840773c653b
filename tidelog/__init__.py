"""Tidelog: a replicated, partitioned, durable log with Kafka's semantics.

    with Producer() as producer:
        place = producer.send("events", b"value", key=b"key").get(timeout=10)

    with Consumer() as consumer:
        partition = TopicPartition("events", 0)
        found = consumer.offsets_for_times({partition: datetime(2024, 5, 1, tzinfo=UTC)})[partition]

Without bootstrap servers clients use TIDELOG_BOOTSTRAP_SERVERS, else the cluster of this user's last `tidelog up`.
`tidelog.aio` has the same clients for asyncio, `tidelog.errors` everything that they raise.

Names are imported when they are first used: a command that only looks at processes needs no client, and no ZeroMQ.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.admin import Admin
    from tidelog.admin_messages import ConfigChange, ConfigEntry, ConfigOp, ConfigResourceType, ConfigSource
    from tidelog.config_calls import ConfigResource
    from tidelog.consumer import Consumer
    from tidelog.descriptions import ClusterDescription, PartitionDescription, TopicDescription
    from tidelog.errors import TidelogError
    from tidelog.fetch_buffer import ConsumerRecord, FetchedBatches
    from tidelog.groups.descriptions import (
        ConsumerGroupDescription,
        ConsumerGroupListing,
        ConsumerGroupListings,
        ConsumerGroupState,
        MemberDescription,
    )
    from tidelog.groups.lag import PartitionLag
    from tidelog.groups.rebalance_listener import ConsumerRebalanceListener
    from tidelog.groups.reset import (
        OffsetReset,
        ShiftBy,
        ToCurrent,
        ToEarliest,
        ToLatest,
        ToOffset,
        ToTime,
    )
    from tidelog.messages import NewTopic
    from tidelog.model import (
        ConsumerGroupMetadata,
        Endpoint,
        NoOffset,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        OffsetOutcome,
        RecordMetadata,
        TopicPartition,
    )
    from tidelog.partition_messages import ElectionType, NewPartitions, PartitionReassignment
    from tidelog.producer import Producer
    from tidelog.record_future import RecordFuture, RecordRun, RunPart
    from tidelog.starting_points import OlderRecords, StartingPoint, StartReason

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOp",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "Consumer",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "ConsumerGroupListings",
    "ConsumerGroupMetadata",
    "ConsumerGroupState",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ElectionType",
    "Endpoint",
    "FetchedBatches",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "NoOffset",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutcome",
    "OffsetReset",
    "OlderRecords",
    "PartitionDescription",
    "PartitionLag",
    "PartitionReassignment",
    "Producer",
    "RecordFuture",
    "RecordMetadata",
    "RecordRun",
    "RunPart",
    "ShiftBy",
    "StartReason",
    "StartingPoint",
    "TidelogError",
    "ToCurrent",
    "ToEarliest",
    "ToLatest",
    "ToOffset",
    "ToTime",
    "TopicDescription",
    "TopicPartition",
    "__version__",
]

_HOMES = {
    "Admin": "tidelog.admin",
    "ClusterDescription": "tidelog.descriptions",
    "ConfigChange": "tidelog.admin_messages",
    "ConfigEntry": "tidelog.admin_messages",
    "ConfigOp": "tidelog.admin_messages",
    "ConfigResource": "tidelog.config_calls",
    "ConfigResourceType": "tidelog.admin_messages",
    "ConfigSource": "tidelog.admin_messages",
    "Consumer": "tidelog.consumer",
    "ConsumerGroupDescription": "tidelog.groups.descriptions",
    "ConsumerGroupListing": "tidelog.groups.descriptions",
    "ConsumerGroupListings": "tidelog.groups.descriptions",
    "ConsumerGroupMetadata": "tidelog.model",
    "ConsumerGroupState": "tidelog.groups.descriptions",
    "ConsumerRebalanceListener": "tidelog.groups.rebalance_listener",
    "ConsumerRecord": "tidelog.fetch_buffer",
    "ElectionType": "tidelog.partition_messages",
    "Endpoint": "tidelog.model",
    "FetchedBatches": "tidelog.fetch_buffer",
    "MemberDescription": "tidelog.groups.descriptions",
    "NewPartitions": "tidelog.partition_messages",
    "NewTopic": "tidelog.messages",
    "NoOffset": "tidelog.model",
    "OffsetAndMetadata": "tidelog.model",
    "OffsetAndTimestamp": "tidelog.model",
    "OffsetOutcome": "tidelog.model",
    "OffsetReset": "tidelog.groups.reset",
    "OlderRecords": "tidelog.starting_points",
    "PartitionDescription": "tidelog.descriptions",
    "PartitionLag": "tidelog.groups.lag",
    "PartitionReassignment": "tidelog.partition_messages",
    "Producer": "tidelog.producer",
    "RecordFuture": "tidelog.record_future",
    "RecordRun": "tidelog.record_future",
    "RunPart": "tidelog.record_future",
    "RecordMetadata": "tidelog.model",
    "ShiftBy": "tidelog.groups.reset",
    "StartReason": "tidelog.starting_points",
    "StartingPoint": "tidelog.starting_points",
    "TidelogError": "tidelog.errors",
    "ToCurrent": "tidelog.groups.reset",
    "ToEarliest": "tidelog.groups.reset",
    "ToLatest": "tidelog.groups.reset",
    "ToOffset": "tidelog.groups.reset",
    "ToTime": "tidelog.groups.reset",
    "TopicDescription": "tidelog.descriptions",
    "TopicPartition": "tidelog.model",
}
_ROOMS = ("aio", "errors")


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return importlib.import_module(f"tidelog.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *_ROOMS]
