"""The answers of a broker to /healthz, /readyz, /metrics, /metrics/partitions and /metrics/partitions/TOPIC."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine
from typing import Any

from node.net.http_server import Answer, line
from node.observability.metrics import Metrics

_PARTITIONS = "/metrics/partitions"
#: The pause after a scrape as a multiple of the scrape's duration, and its maximum.
_PAUSE_FACTOR = 9
_LONGEST_PAUSE_S = 1.0


class HealthEndpoints:
    """The health of a broker, from the first step of its start.

    stage     the current step of the start or of the stop; "" while the broker serves
    """

    def __init__(self) -> None:
        self.stage = "starting"
        self._metrics: Metrics | None = None
        self._scrapes = Scrapes(self._exposed)

    def expose(self, metrics: Metrics) -> None:
        """Answer /metrics with these metrics from now on, and take the broker's readiness from them.

        Call this once the parts of the broker have been created.
        """
        self._metrics = metrics

    def why_not_ready(self) -> str | None:
        """Return one line with the reason, which is the stage if there is one, or None if the broker is ready."""
        if self.stage or self._metrics is None:
            return self.stage or "starting"
        return self._metrics.why_not_ready()

    async def answer(self, path: str) -> Answer | None:
        """Return the answer for the path, or None for an unknown path.

        /healthz is always answered with 200. /readyz has 503 while the broker is not ready, and the metrics until
        `expose` was called. Single partitions have series only below /metrics/partitions, so that the size of /metrics
        does not depend on their number.
        """
        match path:
            case "/healthz":
                return line(200, "alive")  # an answer at all proves that the event loop runs
            case "/readyz":
                reason = self.why_not_ready()
                return line(200, "ready") if reason is None else line(503, reason)
        if path == "/metrics" or path == _PARTITIONS or path.startswith(f"{_PARTITIONS}/"):
            if self._metrics is None:
                return line(503, self.stage)
            return await self._scrapes.next(path)
        return None

    async def _exposed(self, path: str) -> Answer:
        assert self._metrics is not None
        exposition = await asyncio.to_thread(importlib.import_module, "node.observability.exposition")
        if path == "/metrics":
            families = await self._metrics.read()
        else:
            families = await self._metrics.read_partitions(path.removeprefix(_PARTITIONS).removeprefix("/"))
        parts = []
        for part in exposition.expose(families):
            parts.append(part)
            await asyncio.sleep(0)
        if path == "/metrics":
            parts.append(await asyncio.to_thread(exposition.expose_process))
        return Answer(200, b"".join(parts), exposition.CONTENT_TYPE)


class Scrapes:
    """Answers that take a few ms of the loop each, and a bounded share of its time however often they are requested.

    After each answer comes a pause of nine times the answer's duration, at most a second. All requests that arrive
    for a path before the next answer is started share that answer.
    """

    def __init__(self, make: Callable[[str], Coroutine[Any, Any, Answer]]) -> None:
        self._make = make
        self._lock = asyncio.Lock()
        self._next: dict[str, asyncio.Task[Answer]] = {}
        self._pause_ends = 0.0

    async def next(self, path: str) -> Answer:
        """Return an answer for the path whose values are read after this call."""
        answer = self._next.get(path)
        if answer is None:
            answer = self._next[path] = asyncio.create_task(self._make_after_pause(path), name="scrape")
        return await asyncio.shield(answer)  # a client that disconnects does not cancel the shared answer

    async def _make_after_pause(self, path: str) -> Answer:
        loop = asyncio.get_running_loop()
        async with self._lock:
            await asyncio.sleep(self._pause_ends - loop.time())
            del self._next[path]
            began = loop.time()
            try:
                return await self._make(path)
            finally:
                took = loop.time() - began
                self._pause_ends = loop.time() + min(_PAUSE_FACTOR * took, _LONGEST_PAUSE_S)
