"""What is there when all is over: what the leaders give to a client that reads it all, and what the files hold."""

from __future__ import annotations

import asyncio
import builtins
import sys
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

from tidelog.aio import Consumer
from tidelog.client.consumer.fetch_buffer import FetchedBatches
from tidelog.errors import LocalError, TimeoutError
from tidelog.local.broker import broker_environment
from tidelog.model import TopicPartition
from tidelog.records.header import iter_headers
from verify.chaos.clients.observing import columns_of
from verify.checker.logs import READ, FinalLog, write_final_log

_LONGEST_S = 120.0
_POLL_MS = 500
_ASK_MS = 20_000


async def read_final_logs(servers: str, tps: Sequence[TopicPartition], directory: Path) -> list[FinalLog]:
    """Every record from the log start to the end, from the leaders; written to DIR/final/read, and returned.

    TimeoutError where they were not read to their ends in time: then nothing is known of the end. Other errors of
    consumers as they are.
    """
    async with Consumer(servers, client_id="final-read", auto_offset_reset="none") as consumer:
        try:
            async with asyncio.timeout(_LONGEST_S):
                logs = await read_leaders(consumer, tps)
        except builtins.TimeoutError:
            raise TimeoutError(f"the final read was not done within {_LONGEST_S:g} s") from None
    for log in logs:
        write_final_log(directory, log)
    return logs


async def copy_replica_logs(broker_id: int, log_dirs: Sequence[Path], topics: Iterable[str], directory: Path) -> None:
    """What a broker's files hold of these topics, to DIR/final/BROKER. LocalError says what went wrong, TimeoutError
    that it took too long.

    The installed `storage` reads them, in a process of its own: what knows only the protocol knows no files.
    """
    chosen = [part for topic in topics for part in ("--topic", topic)]
    command = ["-m", "verify.checker.export_logs", str(broker_id), str(directory), *map(str, log_dirs), *chosen]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        *command,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=broker_environment(),
    )
    try:
        async with asyncio.timeout(_LONGEST_S):
            _, words = await process.communicate()
    except builtins.TimeoutError:
        raise TimeoutError(f"the logs of broker {broker_id} were not read within {_LONGEST_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise LocalError(f"the logs of broker {broker_id} cannot be read: {words.decode(errors='replace').strip()}")


async def read_leaders(consumer: Consumer, tps: Sequence[TopicPartition]) -> list[FinalLog]:
    """Each partition from its start to where it ends now; the consumer is for this alone. Errors as of consumers."""
    consumer.assign(tps)
    starts, ends = await consumer.beginning_offsets(tps, _ASK_MS), await consumer.end_offsets(tps, _ASK_MS)
    logs = {tp: _empty(tp, starts[tp], ends[tp]) for tp in tps}
    for tp, start in starts.items():
        consumer.seek(tp, start)
    left = {tp for tp in tps if starts[tp] < ends[tp]}
    while left:
        for tp, fetched in (await consumer.poll_batches(_POLL_MS)).items():
            if fetched.fetch_offset < ends[tp]:
                _add(logs[tp], fetched)
            if fetched.next_offset >= ends[tp]:
                left.discard(tp)
    return list(logs.values())


def _empty(tp: TopicPartition, start: int, end: int) -> FinalLog:
    columns = (array("q"), array("q"), array("q"), array("q"))
    return FinalLog(READ, tp, start, end, end, None, *columns)


def _add(log: FinalLog, fetched: FetchedBatches) -> None:
    for at, header in iter_headers(fetched.records):
        batch = fetched.records[at : at + header.size_bytes]
        offsets, ids, ts = columns_of(batch, fetched.fetch_offset)
        for column, values in (
            (log.offsets, offsets),
            (log.ids, ids),
            (log.ts, ts),
            (log.leader_epochs, [header.partition_leader_epoch] * len(offsets)),
        ):
            _extend(column, values)


def _extend(column: Sequence[int], values: Iterable[int]) -> None:
    assert isinstance(column, array)
    column.extend(values)
