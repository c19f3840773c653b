"""Asks local brokers over the client protocol whether they serve."""

from __future__ import annotations

import asyncio

from tidelog.errors import TidelogError
from tidelog.model import Endpoint
from tidelog.protocol.kafka.client.connection import Connection
from tidelog.protocol.messages import MetadataRequest, MetadataResponse

_CLIENT_ID = "tidelog-up"
_TIMEOUT_MS = 1_000


async def known_brokers(endpoint: Endpoint) -> frozenset[int]:
    """Return the ids of the live brokers that the broker at the endpoint knows.

    Its own id is among them once it is registered. Empty if no broker answers there within a second, or if it has no
    metadata yet.
    """
    try:
        connection = await Connection.open(endpoint, client_id=_CLIENT_ID, timeout_ms=_TIMEOUT_MS)
    except TidelogError:
        return frozenset()
    try:
        answer = await connection.call(MetadataRequest(topics=()), timeout_ms=_TIMEOUT_MS)
    except TidelogError:
        return frozenset()
    finally:
        connection.close()
    assert isinstance(answer, MetadataResponse)
    return frozenset(broker.broker_id for broker in answer.brokers)


def probe(endpoints: dict[int, Endpoint]) -> dict[int, frozenset[int]]:
    """Ask all brokers at once; return for each broker id what `known_brokers` returns for its endpoint.

    Must not be called on an event loop, because it runs one.
    """

    async def ask_all() -> list[frozenset[int]]:
        return await asyncio.gather(*map(known_brokers, endpoints.values()))

    return dict(zip(endpoints, asyncio.run(ask_all()), strict=True))
