"""What a broker answers to those who watch it: /healthz, /readyz and /metrics."""

from __future__ import annotations

import asyncio
import importlib

from node.http_port import Answer, line
from node.measures import Measures


class Observation:
    """From the broker's first step on.

    stage      what its start is about, or why it ends; "" while it serves
    measures   known once its parts are there
    """

    def __init__(self) -> None:
        self.stage = "starting"
        self.measures: Measures | None = None
        #: One at a time, whoever asks: each takes the loop a few ms in all.
        self._scraping = asyncio.Lock()

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
                async with self._scraping:
                    return await _exposed(self.measures)
        return None


async def _exposed(measures: Measures) -> Answer:
    exposition = await asyncio.to_thread(importlib.import_module, "node.exposition")
    parts = []
    for part in exposition.expose(await measures.read()):
        parts.append(part)
        await asyncio.sleep(0)
    parts.append(await asyncio.to_thread(exposition.expose_process))
    return Answer(200, b"".join(parts), exposition.CONTENT_TYPE)
