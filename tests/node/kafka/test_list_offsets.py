"""ListOffsets of Kafka clients, whose replica id is not always that of a consumer."""

from __future__ import annotations

import pytest

from tests.node.client_requests import TP, batch_of, produce_request
from tests.node.kafka.kafka_requests import ask
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import on_virtual_time
from tidelog.model import LATEST_TIMESTAMP
from tidelog.protocol.kafka.messages.log_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize("replica_id", [-1, 0, 2])
def test_client_with_the_id_of_a_replica_sees_committed_records_only(version: int, replica_id: int) -> None:
    @on_virtual_time
    async def story() -> None:
        async with MemoryCluster() as cluster:
            await cluster.elect(1)
            await cluster.produce(b"a")
            cluster.cut(1, 2, 3)
            await cluster.leader.ask(produce_request(batch=batch_of(b"b"), acks=1))
            request = ListOffsetsRequest(
                replica_id=replica_id,
                topics=(
                    ListOffsetsTopic(
                        name=TP.topic,
                        partitions=(ListOffsetsPartition(partition_index=TP.partition, timestamp=LATEST_TIMESTAMP),),
                    ),
                ),
            )
            (topic,) = (await ask(cluster.leader, request, version)).topics
            (found,) = topic.partitions
            assert found.error_code == 0
            assert (found.old_style_offsets[0] if version == 0 else found.offset) == 1

    story()
