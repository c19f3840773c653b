"""What a broker knows of `__consumer_offsets`: how many partitions it has, for as long as it is the same topic."""

from __future__ import annotations

from cluster.state import TopicAssignment
from node.coordinator.topic import OffsetsTopic
from tests.node.offsets_topic import MemoryOffsetsTopic
from tests.node.topic_settings import a_brokers_settings
from tests.virtual_time import VirtualClock, on_virtual_time, until
from tidelog.groups.offsets_topic import partition_for


class Told:
    """What ZooKeeper says."""

    def __init__(self, topic_id: str, partitions: int) -> None:
        self.says(topic_id, partitions)

    def says(self, topic_id: str, partitions: int) -> None:
        self.topic_id, self.partitions = topic_id, partitions

    async def read_topic(self, topic: str) -> TopicAssignment | None:
        return TopicAssignment(topic, self.topic_id, dict.fromkeys(range(self.partitions), (1, 2, 3)))


@on_virtual_time
async def test_a_topic_that_was_made_anew_is_counted_anew() -> None:
    told = Told("one", 50)
    topic = OffsetsTopic(a_brokers_settings(1), told, MemoryOffsetsTopic().create, VirtualClock())
    assert topic.partition_of("billing") is None, "it is found out now"
    await until(lambda: topic.partition_of("billing") == partition_for("billing", 50))
    told.says("another", 7)
    topic.hosted("one")
    assert topic.partition_of("billing") == partition_for("billing", 50)
    topic.hosted("another")
    assert topic.partition_of("billing") is None, "never by the old one's number"
    await until(lambda: topic.partition_of("billing") == partition_for("billing", 7))
    topic.close()
