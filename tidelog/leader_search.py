"""Looking for the leaders of partitions that have none, as far as the client knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.client import ClusterClient


class LeaderSearch:
    """One look at once, the following ones with growing pauses between them.

    on_look   called after each look, whatever it brought
    """

    def __init__(self, client: ClusterClient, on_look: Callable[[], object]) -> None:
        self._client = client
        self._on_look = on_look
        self._attempt = 0
        self._looking: asyncio.Task[None] | None = None

    def go_on(self) -> None:
        """Somebody waits for a leader: look for it, unless that is being done."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())

    def rest(self) -> None:
        """Nobody waits for one: the next search begins without a pause."""
        self._attempt = 0

    async def stop(self) -> None:
        """Give up the look that is under way."""
        if (looking := self._looking) is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self) -> None:
        try:
            limit_ms = self._client.clock.monotonic_ms() + self._client.settings.request_timeout_ms
            if self._attempt:
                await self._client.backoff(self._attempt - 1, limit_ms)
            self._attempt += 1
            await self._client.refresh_or_not(limit_ms)
        finally:
            self._looking = None
            self._on_look()
