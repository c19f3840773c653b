"""Send the admin's requests about brokers' log directories."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from tidelog.client.broker_requests import ask_broker
from tidelog.client.cluster_client import ClusterClient
from tidelog.errors import LogDirNotFoundError, error_for
from tidelog.model import TopicPartition
from tidelog.protocol.admin_messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogDir,
    ReplicaLogDir,
)


async def describe_log_dirs(
    client: ClusterClient, brokers: Iterable[int] | None, deadline_ms: int
) -> dict[int, tuple[LogDir, ...]]:
    """Return the log directories of these brokers (None: of all live ones) by broker id, in the order of the ids.

    Raises the first error of a broker: BrokerNotAvailableError if it is not in the cluster, TimeoutError if it does not
    answer.
    """
    await client.wait_for_metadata(deadline_ms)
    if brokers is None:
        await client.refresh(deadline_ms)
    chosen = sorted(client.view.brokers if brokers is None else set(brokers))

    async def ask(broker_id: int) -> tuple[LogDir, ...]:
        answer = await ask_broker(client, broker_id, DescribeLogDirsRequest(), deadline_ms)
        assert isinstance(answer, DescribeLogDirsResponse)
        return answer.log_dirs

    return dict(zip(chosen, await asyncio.gather(*map(ask, chosen)), strict=True))


async def alter_replica_log_dirs(
    client: ClusterClient, broker_id: int, log_dirs: Mapping[TopicPartition, str], deadline_ms: int
) -> None:
    """Begin to move the broker's replicas of these partitions to these log directories of the broker.

    Raises the first error of a replica, when all moves have been requested, and the errors of `ask_broker`.
    """
    wanted = tuple(ReplicaLogDir(*tp, path) for tp, path in log_dirs.items())
    answer = await ask_broker(client, broker_id, AlterReplicaLogDirsRequest(wanted), deadline_ms)
    assert isinstance(answer, AlterReplicaLogDirsResponse)
    for each in answer.results:
        tp = TopicPartition(each.topic, each.partition)
        if error := error_for(each.error_code, each.error_message or _reason(each.error_code, tp, broker_id, log_dirs)):
            raise error


def _reason(code: int, tp: TopicPartition, broker_id: int, log_dirs: Mapping[TopicPartition, str]) -> str:
    """Return the text of an error, because Kafka's response has only its code."""
    if code == LogDirNotFoundError.code:
        return f"{log_dirs.get(tp, '')!r} is not the absolute path of a log directory of broker {broker_id}"
    return f"{tp} of broker {broker_id}: {error_for(code)}"
