"""Change topic configs for the duration of a fault, and read topic configs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

from tidelog.aio.admin import Admin
from tidelog.client.admin.config_requests import ConfigResource
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.protocol.admin_messages import ConfigSource
from verify.chaos.fault import Target
from verify.chaos.faults.support.fault_base import FaultBase

_FLUSH, _TIMES = "flush.messages", "message.timestamp.type"
#: The time until brokers apply a changed config; they are notified within a tenth of it.
_OBEYED_S = 1.5


async def flush_each(fault: FaultBase, target: Target) -> None:
    """Make brokers sync every record before they acknowledge it, in the topics under load and in __consumer_offsets,
    until the fault is healed.
    """
    await alter_topics(fault, target, {OFFSETS_TOPIC, *(tp.topic for tp in target.tps)}, _FLUSH, "1")


async def alter_topics(fault: FaultBase, target: Target, topics: Collection[str], name: str, value: str) -> None:
    """Set a topic config until the fault is healed, which restores each topic's own value or removes it.

    The call waits 1.5 s, because brokers have applied the value then.
    """
    resources = [ConfigResource.topic(topic) for topic in sorted(topics)]
    async with Admin(target.bootstrap_servers) as admin:
        described = await admin.describe_configs(resources)
    own = {
        resource: entry.value if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG else None
        for resource, entries in described.items()
        for entry in (entries[name],)
    }
    fault.on_heal(partial(_set, target, {resource: {name: before} for resource, before in own.items()}))
    await _set(target, {resource: {name: value} for resource in resources})
    await asyncio.sleep(_OBEYED_S)


async def stamped_topics(target: Target) -> set[str]:
    """Return the names of the topics under load with message.timestamp.type=LogAppendTime."""
    resources = [ConfigResource.topic(topic) for topic in sorted({tp.topic for tp in target.tps})]
    async with Admin(target.bootstrap_servers) as admin:
        described = await admin.describe_configs(resources)
    return {each.name for each, entries in described.items() if entries[_TIMES].value == "LogAppendTime"}


async def _set(target: Target, changes: dict[ConfigResource, dict[str, str | None]]) -> None:
    async with Admin(target.bootstrap_servers) as admin:
        await admin.alter_configs(changes)
