"""Open connections that send some produce requests twice with the same records, because a broker must not append a
duplicate.
"""

from __future__ import annotations

import asyncio
import random

from tidelog.client.connections import Opener, Peer
from tidelog.errors import TidelogError
from tidelog.model import Endpoint
from tidelog.protocol.messages import ProduceRequest, ProduceResponse, Request, Response

#: One in this many produce requests is repeated.
_ONE_IN = 10


def repeating(opener: Opener, rng: random.Random) -> Opener:
    """Return an opener of connections that send about one in ten produce requests again after it was acknowledged.

    Only idempotent producers may use these connections, because others would duplicate records.
    """

    async def open_one(endpoint: Endpoint, *, client_id: str, timeout_ms: int, cluster_id: str) -> Peer:
        peer = await opener(endpoint, client_id=client_id, timeout_ms=timeout_ms, cluster_id=cluster_id)
        return _Repeating(peer, rng)

    return open_one


class _Repeating:
    """A Peer that repeats some produce requests after their first answer, if that acknowledged all partitions.

    If both attempts were acknowledged, the second answer counts, because it must have the same offsets. In all other
    cases the first answer counts: a producer that got only the refusal of the second attempt would take its records for
    not stored.
    """

    def __init__(self, peer: Peer, rng: random.Random) -> None:
        self.endpoint = peer.endpoint
        self.broker_id = peer.broker_id
        self.cluster_kind = peer.cluster_kind
        self._peer = peer
        self._rng = rng

    @property
    def closed(self) -> bool:
        return self._peer.closed

    @property
    def longest_throttle_ms(self) -> int:
        return self._peer.longest_throttle_ms

    def send(self, request: Request, *, timeout_ms: int) -> asyncio.Future[Response]:
        if isinstance(request, ProduceRequest) and self._rng.randrange(_ONE_IN) == 0:
            return _answer_of(asyncio.ensure_future(self._send_twice(request, timeout_ms)))
        return self._peer.send(request, timeout_ms=timeout_ms)

    async def _send_twice(self, request: ProduceRequest, timeout_ms: int) -> Response:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        first = await self._peer.send(request, timeout_ms=timeout_ms)
        passed_ms = int((loop.time() - began_s) * 1000)
        if passed_ms >= timeout_ms or not _acknowledges(first):
            return first
        try:
            second = await self._peer.send(request, timeout_ms=timeout_ms - passed_ms)
        except TidelogError:
            return first
        return second if _acknowledges(second) else first

    def send_no_reply(self, request: Request, *, timeout_ms: int) -> None:
        self._peer.send_no_reply(request, timeout_ms=timeout_ms)

    def close(self) -> None:
        self._peer.close()


def _answer_of(task: asyncio.Task[Response]) -> asyncio.Future[Response]:
    """Return a future with the outcome of the task. The client may set its exception, which a task does not allow. When
    the future is done first, the task is cancelled.
    """
    answer: asyncio.Future[Response] = task.get_loop().create_future()

    def pass_on(ended: asyncio.Task[Response]) -> None:
        if answer.done():
            return
        if ended.cancelled():
            answer.cancel()
        elif (error := ended.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(ended.result())

    task.add_done_callback(pass_on)
    answer.add_done_callback(lambda _: task.cancel())
    return answer


def _acknowledges(answer: Response) -> bool:
    return isinstance(answer, ProduceResponse) and not any(each.error_code for each in answer.partitions)
