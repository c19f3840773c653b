"""Run one broker as a process: read its settings, set up its log, serve until SIGTERM or SIGINT, report failures."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import logging
import signal
import sys
from contextlib import suppress
from pathlib import Path

import uvloop

from node.process.broker import Broker
from node.process.descriptors import raise_descriptor_limit
from node.process.environment import RealEnvironment
from node.process.logging_setup import log_to
from node.process.out_of_memory import end_process, guard_memory
from node.runtime.thread_pool import thread_pool
from node.settings.broker_settings import BrokerSettings
from tidelog.errors import TidelogError

log = logging.getLogger("node")

_SWITCH_INTERVAL_S = 0.0005
#: The number of calls that the event loop has on threads at the same time (`asyncio.to_thread`), such as creations of
#: logs. Flushes and periodic work have threads of their own.
OFFLOAD_THREADS = 8
#: The parameter of glibc's `mallopt` for the greatest number of arenas.
_M_ARENA_MAX = -8


def main() -> int:
    """Run one broker until SIGTERM, SIGINT or a failure, and return the exit status.

    The status is 0 after a controlled stop. If the broker has failed, it is 1, and one line is on standard error.
    """
    parser = argparse.ArgumentParser(prog="node", description="one Tidelog broker")
    parser.add_argument(
        "--config",
        type=Path,
        required=True,
        action="append",
        help="the broker's settings, a TOML file; may be repeated",
    )
    arguments = parser.parse_args()
    use_one_arena()
    logs_to_file = False
    try:
        settings = BrokerSettings.load(*arguments.config)
        log_to(settings)
        logs_to_file = bool(settings.log_file)
        raise_descriptor_limit()
        # A busy thread keeps the event loop waiting at most this long. Python's default of 5 ms is the time of ten
        # answers.
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        failure = uvloop.run(_serve(settings))
    except (TidelogError, OSError) as error:
        failure = error
    if failure is None:
        return 0
    if logs_to_file:
        log.error("the broker stops: %s", _message_of(failure))
    print(f"broker: {_message_of(failure)}", file=sys.stderr)
    return 1


def use_one_arena() -> None:
    """Let all threads allocate memory from one arena, if the C library is glibc. Called before threads are started.

    By default each thread has its own arena and cannot use the free memory of another one. With 3,000 partitions, the
    threads that open the logs leave up to 5.7 MB of such memory.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def _message_of(failure: Exception) -> str:
    """Return the error's message, without the error number if an OSError names no file."""
    if isinstance(failure, OSError) and failure.strerror and failure.filename is None:
        return failure.strerror
    return str(failure)


async def _serve(settings: BrokerSettings) -> Exception | None:
    _collect_little()
    broker = Broker(settings, RealEnvironment())
    loop = asyncio.get_running_loop()
    loop.set_default_executor(thread_pool(OFFLOAD_THREADS, "offload"))
    guard_memory(loop, end_process)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, broker.end)
    starting = asyncio.ensure_future(broker.start())
    ended = asyncio.ensure_future(broker.wait_ended())
    try:
        # A signal may request the stop while the start still waits for ZooKeeper or scans a log.
        await asyncio.wait((starting, ended), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            gc.freeze()  # the logs stay for as long as the broker, so that no collection has to look at them
            await ended
    finally:
        ended.cancel()
        starting.cancel()
        await asyncio.gather(starting, ended, return_exceptions=True)
        await broker.stop()
    return broker.failure


def _collect_little() -> None:
    """Make garbage collections short, and full collections rare. Called before the broker opens its logs.

    A collection stops the event loop for 0.3 to 0.7 ms for each 1,000 new objects. The broker frees its objects without
    collections, because the objects that it creates often are in no reference cycle.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 2, 1_000)
