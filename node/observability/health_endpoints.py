"""What a broker answers to those who watch it: /healthz, /readyz and /metrics."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine
from typing import Any

from node.net.http_server import Answer, line
from node.observability.metrics import Metrics

#: The pause after a scrape, in times of what that took, and at most.
_PAUSES = 9
_LONGEST_PAUSE_S = 1.0


class HealthEndpoints:
    """From the broker's first step on.

    stage      what its start is about, or why it ends; "" while it serves
    measures   known once its parts are there
    """

    def __init__(self) -> None:
        self.stage = "starting"
        self.measures: Metrics | None = None
        self._scrapes = Scrapes(self._exposed)

    def why_not_ready(self) -> str | None:
        """One line; None for a broker that is ready."""
        if self.stage or self.measures is None:
            return self.stage or "starting"
        return self.measures.why_not_ready()

    async def answer(self, path: str) -> Answer | None:
        """None where there is no such path."""
        match path:
            case "/healthz":
                return line(200, "alive")  # that the loop says so is the news
            case "/readyz":
                reason = self.why_not_ready()
                return line(200, "ready") if reason is None else line(503, reason)
            case "/metrics":
                if self.measures is None:
                    return line(503, self.stage)
                return await self._scrapes.next()
        return None

    async def _exposed(self) -> Answer:
        assert self.measures is not None
        exposition = await asyncio.to_thread(importlib.import_module, "node.observability.exposition")
        parts = []
        for part in exposition.expose(await self.measures.read()):
            parts.append(part)
            await asyncio.sleep(0)
        parts.append(await asyncio.to_thread(exposition.expose_process))
        return Answer(200, b"".join(parts), exposition.CONTENT_TYPE)


class Scrapes:
    """Answers that cost the loop a few ms each, and a tenth of its time at most, whoever asks how often.

    Between two there is a pause, and all who ask until the next begins get that one.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Answer]]) -> None:
        self._make = make
        self._turn = asyncio.Lock()
        self._coming: asyncio.Task[Answer] | None = None
        self._pause_ends = 0.0

    async def next(self) -> Answer:
        """What is true after this call."""
        if self._coming is None:
            self._coming = asyncio.create_task(self._made_in_turn(), name="scrape")
        return await asyncio.shield(self._coming)  # who hangs up takes nobody's answer away

    async def _made_in_turn(self) -> Answer:
        loop = asyncio.get_running_loop()
        async with self._turn:
            await asyncio.sleep(self._pause_ends - loop.time())
            self._coming = None
            began = loop.time()
            try:
                return await self._make()
            finally:
                took = loop.time() - began
                self._pause_ends = loop.time() + min(_PAUSES * took, _LONGEST_PAUSE_S)
