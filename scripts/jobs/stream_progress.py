"""Records what a stream has done, batch by batch, from Spark's progress, and writes it to a file of JSON lines."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Batch:
    """One micro-batch that ran.

    rows          records read
    before        records older than the starting time
    watermark     in ms; 0: none yet
    late_groups   windows × sources that Spark dropped
    """

    batch: int
    rows: int
    before: int
    start: dict[str, dict[str, int]]
    end: dict[str, dict[str, int]]
    watermark: int
    late_groups: int
    duration_ms: int


class Progress:
    """The batches of a query in order. Batches that an earlier run wrote to the same file come first."""

    def __init__(self, file: Path, spark: SparkSession) -> None:
        self.batches: dict[int, Batch] = {}
        self._spark = spark
        self._failed_before = self._failures()
        if file.exists():
            for line in file.read_text().splitlines():
                event = json.loads(line)
                if event["event"] == "batch":
                    self._keep(Batch(**{name: event[name] for name in Batch.__dataclass_fields__}))
        self._file = file.open("a")

    def write(self, event: str, **details: Any) -> None:
        self._file.write(json.dumps({"event": event, "at": time.time_ns() // 1_000_000, **details}) + "\n")
        self._file.flush()

    def take(self, recent: Iterable[Any]) -> None:
        """Store and write the new batches among Spark's most recent progress."""
        for progress in recent:
            # Without `addBatch` no batch ran, and Spark only reports that it is idle.
            if "addBatch" in progress["durationMs"] and progress["batchId"] not in self.batches:
                batch = _batch(progress)
                self._keep(batch)
                self.write("batch", **asdict(batch), failed_tasks=self.failed_tasks())

    def failed_tasks(self) -> int:
        """Return the failed tasks of all executors since this object was created."""
        return self._failures() - self._failed_before

    def _failures(self) -> int:
        executors = self._spark.sparkContext._jsc.sc().statusStore().executorList(False)
        return sum(int(executors.apply(index).failedTasks()) for index in range(executors.size()))

    @property
    def last(self) -> Batch | None:
        return self.batches[max(self.batches)] if self.batches else None

    def _keep(self, batch: Batch) -> None:
        self.batches[batch.batch] = batch


def reached(end: Mapping[str, Mapping[str, int]], wanted: Mapping[str, Any]) -> bool:
    """Return whether the offsets `end` have reached `wanted`, {"topic": {"0": 23}} or, for one topic, {"0": 23}."""
    if not all(isinstance(each, Mapping) for each in wanted.values()):
        wanted = {topic: wanted for topic in end}
    return all(
        end.get(topic, {}).get(partition, 0) >= offset
        for topic, partitions in wanted.items()
        for partition, offset in partitions.items()
    )


def _batch(progress: Any) -> Batch:
    [source] = progress["sources"]
    metrics = progress["observedMetrics"].get("lines")
    watermark = (progress["eventTime"] or {}).get("watermark")
    return Batch(
        batch=progress["batchId"],
        rows=progress["numInputRows"],
        before=(metrics["before"] or 0) if metrics else 0,
        start=_offsets(source["startOffset"]) or _offsets(source["endOffset"]),
        end=_offsets(source["endOffset"]),
        watermark=round(datetime.fromisoformat(watermark).timestamp() * 1000) if watermark else 0,
        late_groups=sum(operator["numRowsDroppedByWatermark"] for operator in progress["stateOperators"]),
        duration_ms=progress["durationMs"]["triggerExecution"],
    )


def _offsets(value: Any) -> dict[str, dict[str, int]]:
    offsets: dict[str, dict[str, int]] = json.loads(value) if isinstance(value, str) else value
    return offsets or {}
