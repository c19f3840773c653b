"""Generate records: (timestamp, key, value, headers), small and at the edges of the varints."""

from __future__ import annotations

from hypothesis import strategies as st

from tidelog.records import Header, Record
from tidelog.records.encode import MAX_TIMESTAMP

Written = tuple[int, bytes | None, bytes | None, list[Header]]

maybe_bytes = st.none() | st.binary(max_size=200) | st.sampled_from([b"x" * 63, b"x" * 64, b"x" * 8191, b"x" * 8192])
timestamps = st.integers(-1, 300) | st.integers(-1, MAX_TIMESTAMP)
record_headers = st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3)
written_records: st.SearchStrategy[list[Written]] = st.lists(
    st.tuples(timestamps, maybe_bytes, maybe_bytes, record_headers), min_size=1, max_size=80
)


def as_read(records: list[Written], base_offset: int = 0) -> list[Record]:
    """Return what a reader must find of these records."""
    return [
        Record(base_offset + index, timestamp, key, value, tuple(headers))
        for index, (timestamp, key, value, headers) in enumerate(records)
    ]
