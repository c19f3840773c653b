"""Count the requests and the answers of a client's connections."""

from __future__ import annotations

import asyncio
from functools import partial

from tidelog.client.connections import Opener, Peer
from tidelog.client.metrics.client_metrics import ClientMetrics
from tidelog.clock import Clock
from tidelog.model import Endpoint
from tidelog.protocol.messages import ApiKey, Request, Response


def measured(opener: Opener, metrics: ClientMetrics, clock: Clock) -> Opener:
    """Return an opener whose connections count their requests and answers in `metrics`."""

    async def open_one(endpoint: Endpoint, *, client_id: str, timeout_ms: int, cluster_id: str) -> Peer:
        peer = await opener(endpoint, client_id=client_id, timeout_ms=timeout_ms, cluster_id=cluster_id)
        metrics.on_connected(peer)
        return _MeasuredPeer(peer, metrics, clock)

    return open_one


class _MeasuredPeer:
    """A Peer that counts each request when it is sent, and again when it has ended."""

    __slots__ = ("_metrics", "_monotonic_ms", "_peer", "broker_id", "close", "cluster_kind", "endpoint")

    def __init__(self, peer: Peer, metrics: ClientMetrics, clock: Clock) -> None:
        self.endpoint = peer.endpoint
        self.broker_id = peer.broker_id
        self.cluster_kind = peer.cluster_kind
        self.close = peer.close
        self._peer = peer
        self._metrics = metrics
        self._monotonic_ms = clock.monotonic_ms

    @property
    def closed(self) -> bool:
        return self._peer.closed

    @property
    def longest_throttle_ms(self) -> int:
        return self._peer.longest_throttle_ms

    def send(self, request: Request, *, timeout_ms: int) -> asyncio.Future[Response]:
        answer = self._peer.send(request, timeout_ms=timeout_ms)
        self._metrics.on_sent()
        answer.add_done_callback(partial(self._on_ended, request.api, self._monotonic_ms()))
        return answer

    def send_no_reply(self, request: Request, *, timeout_ms: int) -> None:
        self._peer.send_no_reply(request, timeout_ms=timeout_ms)
        self._metrics.on_sent(expects_answer=False)

    def _on_ended(self, api: ApiKey, sent_ms: int, answer: asyncio.Future[Response]) -> None:
        self._metrics.on_ended()
        if not answer.cancelled() and answer.exception() is None:
            now_ms = self._monotonic_ms()
            self._metrics.on_answer(api, now_ms - sent_ms, now_ms, self._peer.longest_throttle_ms)
