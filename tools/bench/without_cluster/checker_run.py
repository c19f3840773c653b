"""Writes a correct run's directory of any size, as chaos leaves it, for the benchmark of the checker."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidelog.history.broker_events import Ack, Append, BecomeLeader, Broker, HighWatermark
from tidelog.history.columns import SEQUENCE_BITS
from tidelog.history.history_files import HistoryWriter, history_path
from tidelog.history.operations import Client, LatestOk, LookUpOk, ProduceInvoked, ProduceOk, Read
from tidelog.model import TopicPartition
from verify.checker.inputs.logs import READ, EpochStart, FinalLog, StoredBatch, write_final_log

_T0_MS: Final = 1_700_000_000_000
_STEP_NS: Final = 100_000
_BUFFER_BYTES: Final = 1 << 20
_REPLICAS: Final = (1, 2, 3)


@dataclass(slots=True)
class _Log:
    """The records of a partition: the id and the timestamp (ms) of the record at each offset, and the batches."""

    tp: TopicPartition
    ids: array[int] = field(default_factory=lambda: array("q"))
    ts: array[int] = field(default_factory=lambda: array("q"))
    batches: list[StoredBatch] = field(default_factory=list)


def write_run(
    directory: Path, writes: int, readers: int, *, partitions: int = 4, producers: int = 4, batch: int = 50
) -> None:
    """Write the histories and final logs of a run without faults into `directory`.

    The producers write `writes` records in batches of `batch`, and each reader reads every record. Every partition has
    three replicas and keeps its leader, broker 1. Equal arguments give equal files.
    """
    rng = random.Random(7)
    logs = [_Log(TopicPartition("t", number)) for number in range(partitions)]
    _write_produces(directory, logs, writes // batch, producers, batch, rng)
    for reader in range(readers):
        _write_reads(directory, f"reader-{reader}", logs, batch * 4, reader)
    for log in logs:
        _write_final(directory, log)


def _write_produces(
    directory: Path, logs: Sequence[_Log], batches: int, producers: int, batch: int, rng: random.Random
) -> None:
    clients = [_open(directory, Client(f"producer-{number}")) for number in range(producers)]
    leader = _open(directory, Broker("1"))
    for log in logs:
        leader.write(BecomeLeader(1, log.tp, 1, 0, 0))
    sequences, t = [0] * producers, 0
    for number in range(batches):
        t += _STEP_NS
        producer, log = rng.randrange(producers), rng.choice(logs)
        base, first = len(log.ids), producer << SEQUENCE_BITS | sequences[producer]
        sequences[producer] += batch
        ids = range(first, first + batch)
        stamps = [_T0_MS + t // 1_000_000 + rng.randrange(20) for _ in ids]
        invoked, ended = [t - 5_000_000] * batch, [t] * batch
        clients[producer].write(ProduceInvoked(log.tp, ids, stamps, invoked))
        clients[producer].write(ProduceOk(log.tp, ids, range(base, base + batch), ended, [1] * batch))
        log.ids.extend(ids)
        log.ts.extend(stamps)
        end = base + batch
        log.batches.append(StoredBatch(base, end - 1, rng.getrandbits(32)))
        leader.write(Append(t - 3, log.tp, base, end - 1, 1, "leader"))
        leader.write(HighWatermark(t - 2, log.tp, 1, end))
        leader.write(Ack(t - 1, log.tp, end - 1, 1, _REPLICAS, (), dict.fromkeys(_REPLICAS, end), _REPLICAS, 2))
        if number % 100 == 0:
            clients[producer].write(LatestOk(log.tp, end, t, t + 1, 1))
    for each in (*clients, leader):
        each.close()


def _write_reads(directory: Path, name: str, logs: Sequence[_Log], records: int, reader: int) -> None:
    """Write a reader's history: reads of all records, and look-ups by time, at times after all produces.

    Each read has up to `records` records. `reader` is the number of the session.
    """
    t = sum(len(log.ids) for log in logs) * _STEP_NS
    with _open(directory, Client(name)) as history:
        for log in logs:
            end = len(log.ids)
            for base in range(0, end, records):
                part, t = slice(base, base + records), t + _STEP_NS
                ids = log.ids[part]
                history.write(Read(log.tp, reader, end, t - 1000, t, range(base, base + len(ids)), ids, log.ts[part]))
            for target, offset in _answers(log, 500):
                t += _STEP_NS
                history.write(LookUpOk(log.tp, target, offset, t - 1000, t, log.ts[offset], 1))


def _answers(log: _Log, count: int) -> Iterator[tuple[int, int]]:
    """Yield about `count` target times (ms), each with the offset of the first record at or after it."""
    offset, greatest = 0, log.ts[0]
    for target in range(log.ts[0], max(log.ts), max(1, (max(log.ts) - log.ts[0]) // count)):
        while greatest < target:
            offset += 1
            greatest = max(greatest, log.ts[offset])
        yield target, offset


def _write_final(directory: Path, log: _Log) -> None:
    end = len(log.ids)
    for broker in (*map(str, _REPLICAS), READ):
        epochs, batches = ([EpochStart(1, 0)], log.batches) if broker != READ else (None, [])
        columns = range(end), log.ids, log.ts, array("q", [1]) * end
        write_final_log(directory, FinalLog(broker, log.tp, 0, end, end, epochs, *columns, batches))


def _open(directory: Path, header: Client | Broker) -> HistoryWriter:
    return HistoryWriter(history_path(directory, header.name), header, buffer_bytes=_BUFFER_BYTES)
