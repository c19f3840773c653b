"""A broker without memory ends; whatever else goes wrong in a callback does not end it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from node.out_of_memory import guard_memory


async def test_a_callback_that_gets_no_memory_ends_the_broker() -> None:
    ends: list[str] = []
    guard_memory(asyncio.get_running_loop(), lambda: ends.append("ended"))

    def answer() -> None:
        raise MemoryError("Unable to allocate internal buffer.")

    asyncio.get_running_loop().call_soon(answer)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert ends == ["ended"]


async def test_another_failure_is_said_and_goes_by(caplog: pytest.LogCaptureFixture) -> None:
    ends: list[str] = []
    guard_memory(asyncio.get_running_loop(), lambda: ends.append("ended"))

    def answer() -> None:
        raise ValueError("not this one")

    with caplog.at_level(logging.ERROR, "asyncio"):
        asyncio.get_running_loop().call_soon(answer)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not ends
    assert "not this one" in caplog.text
