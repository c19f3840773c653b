"""The controller places new replicas on the brokers that have least of all topics."""

from __future__ import annotations

from collections import Counter

from tests.node.controller_cluster import Cluster, run
from tidelog.protocol.partition_messages import CreatePartitionsRequest, NewPartitions


def test_small_topics_spread_their_leaders_over_all_brokers() -> None:
    async def story(cluster: Cluster) -> None:
        for number in range(6):
            await cluster.create(f"t{number}", num_partitions=1, replication_factor=2)
        assert await preferred(cluster, 6) == {1: 2, 2: 2, 3: 2}

    run(story)


def test_added_partition_is_led_by_a_broker_that_leads_least() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t0", assignment={0: (1,)})
        await cluster.create("t1", assignment={0: (2,)})
        request = CreatePartitionsRequest((NewPartitions("t0", 2),), timeout_ms=5000)
        (answer,) = (await cluster.controller.partitions.create_partitions(request)).topics
        assert answer.error_code == 0
        assert await preferred(cluster, 2) == {1: 1, 2: 1, 3: 1}

    run(story)


async def preferred(cluster: Cluster, topics: int) -> dict[int, int]:
    """Return how many partitions of the topics t0, t1, … prefer each broker as leader, by ZooKeeper."""
    counts: Counter[int] = Counter()
    for number in range(topics):
        assignment = await cluster.brokers[1].zk_client.read_topic(f"t{number}")
        assert assignment is not None
        counts.update(replicas[0] for replicas in assignment.partitions.values())
    return dict(counts)
