"""InitProducerId: hand out unique producer ids from a block that this broker owns."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from tidelog.errors import BrokerNotAvailableError, InvalidRequestError, TidelogError
from tidelog.protocol.messages import InitProducerIdRequest, InitProducerIdResponse

log = logging.getLogger(__name__)


class ProducerIdBlocks(Protocol):
    """The part of ZkClient (`cluster/zookeeper`) that allocates blocks of producer ids."""

    async def next_producer_id_block(self, broker_id: int) -> range: ...


class ProducerIds:
    """The unused ids of this broker's block. When they are used up, ZooKeeper provides the next block."""

    def __init__(self, broker_id: int, blocks: ProducerIdBlocks) -> None:
        self._broker_id = broker_id
        self._blocks = blocks
        self._block = range(0)
        self._refilling: asyncio.Task[bool] | None = None

    async def handle(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """Return a new producer id with epoch 0.

        Refuse a transactional id with INVALID_REQUEST. Answer BROKER_NOT_AVAILABLE if ZooKeeper provides no new block.
        """
        if request.transactional_id is not None:
            return InitProducerIdResponse(InvalidRequestError.code)
        while not self._block:
            # All waiting requests share one attempt. With one attempt each, a request would wait for all failures
            # before it.
            if self._refilling is None:
                self._refilling = asyncio.create_task(self._refill())
            if not await asyncio.shield(self._refilling):
                return InitProducerIdResponse(BrokerNotAvailableError.code)
        producer_id, self._block = self._block[0], self._block[1:]
        return InitProducerIdResponse(0, producer_id, 0)

    async def _refill(self) -> bool:
        try:
            self._block = await self._blocks.next_producer_id_block(self._broker_id)
        except TidelogError as error:
            log.warning("cannot get a block of producer ids: %s", error)
            return False
        finally:
            self._refilling = None
        return True
