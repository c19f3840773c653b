"""Producer ids while ZooKeeper is slow to provide blocks of ids."""

from __future__ import annotations

import asyncio

from node.handlers.producer_ids import ProducerIds
from tests.virtual_time import on_virtual_time
from tidelog.errors import BrokerNotAvailableError, RequestTimedOutError
from tidelog.protocol.messages import InitProducerIdRequest

TIME_LIMIT_S = 6


class Blocks:
    """Blocks of three ids. While `silent` is set, each request fails after `TIME_LIMIT_S`."""

    def __init__(self) -> None:
        self.silent = False
        self.asked = 0

    async def next_producer_id_block(self, broker_id: int) -> range:
        self.asked += 1
        first = 3 * self.asked
        await asyncio.sleep(TIME_LIMIT_S if self.silent else 0.001)
        if self.silent:
            raise RequestTimedOutError("no answer")
        return range(first, first + 3)


@on_virtual_time
async def test_concurrent_requests_get_an_id_each() -> None:
    ids = ProducerIds(1, Blocks())
    answers = await asyncio.gather(*(ids.handle(InitProducerIdRequest()) for _ in range(20)))
    assert sorted(answer.producer_id for answer in answers) == list(range(3, 23))


@on_virtual_time
async def test_waiting_requests_share_one_failed_attempt() -> None:
    blocks = Blocks()
    blocks.silent = True
    ids = ProducerIds(1, blocks)
    started = asyncio.get_running_loop().time()
    answers = await asyncio.gather(*(ids.handle(InitProducerIdRequest()) for _ in range(20)))
    assert {answer.error_code for answer in answers} == {BrokerNotAvailableError.code}
    assert asyncio.get_running_loop().time() - started < TIME_LIMIT_S + 0.1
    assert blocks.asked == 1
    blocks.silent = False
    assert (await ids.handle(InitProducerIdRequest())).error_code == 0


@on_virtual_time
async def test_cancelled_request_does_not_cancel_the_shared_attempt() -> None:
    ids = ProducerIds(1, Blocks())
    impatient = asyncio.ensure_future(ids.handle(InitProducerIdRequest()))
    patient = asyncio.ensure_future(ids.handle(InitProducerIdRequest()))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient).producer_id == 3
