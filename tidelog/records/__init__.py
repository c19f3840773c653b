"""Encode and decode RecordBatch v2, Kafka's format of records on disk and on the wire. Start with `header.py`.

`message_set.py` converts the older formats, which old clients send, and which old logs of Kafka contain.
"""

from __future__ import annotations

from tidelog.records.compression import MAX_DECOMPRESSED_BYTES, MOST_DECOMPRESSED_BYTES, compress, decompress
from tidelog.records.control import MarkerKind, TransactionMarker, decode_control_batch, encode_control_batch
from tidelog.records.decode import (
    Record,
    RecordColumns,
    decode_columns,
    decode_pairs,
    decode_records,
)
from tidelog.records.encode import BatchBuilder, Header, encode_batch, single_record_bytes
from tidelog.records.excerpt import BatchOutline, empty_batch, excerpt_batch, outline_batch
from tidelog.records.header import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    BatchHeader,
    Codec,
    TimestampType,
    assign_offsets,
    iter_headers,
    read_header,
    stamp_log_append_time,
    validate_batch,
)
from tidelog.records.message_set import is_message_set, to_record_batch
from tidelog.records.time_search import RecordTime, first_in_checked_batch, first_record_at_or_after

__all__ = [
    "HEADER_BYTES",
    "LENGTH_OVERHEAD",
    "MAX_DECOMPRESSED_BYTES",
    "MOST_DECOMPRESSED_BYTES",
    "BatchBuilder",
    "BatchHeader",
    "BatchOutline",
    "Codec",
    "Header",
    "MarkerKind",
    "Record",
    "RecordColumns",
    "RecordTime",
    "TimestampType",
    "TransactionMarker",
    "assign_offsets",
    "compress",
    "decode_columns",
    "decode_control_batch",
    "decode_pairs",
    "decode_records",
    "decompress",
    "empty_batch",
    "encode_batch",
    "encode_control_batch",
    "excerpt_batch",
    "first_in_checked_batch",
    "first_record_at_or_after",
    "is_message_set",
    "iter_headers",
    "outline_batch",
    "read_header",
    "single_record_bytes",
    "stamp_log_append_time",
    "to_record_batch",
    "validate_batch",
]
