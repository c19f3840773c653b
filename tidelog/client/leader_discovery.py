"""Refresh metadata until partitions without a known leader have one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.client.cluster_client import REFRESH, ClusterClient
from tidelog.client.tasks.async_event import Flag


class LeaderSearch:
    """Refreshes the metadata, so that partitions without a known leader get one.

    The first search begins at once. Each further search begins after a longer pause, up to a limit, until
    `stop_waiting` is called.

    on_refresh   called after each search, whatever its result, except a search that `stop` ends
    """

    def __init__(self, client: ClusterClient, on_refresh: Callable[[], object]) -> None:
        self._client = client
        self._on_refresh = on_refresh
        self._attempt = 0
        self._urgent = Flag()
        self._search_task: asyncio.Task[None] | None = None

    def search(self, *, patiently: bool = False) -> None:
        """Start one metadata refresh, after a pause if earlier searches found no leader. One search runs at a time.

        A patient search is for partitions that do not exist: its pauses grow to `LASTING_BACKOFF_MS`. A search that is
        not patient ends the pause of a patient one.
        """
        if not patiently:
            self._urgent.set()
        if self._search_task is None or self._search_task.done():
            self._urgent.clear()
            self._search_task = self._client.background.run("the search for leaders", self._refresh(patiently))
            self._search_task.add_done_callback(self._on_search_ended)

    def stop_waiting(self) -> None:
        """Note that no partition waits for a leader, so that the next search begins without a pause."""
        self._attempt = 0

    async def stop(self) -> None:
        """Cancel the search in progress, without a call of `on_refresh`, and wait for the end of its task."""
        search_task, self._search_task = self._search_task, None
        if search_task is not None:
            search_task.cancel()
            await asyncio.gather(search_task, return_exceptions=True)

    async def _refresh(self, patiently: bool) -> None:
        client = self._client
        attempt, self._attempt = self._attempt, self._attempt + 1
        if attempt:
            may_last = patiently or client.background.is_failing(REFRESH)
            pause_ms = (client.lasting_backoff_ms if may_last else client.backoff_ms)(attempt - 1)
            if patiently:
                await self._urgent.wait(pause_ms / 1000)  # ends early if a search becomes urgent
            else:
                await asyncio.sleep(pause_ms / 1000)
        await client.try_refresh(client.clock.monotonic_ms() + client.settings.request_timeout_ms)

    def _on_search_ended(self, task: asyncio.Task[None]) -> None:
        if task is not self._search_task:
            return
        if task.cancelled():  # by another task: a timer, because nothing may start while a loop is being closed
            pause_ms = self._client.backoff_ms(self._attempt)
            task.get_loop().call_later(pause_ms / 1000, self._on_refresh)
        else:
            self._on_refresh()
