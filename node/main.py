"""One broker as a process: reads its settings, logs, serves until SIGTERM or SIGINT, and says why it ended."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import resource
import signal
import sys
from pathlib import Path

import uvloop

from node.broker import Broker
from node.environment import RealEnvironment
from node.runtime.logging_setup import log_to
from node.runtime.out_of_memory import end_process, guard_memory
from node.settings import BrokerSettings
from tidelog.errors import TidelogError

log = logging.getLogger("node")

_SWITCH_INTERVAL_S = 0.0005


def main() -> int:
    """0 after a polite stop, 1 with one line on standard error where the broker could not start or go on."""
    parser = argparse.ArgumentParser(prog="node", description="one Tidelog broker")
    parser.add_argument(
        "--config",
        type=Path,
        required=True,
        action="append",
        help="the broker's settings, a TOML file; may be repeated",
    )
    arguments = parser.parse_args()
    logs_to_file = False
    try:
        settings = BrokerSettings.load(*arguments.config)
        log_to(settings)
        logs_to_file = bool(settings.log_file)
        _allow_many_files()
        # What a thread takes apart keeps the loop waiting no longer than this; Python's own 5 ms are ten answers.
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        failure = uvloop.run(_serve(settings))
    except (TidelogError, OSError) as error:
        failure = error
    if failure is None:
        return 0
    if logs_to_file:
        log.error("the broker ends: %s", _told(failure))
    print(f"broker: {_told(failure)}", file=sys.stderr)
    return 1


def _told(failure: Exception) -> str:
    """Without the number that an OSError begins with where it names no file."""
    if isinstance(failure, OSError) and failure.strerror and failure.filename is None:
        return failure.strerror
    return str(failure)


async def _serve(settings: BrokerSettings) -> Exception | None:
    broker = Broker(settings, RealEnvironment())
    loop = asyncio.get_running_loop()
    guard_memory(loop, end_process)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, broker.end)
    starting = asyncio.ensure_future(broker.start())
    ended = asyncio.ensure_future(broker.wait_ended())
    try:
        # A stop may be asked for while the start still waits for ZooKeeper or scans a log.
        await asyncio.wait((starting, ended), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            _collect_seldom()
            await ended
    finally:
        ended.cancel()
        starting.cancel()
        await asyncio.gather(starting, ended, return_exceptions=True)
        await broker.stop()
    return broker.failure


def _collect_seldom() -> None:
    """Requests leave few cycles behind, but each full collection stops the loop for as long as 30 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def _allow_many_files() -> None:
    """Each partition keeps its newest segment's three files open: as many as the system lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
