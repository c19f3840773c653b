"""Helpers of the compaction tests: keyed batches, whole rounds, and a log with all effects of compaction."""

from __future__ import annotations

from pathlib import Path

from storage.compaction.cleaner import MAP_BYTES, Cleaning, plan_cleaning
from storage.files import Files
from storage.log.log import Log
from tests.storage.logs import NOW, UnsyncedFiles, config, open_log, read_all, records_of
from tidelog.records import (
    BatchHeader,
    Codec,
    MarkerKind,
    encode_batch,
    encode_control_batch,
    iter_headers,
    read_header,
)
from tidelog.records.header import HEADER, seal

Pair = tuple[bytes | None, bytes | None]

DAY_MS = 24 * 60 * 60 * 1000
COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0}


def keyed(*pairs: Pair, timestamp: int = NOW, codec: Codec = Codec.NONE, **header: int) -> bytes:
    """Return a batch of these keys and values; `header` as for `encode_batch`."""
    return encode_batch([(timestamp, key, value, ()) for key, value in pairs], codec=codec, **header)


def put(log: Log, *pairs: Pair, timestamp: int = NOW, codec: Codec = Codec.NONE, **header: int) -> int:
    """Append the records as one batch. Return its base offset."""
    batch = keyed(*pairs, timestamp=timestamp, codec=codec, **header)
    return log.append_as_leader(batch, 0, max(timestamp, NOW)).base_offset


def roll(log: Log) -> None:
    log.roll(NOW)


def clean(
    log: Log,
    recorded_offset: int = 0,
    *,
    now_ms: int = NOW,
    upper_bound: int | None = None,
    map_bytes: int = MAP_BYTES,
    files: Files | None = None,
) -> int:
    """Run a whole round. Return the start of the next one, which is unchanged if no round was due."""
    plan = plan_cleaning(log, recorded_offset, now_ms, log.log_end_offset if upper_bound is None else upper_bound)
    if plan is None:
        return recorded_offset
    cleaning = Cleaning(plan, files or UnsyncedFiles(), map_bytes=map_bytes)
    while (piece := cleaning.write_next()) is not None:
        for segment in cleaning.install(piece):
            segment.delete()
    return cleaning.end_offset


def compacted(directory: Path, **settings: object) -> Log:
    """Return a log that is cleaned whenever it has dirty records."""
    return open_log(directory, **{**COMPACT, **settings})


def values_of(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return the offset, key and value of all records."""
    return [(record.offset, record.key, record.value) for record, _ in records_of(log)]


def headers_of(log: Log) -> list[BatchHeader]:
    return [header for _, header in iter_headers(read_all(log))]


def with_attributes(batch: bytes, bits: int) -> bytes:
    """Return the batch with these attribute bits set as well."""
    changed = bytearray(batch)
    header = BatchHeader._make(HEADER.unpack_from(batch))
    HEADER.pack_into(changed, 0, *header._replace(attributes=header.attributes | bits))
    seal(changed, 0, len(changed))
    return bytes(changed)


def with_base_timestamp(batch: bytes, base_timestamp: int) -> bytes:
    """Return the batch with another base timestamp and so other timestamps; the header's largest one is unchanged."""
    changed = bytearray(batch)
    HEADER.pack_into(changed, 0, *read_header(batch)._replace(base_timestamp=base_timestamp))
    seal(changed, 0, len(changed))
    return bytes(changed)


def write_compacted_log(directory: Path, files: Files | None = None) -> Log:
    """Return an open log with every possible result of compaction.

    It has batches of every codec with some of their records, a batch with a delete horizon, and one without its removed
    tombstones. It has an emptied batch with its producer's last sequence and one that ends a segment. It also has a
    transaction with its marker, merged segments, and a dirty part at the end.
    """
    files = files or UnsyncedFiles()
    log = Log.open(
        directory,
        config(segment_bytes=4000, index_interval_bytes=200, delete_retention_ms=DAY_MS, **COMPACT),
        files,
        recovery_point=0,
        clean=True,
    )
    recorded = 0
    for day in range(3):
        now_ms = NOW + day * (DAY_MS + 1)
        for number, codec in enumerate(Codec):
            pairs: list[Pair] = [
                (b"%d of %s" % (key, codec.name.encode()), b"day %d" % day * 30) for key in range(6 - day)
            ]
            pairs += [(b"all days", b"%d" % number), (b"gone on day %d" % day, None)]
            put(log, *pairs, timestamp=now_ms + number, codec=codec)
        put(log, (b"all days", b"sequence"), producer_id=7, producer_epoch=0, base_sequence=day)
        at = log.log_end_offset
        log.append_as_follower(
            with_attributes(
                keyed((b"pending", b"%d" % day), base_offset=at, producer_id=8, producer_epoch=0, base_sequence=day),
                0x10,
            )
        )
        log.append_as_follower(
            encode_control_batch(
                MarkerKind.COMMIT, producer_id=8, producer_epoch=0, timestamp_ms=now_ms, coordinator_epoch=3,
                base_offset=at + 1,
            )
        )  # fmt: skip
        put(log, (b"all days", b"end of day %d" % day), timestamp=now_ms + 10)
        roll(log)
        recorded = clean(log, recorded, now_ms=now_ms, files=files)
    put(log, (b"all days", b"dirty"), (b"0 of NONE", None))
    return log
