"""Read the final logs: all records that the leaders return to a client, and the contents of the brokers' files."""

from __future__ import annotations

import asyncio
import builtins
import sys
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

from tidelog.aio import Consumer
from tidelog.client.consumer.fetching.fetch_buffer import FetchedBatches
from tidelog.errors import LocalError, TimeoutError
from tidelog.local.broker import broker_environment
from tidelog.model import TopicPartition
from tidelog.records.header import iter_headers
from verify.chaos.clients.observing import columns_of
from verify.checker.inputs.logs import READ, FinalLog, write_final_log

_LONGEST_S = 120.0
_POLL_MS = 500
_ASK_MS = 20_000


async def read_final_logs(servers: str, tps: Sequence[TopicPartition], directory: Path) -> list[FinalLog]:
    """Read every record from the log start offset to the high watermark from the leaders, write the logs to
    DIR/final/read and return them.

    Raise TimeoutError after 120 s, because the final state is unknown then, and write nothing. Errors of the consumer
    pass through.
    """
    async with Consumer(bootstrap_servers=servers, client_id="final-read", auto_offset_reset="none") as consumer:
        try:
            async with asyncio.timeout(_LONGEST_S):
                logs = await read_leaders(consumer, tps)
        except builtins.TimeoutError:
            raise TimeoutError(f"the final read took longer than {_LONGEST_S:g} s") from None
    for log in logs:
        write_final_log(directory, log)
    return logs


async def copy_replica_logs(broker_id: int, log_dirs: Sequence[Path], topics: Iterable[str], directory: Path) -> None:
    """Write the records of these topics in a broker's files to DIR/final/BROKER. The broker need not run.

    Raise LocalError with the cause of a failure, and TimeoutError if the read takes longer than 120 s. A separate
    process with the installed `storage` reads the files, because this package knows only the protocol.
    """
    chosen = [part for topic in topics for part in ("--topic", topic)]
    command = ["-m", "verify.checker.inputs.export_logs", str(broker_id), str(directory), *map(str, log_dirs), *chosen]
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
        raise TimeoutError(f"reading the logs of broker {broker_id} took longer than {_LONGEST_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise LocalError(f"cannot read the logs of broker {broker_id}: {words.decode(errors='replace').strip()}")


async def read_leaders(consumer: Consumer, tps: Sequence[TopicPartition]) -> list[FinalLog]:
    """Return each partition's log from its start to its high watermark at the time of the call, in the order of `tps`.

    The consumer must have no other use, and no client may produce meanwhile. Errors of the consumer pass through.
    """
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
