"""A job's progress file, written while real Spark runs a stage."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from stage_progress import StageProgress

pytestmark = pytest.mark.xdist_group("spark")  # all tests share one Spark session


def test_a_running_stage_is_written_with_its_tasks(spark: SparkSession, tmp_path: Path) -> None:
    progress = tmp_path / "progress.jsonl"

    def wait_until_shown(numbers: Iterator[int]) -> Iterator[int]:
        deadline = time.monotonic() + 20
        while progress.read_text().count("\n") < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        return numbers

    with StageProgress(spark, progress):
        assert spark.sparkContext.parallelize(range(6), 3).mapPartitions(wait_until_shown).count() == 6
    started, first = map(json.loads, progress.read_text().splitlines()[:2])
    assert started == {"started": True}
    assert first["tasks"] == 3
    assert 0 <= first["done"] < 3
    assert first["stage"] >= 1
