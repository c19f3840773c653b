"""Tidelog: a replicated, partitioned, durable log with Kafka's semantics.

    with Producer("localhost:9092") as producer:
        place = producer.send("events", b"value", key=b"key").get(timeout=10)

    with Consumer("localhost:9092") as consumer:
        partition = TopicPartition("events", 0)
        found = consumer.offsets_for_times({partition: datetime(2024, 5, 1, tzinfo=UTC)})[partition]

`tidelog.aio` has the same clients for asyncio, `tidelog.errors` everything that they raise.
"""

from tidelog.admin import Admin
from tidelog.consumer import Consumer
from tidelog.descriptions import ClusterDescription, PartitionDescription, TopicDescription
from tidelog.errors import TidelogError
from tidelog.fetch_buffer import ConsumerRecord, FetchedBatches
from tidelog.messages import NewTopic
from tidelog.model import Endpoint, OffsetAndTimestamp, RecordMetadata, TopicPartition
from tidelog.producer import Producer
from tidelog.record_future import RecordFuture

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "ClusterDescription",
    "Consumer",
    "ConsumerRecord",
    "Endpoint",
    "FetchedBatches",
    "NewTopic",
    "OffsetAndTimestamp",
    "PartitionDescription",
    "Producer",
    "RecordFuture",
    "RecordMetadata",
    "TidelogError",
    "TopicDescription",
    "TopicPartition",
    "__version__",
]
