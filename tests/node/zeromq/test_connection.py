"""Test how a connection to a host with several addresses is opened; `tests/node/test_server.py` tests connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from node.net.zeromq.connection import Connection
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.errors import DisconnectedError, TimeoutError
from tidelog.model import Buffer, Endpoint
from tidelog.protocol.codec import ResponseHeader, decode_request, encode
from tidelog.protocol.messages import ApiVersionsResponse

WELCOME = ApiVersionsResponse(0, "c1", 7, 1, 0, ())


class Host:
    """A host of whose addresses some drop all packets, some refuse, and the others answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **addresses: str) -> None:
        self.behaviour = addresses
        self.dialled: list[tuple[str, float]] = []
        monkeypatch.setattr("node.net.zeromq.connection.resolve", self.resolve)

    async def resolve(self, host: str) -> tuple[str, ...]:
        return tuple(self.behaviour)

    def dial(
        self, address: Endpoint, on_message: Callable[[Sequence[Buffer]], None], on_ended: Callable[[], None]
    ) -> HostLine:
        self.dialled.append((address.host, asyncio.get_running_loop().time()))
        behaviour = self.behaviour[address.host]
        if behaviour == "refuses":
            asyncio.get_running_loop().call_soon(on_ended)
        return HostLine(on_message if behaviour == "answers" else None)

    async def connect(self, timeout_ms: int) -> str:
        """The address of the last connection."""
        connection = await Connection.open(
            Endpoint("somewhere", 1), client_id="t", timeout_ms=timeout_ms, dial=self.dial, clock=VirtualClock()
        )
        connection.close()
        return self.dialled[-1][0]


class HostLine:
    def __init__(self, on_message: Callable[[Sequence[Buffer]], None] | None) -> None:
        self._on_message = on_message

    def send(self, frames: Sequence[Buffer]) -> None:
        if self._on_message is not None:
            header, _ = decode_request(frames)
            answer = encode(ResponseHeader(header.correlation_id, 0, None), WELCOME)
            asyncio.get_running_loop().call_soon(self._on_message, answer)

    def close(self) -> None:
        pass


@on_virtual_time
async def test_address_that_never_answers_leaves_the_others_their_share_of_time() -> None:
    with pytest.MonkeyPatch.context() as patch:
        host = Host(patch, a="swallows", b="refuses", c="swallows", d="answers")
        start_s = asyncio.get_running_loop().time()
        assert await host.connect(12_000) == "d"
        assert [(address, round(at - start_s, 2)) for address, at in host.dialled] == [
            ("a", 0), ("b", 3), ("c", 3), ("d", 7.5),
        ]  # fmt: skip


@on_virtual_time
async def test_where_no_address_answers_the_whole_time_is_used_and_no_more() -> None:
    with pytest.MonkeyPatch.context() as patch:
        start_s = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await Host(patch, a="swallows", b="swallows").connect(10_000)
        assert asyncio.get_running_loop().time() - start_s == pytest.approx(10, abs=0.01)
        with pytest.raises(DisconnectedError):
            await Host(patch, a="swallows", b="refuses").connect(10_000)
