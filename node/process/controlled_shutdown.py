"""Controlled shutdown, on the broker that stops: move leadership to other replicas while this broker still answers."""

from __future__ import annotations

import asyncio
import logging

from node.controller.controller_client import ControllerClient
from node.controller.controller_elector import ControllerElector
from node.metadata.metadata_cache import MetadataCache
from node.net.identity import Identity
from tidelog.errors import TidelogError, error_for
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import ControlledShutdownRequest

log = logging.getLogger(__name__)

_RETRY_S = 0.1


class ControlledShutdown:
    """Asks the controller, which may run in this process, to move leadership, and retries for `timeout_ms`."""

    def __init__(
        self, identity: Identity, metadata: MetadataCache, elector: ControllerElector, timeout_ms: int
    ) -> None:
        self._identity = identity
        self._controller_client = ControllerClient(identity, metadata, elector)
        self._elector = elector
        self._timeout_ms = timeout_ms

    async def move_leadership(self) -> frozenset[TopicPartition] | None:
        """Return the partitions that this broker still leads after the controller has moved all others.

        Retry after each error. Return None if no controller has answered without an error before the timeout.
        """
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                while (remaining := await self._attempt()) is None:  # noqa: ASYNC110 — each iteration sends a new request
                    await asyncio.sleep(_RETRY_S)
        except TimeoutError:
            return None
        return remaining

    async def _attempt(self) -> frozenset[TopicPartition] | None:
        request = ControlledShutdownRequest(self._identity.broker_id, self._identity.broker_epoch)
        try:
            answer = await self._controller_client.ask(request, self._elector.controlled_shutdown, self._timeout_ms)
            if error_of_answer := error_for(answer.error_code):
                raise error_of_answer
        except TidelogError as error:
            log.info("controlled shutdown: the controller has not moved leadership yet: %s", error)
            return None
        log.info("controlled shutdown: leadership moved, %d partitions remain", len(answer.remaining))
        return frozenset(TopicPartition(each.topic, each.partition) for each in answer.remaining)
