"""Send the admin's requests to list the connections of the brokers' clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tidelog.client.broker_requests import ask_broker
from tidelog.client.cluster_client import ClusterClient
from tidelog.errors import TidelogError, UnsupportedVersionError, error_for
from tidelog.protocol.operator_messages import ConnectionReport, DescribeClientsRequest, DescribeClientsResponse

#: The connections of one broker, or why it does not tell them.
Answer = tuple[ConnectionReport, ...] | TidelogError


async def describe_clients(
    client: ClusterClient, brokers: Iterable[int] | None, topics: Iterable[str], deadline_ms: int
) -> dict[int, Answer]:
    """Return the connections to these brokers (None: to all live ones) by broker id, in the order of the ids.

    A broker that does not answer has the error instead. With `topics`, only connections that read or write one of them
    are returned. Raises an error only if no broker is reached, or if the cluster is none of Tidelog.
    """
    await client.wait_for_metadata(deadline_ms)
    if brokers is None:
        await client.refresh(deadline_ms)
    chosen = sorted(client.view.brokers if brokers is None else set(brokers))
    wanted = tuple(topics)

    async def ask(broker_id: int) -> Answer:
        found: list[ConnectionReport] = []
        following = 0
        try:
            while following >= 0:
                answer = await ask_broker(client, broker_id, DescribeClientsRequest(following, wanted), deadline_ms)
                assert isinstance(answer, DescribeClientsResponse)
                if refusal := error_for(answer.error_code):
                    return refusal
                found += answer.connections
                following = answer.next
        except UnsupportedVersionError:
            raise  # no broker of a foreign cluster answers
        except TidelogError as error:
            return error
        return tuple(found)

    return dict(zip(chosen, await asyncio.gather(*map(ask, chosen)), strict=True))
