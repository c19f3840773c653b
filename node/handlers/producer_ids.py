"""InitProducerId: ids that nobody had before, from a block that this broker owns."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from tidelog.errors import BrokerNotAvailableError, InvalidRequestError, TidelogError
from tidelog.protocol.messages import InitProducerIdRequest, InitProducerIdResponse

log = logging.getLogger(__name__)


class ProducerIdBlocks(Protocol):
    """What is needed of `cluster.zk_client.ZkClient`."""

    async def next_producer_id_block(self, broker_id: int) -> range: ...


class ProducerIds:
    """Hands out ids; asks ZooKeeper for another block once the last one is used up."""

    def __init__(self, broker_id: int, blocks: ProducerIdBlocks) -> None:
        self._broker_id = broker_id
        self._blocks = blocks
        self._block = range(0)
        self._refilling: asyncio.Task[bool] | None = None

    async def handle(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """A new id with epoch 0."""
        if request.transactional_id is not None:
            return InitProducerIdResponse(InvalidRequestError.code)
        while not self._block:
            # All who come meanwhile share one attempt: one after the other each would wait for the failures before.
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
            log.warning("no block of producer ids: %s", error)
            return False
        finally:
            self._refilling = None
        return True
