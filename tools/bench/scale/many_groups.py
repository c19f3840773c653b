"""Measures the commits of many groups on any cluster, by the same requests and through the same code."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack

import uvloop

from tidelog import TopicPartition
from tools.bench.groups import group_calls
from tools.bench.groups.commits import commit_for
from tools.bench.kafka_clients.open_files import allow_connections
from tools.bench.kafka_clients.target import Target

GROUPS = 1_000
#: A JVM compiles what commits need meanwhile.
WARM_UP_S = 5.0


def measure(target: Target, seconds: float) -> dict[str, float]:
    """Return the commits per second of GROUPS groups with one commit in flight each, their p50 and p99 (ms), and the
    CPU of all brokers for a thousand commits (s).
    """
    allow_connections(GROUPS)
    topic = target.create_topic(1)
    name = uuid.uuid4().hex[:8]
    groups = [f"{name}-{number}" for number in range(GROUPS)]
    values = uvloop.run(_commit(target, groups, TopicPartition(topic, 0), seconds))
    target.delete_topic(topic)
    return values


async def _commit(target: Target, groups: Sequence[str], tp: TopicPartition, seconds: float) -> dict[str, float]:
    found = await group_calls.ready(target.bootstrap_servers, groups)
    async with AsyncExitStack() as stack:
        # As with real consumers each group has a connection, because Kafka answers a connection's requests in turn.
        connections = {
            group: await stack.enter_async_context(group_calls.connection_to(address))
            for group, address in found.items()
        }
        await commit_for(connections, tp, WARM_UP_S)
        before = target.cpu_s()
        took = sorted(await commit_for(connections, tp, seconds))
        used = target.cpu_s() - before
    return {
        "rate": len(took) / seconds,
        "p50": took[len(took) // 2] * 1e3,
        "p99": took[len(took) * 99 // 100] * 1e3,
        "cpu": used * 1e3 / len(took),
    }
