"""Test that a slow name server does not delay callers that have an earlier answer."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest

from tests.virtual_time import on_virtual_time
from tidelog.protocol.addresses import TIME_LIMIT_S, Resolver, resolve


class NameServer:
    """Answers what `answers` says, after `delay_s`."""

    def __init__(self) -> None:
        self.answers = {"h": ("10.0.0.1",)}
        self.delay_s = 0.0
        self.asked = 0

    async def look_up(self, host: str) -> tuple[str, ...]:
        self.asked += 1
        await asyncio.sleep(self.delay_s)
        if host not in self.answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.answers[host]


@on_virtual_time
async def test_each_connect_learns_that_a_host_has_moved() -> None:
    server = NameServer()
    resolver = Resolver(server.look_up)
    assert await resolver.resolve("h") == ("10.0.0.1",)
    server.answers["h"] = ("10.0.0.2",)
    assert await resolver.resolve("h") == ("10.0.0.2",)


@on_virtual_time
async def test_earlier_answer_is_used_if_the_next_one_is_late_or_missing() -> None:
    server, loop = NameServer(), asyncio.get_running_loop()
    resolver = Resolver(server.look_up)
    await resolver.resolve("h")
    server.delay_s, server.answers["h"] = 10.0, ("10.0.0.2",)
    started = loop.time()
    assert await resolver.resolve("h") == ("10.0.0.1",)
    assert loop.time() - started == pytest.approx(TIME_LIMIT_S)
    assert await resolver.resolve("h") == ("10.0.0.1",)
    assert server.asked == 2  # one look-up at a time, however many callers wait
    await asyncio.sleep(10)
    server.answers.clear()
    assert await resolver.resolve("h") == ("10.0.0.2",)


@on_virtual_time
async def test_unknown_name_raises_for_every_caller() -> None:
    resolver = Resolver(NameServer().look_up)
    outcomes = await asyncio.gather(*(resolver.resolve("nope") for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [socket.gaierror] * 3


@on_virtual_time
async def test_cancelled_caller_does_not_cancel_the_others() -> None:
    server = NameServer()
    server.delay_s = 1.0
    resolver = Resolver(server.look_up)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(resolver.resolve("h"), 0.5)
    assert await resolver.resolve("h") == ("10.0.0.1",)
    assert server.asked == 1


async def test_addresses_are_used_unchanged_and_names_are_resolved() -> None:
    assert await resolve("::1") == ("::1",)
    assert await resolve("10.0.0.7") == ("10.0.0.7",)
    assert "127.0.0.1" in await resolve("localhost")


async def test_invalid_name_is_an_unknown_host() -> None:
    with pytest.raises(OSError):
        await resolve("a" * 64 + ".example")


def test_a_look_up_that_never_ends_does_not_keep_a_loop_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answered.wait(30) and [])

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(resolve("gone.example"), 0.05)

    started = time.monotonic()
    try:
        asyncio.run(give_up())
        assert time.monotonic() - started < 10
    finally:
        answered.set()
