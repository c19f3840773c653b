"""Open the AdminClients of foreign clients that have to be closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager

import kafka
from aiokafka.admin import AIOKafkaAdminClient


@contextmanager
def kafka_python_admin(servers: str) -> Iterator[kafka.KafkaAdminClient]:
    """Open kafka-python's AdminClient for these comma-separated addresses."""
    with closing(kafka.KafkaAdminClient(bootstrap_servers=servers.split(","))) as client:
        yield client


@asynccontextmanager
async def aiokafka_admin(servers: str, **configs: int) -> AsyncIterator[AIOKafkaAdminClient]:
    """Open aiokafka's AdminClient for these comma-separated addresses."""
    client = AIOKafkaAdminClient(bootstrap_servers=servers, **configs)
    await client.start()
    try:
        yield client
    finally:
        await client.close()
