"""Run one client process of a run: `python -P -m verify.chaos.clients PART.json`.

After SIGTERM every sent record gets its outcome, and the histories are complete. After SIGKILL the histories are
complete up to the last operation. The process also ends when its parent process has ended.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import uvloop

from tidelog.history.history_files import HistoryWriter, history_path
from tidelog.history.operations import Client
from verify.chaos.clients.client_context import ClientContext
from verify.chaos.clients.client_factory import RunningClient, clients_of
from verify.chaos.clients.producing import ProducingClient
from verify.chaos.load import Part

_LOOK_AT_PARENT_S = 1.0


async def run(part: Part) -> None:
    """Run the clients of this part until SIGTERM or the end of the parent process, and until every sent record has an
    outcome.

    An unexpected error of one client cancels all clients and is raised in an ExceptionGroup.
    """
    directory = Path(part.directory)

    def open_history(header: Client) -> HistoryWriter:
        return HistoryWriter(history_path(directory, header.name), header)

    context = ClientContext(
        part.servers,
        part.load.topics,
        open_history,
        rng=random.Random(f"{part.seed}/{part.process}/{part.life}"),
        timeout_ms=part.load.delivery_timeout_ms,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, context.stopping.set)
    clients = list(_create_clients(context, part))
    async with asyncio.TaskGroup() as tasks:
        for client in clients:
            tasks.create_task(client.run(), name=client.name)
        tasks.create_task(_watch(context, [each for each in clients if isinstance(each, ProducingClient)]))


def _create_clients(context: ClientContext, part: Part) -> Iterator[RunningClient]:
    if not part.has_kafka_clients:
        return clients_of(context, part.load, part.process, part.life)
    # imported late, because confluent-kafka need not be installed
    from verify.chaos.clients.confluent.client_factory import confluent_clients_of

    return confluent_clients_of(context, part.load, part.process, part.life)


async def _watch(context: ClientContext, producers: list[ProducingClient]) -> None:
    """Once a second, print how many records were newly left out because the load fell behind its rate.

    If the parent process has ended, ask the clients to stop. Return when the clients are asked to stop.
    """
    parent, reported = os.getppid(), 0
    while not context.stopping.is_set():
        await context.pause(_LOOK_AT_PARENT_S)
        if os.getppid() != parent:
            context.stopping.set()
        left_out = sum(each.pace.left_out for each in producers if each.pace is not None)
        if left_out > reported:
            print(
                f"{time.monotonic():.3f} left out {left_out - reported} records: this machine is too slow", flush=True
            )
            reported = left_out


def main(part: Part) -> int:
    """Run this part and return 0; an error is raised. If it has Kafka clients, end the process instead, with status 0,
    or 1 after an error, because a thread that hangs in librdkafka would keep the interpreter from ending.
    """
    if not part.has_kafka_clients:
        uvloop.run(run(part))
        return 0
    status = 0
    try:
        uvloop.run(run(part))
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(Part.of_json(Path(sys.argv[1]).read_text())))
