"""Sends requests to the coordinators of consumer groups, without the other work of a client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from tidelog.errors import BrokerError, TidelogError, error_for, raise_first
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.group_messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tidelog.protocol.kafka.client.connection import Connection
from tidelog.protocol.messages import DescribePartition
from tools.bench.results import NotMeasured

TIMEOUT_MS = 60_000
_LOOK_AGAIN_S = 0.02


@asynccontextmanager
async def connection_to(address: str) -> AsyncIterator[Connection]:
    connection = await Connection.open(Endpoint.parse(address), client_id="bench", timeout_ms=TIMEOUT_MS)
    try:
        yield connection
    finally:
        connection.close()


async def connections_by_group(stack: AsyncExitStack, found: Mapping[str, str]) -> dict[str, Connection]:
    """Return a connection to each group's coordinator; groups of one coordinator share it, until `stack` is closed."""
    opened = {
        address: await stack.enter_async_context(connection_to(address)) for address in dict.fromkeys(found.values())
    }
    return {group: opened[address] for group, address in found.items()}


async def find(bootstrap_servers: str, groups: Iterable[str]) -> dict[str, str]:
    """Wait until every group has a coordinator, and return their addresses `host:port` by group.

    Only the first bootstrap server is asked; its first request starts the creation of the offsets topic. Raises
    NotMeasured after a minute, and the TidelogError of a failed request.
    """
    asked = tuple(groups)
    deadline = time.monotonic() + TIMEOUT_MS / 1e3
    async with connection_to(bootstrap_servers.partition(",")[0]) as connection:
        while True:
            answer = await connection.call(FindCoordinatorRequest(asked), timeout_ms=TIMEOUT_MS)
            assert isinstance(answer, FindCoordinatorResponse)
            if not any(found.error_code for found in answer.coordinators):
                return {found.key: f"{found.host}:{found.port}" for found in answer.coordinators}
            if time.monotonic() > deadline:
                raise NotMeasured(f"{len(asked)} groups have no coordinator within {TIMEOUT_MS / 1e3:.0f} s")
            await asyncio.sleep(_LOOK_AGAIN_S)


async def commit(connection: Connection, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit the offsets for a group without members, and wait for the answer; BrokerError if one is rejected."""
    partitions = tuple(OffsetCommitPartition(*tp, offset) for tp, offset in offsets.items())
    answer = await connection.call(OffsetCommitRequest(group, partitions), timeout_ms=TIMEOUT_MS)
    assert isinstance(answer, OffsetCommitResponse)
    raise_first(error_for(part.error_code) for part in answer.partitions)


async def committed(connection: Connection, group: str, tps: Iterable[TopicPartition]) -> list[int]:
    """Return the group's committed offsets of these partitions, in order; −1 if there is none. Raises BrokerError."""
    asked = OffsetFetchRequest(group, tuple(DescribePartition(*tp) for tp in tps))
    answer = await connection.call(asked, timeout_ms=TIMEOUT_MS)
    assert isinstance(answer, OffsetFetchResponse)
    if error := error_for(answer.error_code):
        raise error
    raise_first(error_for(part.error_code) for part in answer.partitions)
    return [part.committed_offset for part in answer.partitions]


async def ready(bootstrap_servers: str, groups: Iterable[str]) -> dict[str, str]:
    """Return the coordinators as `find` does, once each has loaded its groups and answers a fetch of offsets.

    Raises NotMeasured if one does not within a minute.
    """
    found = await find(bootstrap_servers, groups)
    deadline = time.monotonic() + TIMEOUT_MS / 1e3
    async with AsyncExitStack() as stack:
        for group, connection in (await connections_by_group(stack, found)).items():
            while True:
                try:
                    await committed(connection, group, [])
                    break
                except BrokerError as error:
                    if time.monotonic() > deadline:
                        raise NotMeasured(f"group {group}: {error}") from None
                    await asyncio.sleep(_LOOK_AGAIN_S)
    return found


async def committed_with_retries(
    bootstrap_servers: str, group: str, tps: Iterable[TopicPartition], timeout_s: float
) -> list[int]:
    """Return the committed offsets as `committed` does, from the group's current coordinator.

    Errors are retried with each bootstrap server in turn; NotMeasured after `timeout_s`.
    """
    deadline, asked = time.monotonic() + timeout_s, list(tps)
    while True:
        for server in bootstrap_servers.split(","):
            try:
                found = await find(server, [group])
                async with connection_to(found[group]) as connection:
                    return await committed(connection, group, asked)
            except TidelogError as error:
                if time.monotonic() > deadline:
                    raise NotMeasured(f"group {group}: {error}") from None
        await asyncio.sleep(_LOOK_AGAIN_S)
