"""Send the admin's requests to describe brokers' log directories."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tidelog.client.broker_requests import ask_broker
from tidelog.client.cluster_client import ClusterClient
from tidelog.protocol.admin_messages import DescribeLogDirsRequest, DescribeLogDirsResponse, LogDir


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
