"""Scans over batches that do not fit into one read of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.files import RealFile
from storage.segments.scan import scan_batches, scan_headers, scan_valid
from tests.storage.logs import batch
from tidelog.errors import CorruptMessageError

MIB = 1 << 20


def written(path: Path, *sizes: int) -> tuple[RealFile, list[bytes]]:
    """Write a `.log` of batches with values of these sizes."""
    batches = [batch(1000, value=bytes([number % 256]) * size, base_offset=number) for number, size in enumerate(sizes)]
    path.write_bytes(b"".join(batches))
    return RealFile(path), batches


@pytest.mark.parametrize(
    "sizes", [(MIB // 2, MIB // 2), (3 * MIB,), (10, 2 * MIB, 10), (MIB - 100, 50, 50), (9000,) * 300]
)
def test_scan_yields_whole_batches_across_read_boundaries(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    file, batches = written(tmp_path / "a.log", *sizes)
    end = file.size()
    starts = [sum(map(len, batches[:number])) for number in range(len(batches))]
    assert [at for at, _ in scan_headers(file, 0, end)] == starts
    assert [(at, bytes(data)) for at, _, data in scan_batches(file, 0, end)] == list(zip(starts, batches, strict=True))
    assert [at for at, _ in scan_valid(file, 0, end)] == starts
    assert [at for at, _ in scan_headers(file, starts[-1], end)] == starts[-1:]
    assert list(scan_headers(file, end, end)) == []


def test_batch_truncated_by_the_end_of_the_file_is_ignored(tmp_path: Path) -> None:
    file, batches = written(tmp_path / "a.log", 10, MIB)
    for end in (len(batches[0]) + 1, file.size() - 1):
        for scan in (scan_headers, scan_batches):
            walk = iter(scan(file, 0, end))
            assert next(walk)[0] == 0
            with pytest.raises(CorruptMessageError, match=f"at position {len(batches[0])}"):
                next(walk)
        assert [at for at, _ in scan_valid(file, 0, end)] == [0]
