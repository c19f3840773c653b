"""Write the directory of an invented run, derived from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidelog.history.broker_events import (
    BecomeFollower,
    BecomeLeader,
    Broker,
    Controller,
    HighWatermark,
    IsrChange,
    Session,
)
from tidelog.history.history_files import HistoryWriter, history_path
from tidelog.history.operations import Client, ProduceInvoked, ProduceOk, ProduceUnknown, Read
from tidelog.model import TopicPartition
from verify.chaos.payload import make_id
from verify.checker.verdict import Row, Verdict

SECOND = 1_000_000_000
#: A start other than 0, because no clock of a machine begins at 0.
START = 5_000 * SECOND


def fault_line(row: str, name: str, begin_s: float, end_s: float, **others: object) -> dict[str, Any]:
    """Return a line of faults.jsonl for a fault that bit half a second after its begin."""
    times = {"t_inject": at(begin_s), "t_bit": at(begin_s + 0.5), "t_heal": at(end_s)}
    return {"row": row, "name": name, "what": "", **times, "outcome": "bit", "why": "", **others}


def at(seconds: float) -> int:
    """Return a time of the run."""
    return START + round(seconds * SECOND)


@dataclass
class InventedRun:
    """Three brokers, some partitions and one client; every fault removes its partitions' leader for a second."""

    seconds: int = 60
    partitions: int = 3
    rate: int = 60
    seed: int = 1
    topic: str = "orders"
    faults: Sequence[dict[str, Any]] = field(default_factory=list)
    verdict: dict[str, Any] | None = None

    def write(self, directory: Path) -> Path:
        """Write all files into a directory."""
        rng = random.Random(self.seed)
        brokers = {n: HistoryWriter(history_path(directory, str(n)), Broker(str(n), START)) for n in (1, 2, 3)}
        client = HistoryWriter(history_path(directory, "client-1"), Client("client-1", t=START), buffer_bytes=1 << 16)
        for number, broker in brokers.items():
            broker.write(Session(at(0.1 * number), "connected"))
        brokers[1].write(Controller(at(0.5), 1))
        tps = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        leaders = {tp: 1 + index % 3 for index, tp in enumerate(tps)}
        epochs, offsets, written = dict.fromkeys(tps, 0), dict.fromkeys(tps, 0), 0
        away: dict[TopicPartition, float] = {}
        for tp in tps:
            brokers[leaders[tp]].write(BecomeLeader(at(0.6), tp, 0, 0, 0))
            brokers[leaders[tp]].write(IsrChange(at(0.7), tp, (1, 2, 3), 0, 1, True))
        pending = sorted((line for line in self.faults if line["t_inject"]), key=lambda line: line["t_inject"])
        healing: list[tuple[float, TopicPartition]] = []
        for step in range(self.rate * (self.seconds - 1)):
            now = 1 + step / self.rate
            while pending and pending[0]["t_inject"] <= at(now):
                line = pending.pop(0)
                victim = rng.choice((1, 2, 3))
                brokers[victim].write(Session(at(now + 0.1), "lost"))
                brokers[victim].write(Session(at(now + 2), "connected"))
                for tp in tps:
                    healing.append(((line["t_heal"] - START) / SECOND + 1, tp))
                    if leaders[tp] == victim:
                        away[tp] = now + 1
                        old, leaders[tp], epochs[tp] = victim, victim % 3 + 1, epochs[tp] + 1
                        new = brokers[leaders[tp]]
                        new.write(BecomeLeader(at(now + 1), tp, epochs[tp], offsets[tp], offsets[tp]))
                        brokers[old].write(BecomeFollower(at(now + 1.1), tp, epochs[tp], leaders[tp]))
                    isr = tuple(broker for broker in (1, 2, 3) if broker != victim)
                    brokers[leaders[tp]].write(IsrChange(at(now + 1.05), tp, isr, epochs[tp], 2, True))
            for when, tp in [each for each in healing if each[0] <= now]:
                healing.remove((when, tp))
                brokers[leaders[tp]].write(IsrChange(at(now), tp, (1, 2, 3), epochs[tp], 3, True))
            for tp in tps:
                record = make_id(1, written)
                client.write(ProduceInvoked(tp, [record], [0], [at(now)]))
                written += 1
                if away.get(tp, 0) > now:
                    if rng.random() < 0.2:
                        client.write(ProduceUnknown(tp, [record], ["NetworkError"], [at(now + 0.4)]))
                    continue
                took = rng.lognormvariate(-6, 0.8)
                client.write(ProduceOk(tp, [record], [offsets[tp]], [at(now + took)]))
                offsets[tp] += 1
                brokers[leaders[tp]].write(HighWatermark(at(now + took), tp, epochs[tp], offsets[tp]))
                if offsets[tp] % 10 == 0:
                    seen = range(offsets[tp] - 10, offsets[tp])
                    client.write(Read(tp, 1, offsets[tp], at(now), at(now + took), list(seen), [0] * 10, [0] * 10))
        for writer in (client, *brokers.values()):
            writer.close()
        (directory / "faults.jsonl").write_text("".join(json.dumps(line) + "\n" for line in self.faults))
        (directory / "run.json").write_text(json.dumps({"rows": sorted({line["row"] for line in self.faults})}))
        if self.verdict is not None:
            (directory / "verdict.json").write_text(json.dumps(self.verdict))
        return directory


def verdict(**broken: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a verdict in which only the given invariants are violated, by these findings."""
    keys = [f"I{number}" for number in range(1, 23)]
    rows = [Row(key, key, 1000 * index + 1, len(broken.get(key, ()))) for index, key in enumerate(keys)]
    findings = [{"invariant": key, **finding} for key, found in broken.items() for finding in found]
    return Verdict(rows, []).to_json() | {"findings": findings}
