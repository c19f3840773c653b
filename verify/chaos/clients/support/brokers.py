"""Query every broker separately, leader or not, with one task for each broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from tidelog.errors import TidelogError
from verify.chaos.clients.client_context import ClientContext

#: The interval of searches for new brokers.
_LOOK_AGAIN_S = 5.0
_LOOK_MS = 3_000


async def for_each_broker(
    context: ClientContext, name: str, work: Callable[[int, str], Coroutine[Any, Any, None]]
) -> None:
    """Start one task of `work` with the id and address of each broker when it is found. Look for new brokers every 5 s.

    When the clients are asked to stop, wait until all tasks have ended, and return. `work` must end by itself then. An
    error of one task cancels the others and is raised in an ExceptionGroup.
    """
    async with context.admin(f"{name}-brokers") as admin, asyncio.TaskGroup() as tasks:
        begun: set[int] = set()
        while not context.stopping.is_set():
            with suppress(TidelogError):
                for broker_id, endpoint in (await admin.describe_cluster(_LOOK_MS)).brokers.items():
                    if broker_id not in begun:
                        begun.add(broker_id)
                        tasks.create_task(work(broker_id, str(endpoint)))
            await context.pause(_LOOK_AGAIN_S if begun else 0.1)
