"""Run a streaming query whose micro-batches the test collects."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

DEADLINE_S = 240  # on a machine whose two slow cores other tests use as well


class Batches:
    """Collects what each micro-batch of a query brought."""

    def __init__(self) -> None:
        self.values: dict[int, list[str]] = {}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.values[batch] = sorted(row.value.decode() for row in frame.select("value").collect())

    @property
    def all(self) -> list[str]:
        return sorted(value for values in self.values.values() for value in values)


def run(frame: DataFrame, checkpoint: Path, seen: Callable[[DataFrame, int], None], **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(seen).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def wait_until(condition: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)
