"""Reads the stream job's result."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tools.demo.counts.minute_counts import MinuteCounts
from tools.demo.counts.plain_count import MINUTE_MS, Counts

#: Rows that are read at a time, because Python objects take much more memory than the file.
_ROWS = 2048


def read_counts(directory: Path) -> Counts:
    """Return the counts in the Parquet files that `windowed_counts.py` wrote into `counts/`, summed up.

    The files have the columns minute, source and lines, and are read one at a time. No files give empty counts.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    counts: dict[str, MinuteCounts] = {}
    for file in sorted(directory.glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(_ROWS, use_threads=False):
            stamps_ms = batch.column("minute").cast(pa.timestamp("ms"), safe=False).cast(pa.int64()).to_pylist()
            sources = batch.column("source").to_pylist()
            lines = batch.column("lines").to_pylist()
            for stamp_ms, source, number in zip(stamps_ms, sources, lines, strict=True):
                counts.setdefault(source or "", MinuteCounts()).add(stamp_ms // MINUTE_MS, number)
    return counts
