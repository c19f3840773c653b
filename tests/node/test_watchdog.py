"""The watchdog, on real threads."""

from __future__ import annotations

import asyncio
import threading

from node.process.watchdog import Watchdog


async def test_watchdog_ends_only_a_process_whose_loop_hangs() -> None:
    bitten = threading.Event()
    watchdog = Watchdog(200, bitten.set)
    watchdog.start()
    await asyncio.sleep(0.5)
    assert not bitten.is_set()
    assert bitten.wait(10), "the loop is blocked meanwhile"
    watchdog.stop()
