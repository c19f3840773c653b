"""Two real Kafka brokers write, are stopped and killed, and our logs open what they left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.storage.kafka_written.make import make
from tools.check.toolbox import NotRun

READERS = Path(__file__).parents[1] / "storage" / "test_kafka_written.py"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_files_written_by_kafka_now_match_the_stored_ones(tmp_path: Path) -> None:
    archives = tmp_path / "archives"
    archives.mkdir()
    try:
        make(tmp_path / "scratch", archives)
    except NotRun as reason:
        pytest.skip(f"not run: {reason}")
    read = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(READERS)],
        cwd=READERS.parents[2],
        env={**os.environ, "KAFKA_WRITTEN": str(archives)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert read.returncode == 0, read.stdout
