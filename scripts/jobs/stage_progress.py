"""Writes the progress of a Spark job's stages to a file of JSON lines, so that a waiting process can show it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

_PERIOD_S = 0.5


class StageProgress:
    """Samples Spark's status on a thread of its own while the `with` block runs, and writes a line for each change:

    {"started": true}                       Spark runs, and no stage has been seen yet
    {"stage": 4, "tasks": 12, "done": 5}    the running stage, its tasks, and its ended tasks
    """

    def __init__(self, spark: SparkSession, file: Path) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._file = file.open("w")
        self._last: dict[str, int] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="stage progress", daemon=True)

    def __enter__(self) -> Self:
        self._write({"started": True})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._file.close()

    def _sample(self) -> None:
        while not self._ended.wait(_PERIOD_S):
            for stage in sorted(self._tracker.getActiveStageIds())[:1]:
                # A stage that ends between the two calls has no info.
                if (info := self._tracker.getStageInfo(stage)) is not None:
                    self._write({"stage": stage + 1, "tasks": info.numTasks, "done": info.numCompletedTasks})

    def _write(self, line: dict[str, int]) -> None:
        if line != self._last:
            self._last = line
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
