"""Topics whose every record is synced before it is acknowledged, for as long as a fault lasts: those under load, and
that of the groups' offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

from tidelog.aio.admin import Admin
from tidelog.chaos.fault import Target
from tidelog.chaos.faults.harm import Harm
from tidelog.config_calls import ConfigResource
from tidelog.groups.offsets_topic import OFFSETS_TOPIC

_FLUSH = "flush.messages"
#: Until brokers obey a changed setting; they say so within a tenth of it.
_OBEYED_S = 1.5


async def flush_each(fault: Harm, target: Target) -> None:
    """From now on, until the fault is healed."""
    topics = sorted({OFFSETS_TOPIC, *(tp.topic for tp in target.tps)})
    fault.mend(partial(_set, target, topics, None))
    await _set(target, topics, "1")
    await asyncio.sleep(_OBEYED_S)


async def _set(target: Target, topics: Collection[str], value: str | None) -> None:
    async with Admin(target.bootstrap_servers) as admin:
        await admin.alter_configs({ConfigResource.topic(topic): {_FLUSH: value} for topic in topics})
