"""Connections that send some produce requests twice keep the contract of a peer."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.virtual_time import until
from tidelog.client.connections import Peer
from tidelog.errors import NotLeaderOrFollowerError
from tidelog.model import Endpoint
from tidelog.protocol.messages import ProduceRequest, ProduceResponse
from verify.chaos.clients.support.repeating import repeating

ALWAYS = SimpleNamespace(randrange=lambda count: 0)


class Held:
    """A peer that returns the answers given by the test."""

    endpoint, broker_id, cluster_kind, closed = Endpoint("h", 1), 1, "Tidelog", False

    def __init__(self) -> None:
        self.sent: list[asyncio.Future[Any]] = []

    def send(self, request: ProduceRequest, *, timeout_ms: int) -> asyncio.Future[Any]:
        self.sent.append(asyncio.get_running_loop().create_future())
        return self.sent[-1]


async def opened(held: Held) -> Peer:
    async def opener(endpoint: Endpoint, **_: object) -> Any:
        return held

    rng: random.Random = ALWAYS  # type: ignore[assignment]
    return await repeating(opener, rng)(held.endpoint, client_id="c", timeout_ms=1, cluster_id="")


async def test_request_goes_out_twice_and_has_the_second_answer() -> None:
    held = Held()
    answer = (await opened(held)).send(ProduceRequest(-1, 1000, ()), timeout_ms=1000)
    first, second = ProduceResponse(()), ProduceResponse(())
    for number, response in enumerate((first, second)):
        await until(lambda: len(held.sent) == number + 1)  # noqa: B023
        held.sent[number].set_result(response)
    assert await answer is second


async def test_client_may_set_the_exception_of_an_answer() -> None:
    """A client does so once it knows that another broker leads."""
    held = Held()
    answer = (await opened(held)).send(ProduceRequest(-1, 1000, ()), timeout_ms=1000)
    await until(lambda: len(held.sent) == 1)
    answer.set_exception(NotLeaderOrFollowerError("another leads"))
    with pytest.raises(NotLeaderOrFollowerError):
        await answer
    await until(held.sent[0].cancelled)
