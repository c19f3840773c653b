"""Ask every broker that has a replica of a partition about its replica."""

from __future__ import annotations

import asyncio

from tidelog.client.cluster_client import ClusterClient
from tidelog.client.diagnosis.explain_partition import PartitionFacts
from tidelog.client.metadata import no_such_partition
from tidelog.errors import TidelogError, UnsupportedVersionError, error_for
from tidelog.model import TopicPartition
from tidelog.protocol.operator_messages import ExamineReplicaRequest, ExamineReplicaResponse
from tidelog.quantities import format_duration

#: Timeout for one broker; a broker that does not answer is a fact, too.
TIME_LIMIT_MS = 3_000


async def ask_facts(client: ClusterClient, tp: TopicPartition, deadline_ms: int) -> PartitionFacts:
    """Ask all live brokers with a replica at once, and return the metadata and their answers.

    A broker that does not answer within 3 s, or refuses, has the reason instead. Raises UnknownTopicOrPartitionError,
    NoBrokersError or TimeoutError if the partition is not found, and UnsupportedVersionError on a cluster that is none
    of Tidelog.
    """
    client.track(tp.topic)
    await client.wait_for_metadata(deadline_ms)
    await client.refresh(deadline_ms)
    topic = await client.topic(tp.topic, deadline_ms)
    known = topic.partitions.get(tp.partition)
    if known is None:
        raise no_such_partition(tp, len(topic.partitions))
    view = client.view
    asked = [broker for broker in known.replicas if broker in view.brokers]
    answers = await asyncio.gather(*(_examine(client, broker, tp, deadline_ms) for broker in asked))
    by_broker = dict(zip(asked, answers, strict=True))
    return PartitionFacts(
        tp,
        frozenset(view.brokers),
        view.controller_id,
        known,
        {broker: answer for broker, answer in by_broker.items() if isinstance(answer, ExamineReplicaResponse)},
        {broker: answer for broker, answer in by_broker.items() if isinstance(answer, str)},
    )


async def _examine(
    client: ClusterClient, broker: int, tp: TopicPartition, deadline_ms: int
) -> ExamineReplicaResponse | str:
    """Return the broker's answer, or the reason why there is none, as a text."""
    time_limit_ms = max(1, min(TIME_LIMIT_MS, deadline_ms - client.clock.monotonic_ms()))
    try:
        async with asyncio.timeout(time_limit_ms / 1000):
            peer = await client.peer(broker, time_limit_ms)
            answer = await peer.send(ExamineReplicaRequest(*tp), timeout_ms=time_limit_ms)
    except UnsupportedVersionError:
        raise  # no broker of a foreign cluster answers
    except TimeoutError:
        return f"no answer in {format_duration(time_limit_ms)}"
    except TidelogError as error:
        return str(error) or type(error).__name__
    assert isinstance(answer, ExamineReplicaResponse)
    refusal = error_for(answer.error_code)
    return str(refusal) if refusal else answer
