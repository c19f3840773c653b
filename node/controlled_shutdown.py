"""A controlled shutdown as the broker that leaves sees it: others take over what it leads while it still answers."""

from __future__ import annotations

import asyncio
import logging

from node.controller.controller_client import ControllerClient
from node.controller.controller_elector import ControllerElector
from node.identity import Identity
from node.metadata_cache import MetadataCache
from tidelog.errors import TidelogError, error_for
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import ControlledShutdownRequest

log = logging.getLogger(__name__)

_RETRY_S = 0.1


class ControlledShutdown:
    """Asks the controller, be it in this very process, for as long as the settings give it (ms)."""

    def __init__(self, identity: Identity, metadata: MetadataCache, shell: ControllerElector, timeout_ms: int) -> None:
        self._identity = identity
        self._line = ControllerClient(identity, metadata, shell)
        self._shell = shell
        self._timeout_ms = timeout_ms

    async def hand_over(self) -> frozenset[TopicPartition] | None:
        """What nobody else could take over, once a controller has moved the rest; None: before, the time was over."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                while (remaining := await self._attempt()) is None:  # noqa: ASYNC110 — each turn asks anew
                    await asyncio.sleep(_RETRY_S)
        except TimeoutError:
            return None
        return remaining

    async def _attempt(self) -> frozenset[TopicPartition] | None:
        request = ControlledShutdownRequest(self._identity.broker_id, self._identity.broker_epoch)
        try:
            answer = await self._line.ask(request, self._shell.controlled_shutdown, self._timeout_ms)
            if refusal := error_for(answer.error_code):
                raise refusal
        except TidelogError as error:
            log.info("the controller did not take over yet: %s", error)
            return None
        log.info("handed over, %d partitions remain", len(answer.remaining))
        return frozenset(TopicPartition(each.topic, each.partition) for each in answer.remaining)
