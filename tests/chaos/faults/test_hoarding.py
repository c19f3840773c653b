"""Test what a broker buffers for clients that do not read (F17), with a server and real sockets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from node.net.identity import Identity
from node.net.server import MAX_UNREAD_BYTES, Server
from tidelog.clock import SystemClock
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.messages import FetchPartitionResponse, FetchRequest, FetchResponse, Request, Response
from verify.chaos.faults.resources import OutOfMemory, fetch_from

ANSWER_BYTES = 1 << 20


@contextmanager
def serving(asked: list[Request]) -> Iterator[Endpoint]:
    """Answer each request with a megabyte."""

    def handle(request: Request, _: object) -> Response:
        asked.append(request)
        return FetchResponse((FetchPartitionResponse("t", 0, 0, 5, 5, 0, bytes(ANSWER_BYTES)),))

    server = Server(Endpoint("127.0.0.1", 0), Identity("c", 7), handle, SystemClock(), between_brokers=False)
    server.start()
    try:
        yield server.endpoint
    finally:
        server.stop()


async def test_broker_buffers_its_limit_for_each_client_that_does_not_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked: list[Request] = []
    fault = OutOfMemory()
    with serving(asked) as door, caplog.at_level(logging.WARNING):
        for _ in range(2):
            fault.hoard(door, fetch_from({TopicPartition("t", 0): 3}))
        async with asyncio.timeout(30):
            while caplog.text.count("a peer of") < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert len(asked) >= 2 * MAX_UNREAD_BYTES // ANSWER_BYTES
        await fault.heal()
    fetch = asked[0]
    assert isinstance(fetch, FetchRequest)
    assert [(each.topic, each.partition, each.fetch_offset) for each in fetch.partitions] == [("t", 0, 3)]


async def test_hoarding_client_survives_a_broker_that_has_ended() -> None:
    with serving([]) as door:
        pass
    fault = OutOfMemory()
    fault.hoard(door, fetch_from({TopicPartition("t", 0): 0}))
    await fault.heal()
