"""The metrics of clients by software (KIP-511). The number of series is bounded, because clients choose their names."""

from __future__ import annotations

import asyncio

from node.net.client_connections import ClientConnections
from node.observability.metric_families import Family, Kind

#: Connections that are read before other work runs on the loop.
_CONNECTIONS_AT_ONCE = 250


async def client_families(clients: ClientConnections) -> list[Family]:
    """Return the totals of all software that the broker tells apart, and of the rest as `other`."""
    following = 0
    while following >= 0:
        connections, following = clients.after(following, _CONNECTIONS_AT_ONCE)
        for each in connections:
            each.add_to_totals()
        await asyncio.sleep(0)
    labels = ("software", "version")
    connected = Family("tidelog_client_connections", "open connections of clients", labels=labels)
    requests = Family("tidelog_client_requests", "requests of clients", Kind.COUNTER, labels)
    received = Family("tidelog_client_received_bytes", "bytes that clients have sent", Kind.COUNTER, labels)
    sent = Family("tidelog_client_sent_bytes", "bytes that clients were sent", Kind.COUNTER, labels)
    for software, totals in sorted(clients.software.entries().items()):
        connected.add(totals.connections, *software)
        requests.add(totals.requests, *software)
        received.add(totals.received_bytes, *software)
        sent.add(totals.sent_bytes, *software)
    return [connected, requests, received, sent]
