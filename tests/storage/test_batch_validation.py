"""Validation of a producer's batch: every refusal has Kafka's error code and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from storage.configs.log_config import LogConfig
from storage.log.batch_validation import (
    MAX_INSPECTED_BYTES,
    MAX_NAMED_RECORDS,
    MAX_QUICKLY_COMPRESSED_BYTES,
    MAX_RECORDS,
    ValidatedBatch,
    validate_batch,
    validation_steps,
)
from storage.log.log import Log
from storage.segments.timestamp_search import MAX_QUICK_BYTES, MAX_QUICK_RECORDS
from storage.steps import PAUSE, SteppedWork, call
from tests.storage.logs import NOW, UnsyncedFiles, append, batch, config, open_log, read_all
from tidelog.errors import (
    BrokerError,
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTxnStateError,
    MessageTooLargeError,
    RecordListTooLargeError,
    UnsupportedCompressionTypeError,
)
from tidelog.model import NO_TIMESTAMP
from tidelog.records import (
    HEADER_BYTES,
    Codec,
    compress,
    encode_batch,
    read_header,
    stamp_log_append_time,
)
from tidelog.records.header import HEADER, seal

HOUR_MS = 3_600_000


class Refusal(NamedTuple):
    case: str
    data: bytes
    error: type[BrokerError]
    code: int
    settings: dict[str, object] = {}  # noqa: RUF012


def damaged(position: int, bits: int = 1) -> bytes:
    """Return the batch with one changed byte."""
    data = bytearray(batch(NOW, NOW))
    data[position] ^= bits
    return bytes(data)


def changed(data: bytes, **fields: int) -> bytes:
    """Return the batch with other header fields and a matching CRC."""
    header = read_header(data)._replace(**fields)
    patched = bytearray(HEADER.pack(*header) + data[HEADER_BYTES:])
    seal(patched, 0, len(patched))
    return bytes(patched)


def with_records(data: bytes, block: bytes, attributes: int = 0) -> bytes:
    """Return the batch with these bytes instead of its records."""
    header = read_header(data)
    return changed(
        data[:HEADER_BYTES] + block,
        attributes=attributes,
        batch_length=header.batch_length - len(data) + HEADER_BYTES + len(block),
    )


def marked_as_log_append_time() -> bytes:
    data = bytearray(batch(NOW))
    stamp_log_append_time(data, 0, NOW)
    return bytes(data)


def keyed(*keys: bytes | None) -> bytes:
    return encode_batch([(NOW, key, b"v", ()) for key in keys])


def zipped(data: bytes) -> bytes:
    return with_records(data, compress(Codec.GZIP, data[HEADER_BYTES:]), Codec.GZIP)


def bomb() -> bytes:
    """Return a batch of a few hundred bytes that decompresses to more than a broker's loop may handle."""
    return with_records(ONE, compress(Codec.ZSTD, bytes(MAX_INSPECTED_BYTES + 1)), Codec.ZSTD)


def open_with(directory: Path, settings: dict[str, object]) -> Log:
    return Log.open(directory, config(**settings), UnsyncedFiles(), recovery_point=0, clean=True)


ONE, TWO = batch(NOW), batch(NOW, NOW)
LARGE = batch(NOW, value=b"x" * 500)
COMPACT: dict[str, object] = {"cleanup_policy": "compact"}

REFUSALS = [
    Refusal("nothing at all", b"", InvalidRecordError, 87),
    Refusal("half a header", ONE[:60], InvalidRecordError, 87),
    Refusal("the last byte is missing", ONE[:-1], InvalidRecordError, 87),
    Refusal("a byte too many", ONE + b"\0", InvalidRecordError, 87),
    Refusal("two batches", ONE + ONE, InvalidRecordError, 87),
    Refusal("a length shorter than a header", ONE[:8] + b"\0\0\0\x08" + ONE[12:], CorruptMessageError, 2),
    Refusal("a length of 2 GiB", ONE[:8] + b"\x7f\xff\xff\xff" + ONE[12:], InvalidRecordError, 87),
    Refusal("a negative length", ONE[:8] + b"\xff\xff\xff\xff" + ONE[12:], CorruptMessageError, 2),
    Refusal("nothing but a header", changed(ONE[:61], batch_length=49), InvalidRecordError, 87),
    Refusal("magic 1", damaged(16, 3), InvalidRecordError, 87),
    Refusal("magic 3", damaged(16, 1), InvalidRecordError, 87),
    Refusal("a flipped bit in the CRC", damaged(17), CorruptMessageError, 2),
    Refusal("a flipped bit in the attributes", damaged(22), CorruptMessageError, 2),
    Refusal("a flipped bit in the count", damaged(60), CorruptMessageError, 2),
    Refusal("a flipped bit in a record", damaged(70), CorruptMessageError, 2),
    Refusal("an offset of its own", changed(ONE, base_offset=5), InvalidRecordError, 87),
    Refusal("a negative offset", changed(ONE, base_offset=-1), InvalidRecordError, 87),
    Refusal("fewer records than offsets", changed(TWO, record_count=1), InvalidRecordError, 87),
    Refusal("more records than offsets", changed(ONE, record_count=2), InvalidRecordError, 87),
    Refusal("no records", changed(ONE, record_count=0), InvalidRecordError, 87),
    Refusal("a negative count", changed(ONE, record_count=-1, last_offset_delta=-2), InvalidRecordError, 87),
    Refusal("a negative offset delta", changed(ONE, last_offset_delta=-1), InvalidRecordError, 87),
    Refusal("more records than bytes", changed(ONE, record_count=99, last_offset_delta=98), InvalidRecordError, 87),
    Refusal("one too many for its bytes", changed(TWO, record_count=3, last_offset_delta=2), InvalidRecordError, 87),
    Refusal("larger than the topic allows", LARGE, MessageTooLargeError, 10, {"max_message_bytes": len(LARGE) - 1}),
    Refusal("larger than a segment", LARGE, RecordListTooLargeError, 18, {"segment_bytes": len(LARGE) - 1}),
    Refusal("a codec that nothing defines", changed(ONE, attributes=5), UnsupportedCompressionTypeError, 76),
    Refusal("a control batch", changed(ONE, attributes=0x20), InvalidRecordError, 87),
    Refusal("a marker of a transaction", changed(ONE, attributes=0x30), InvalidRecordError, 87),
    Refusal("outside of a transaction", changed(ONE, attributes=0x10), InvalidTxnStateError, 48),
    Refusal("a delete horizon", changed(ONE, attributes=0x40), InvalidRecordError, 87),
    Refusal("marked as LogAppendTime", marked_as_log_append_time(), InvalidTimestampError, 32),
    Refusal(
        "marked as LogAppendTime, where the leader does that",
        marked_as_log_append_time(),
        InvalidTimestampError,
        32,
        {"message_timestamp_type": "LogAppendTime"},
    ),
    Refusal("a producer id without a sequence", batch(NOW, producer_id=4, epoch=0), InvalidRecordError, 87),
    Refusal("a producer id without an epoch", batch(NOW, producer_id=4, sequence=0), InvalidRecordError, 87),
    Refusal("too far in the future by default", batch(NOW + HOUR_MS + 1), InvalidTimestampError, 32),
    Refusal("too far in the future", batch(NOW + 10), InvalidTimestampError, 32, {"message_timestamp_after_max_ms": 9}),
    Refusal("too old", batch(NOW - 10, NOW), InvalidTimestampError, 32, {"message_timestamp_before_max_ms": 9}),
    Refusal(
        "too old, compressed",
        zipped(batch(NOW - 10, NOW)),
        InvalidTimestampError,
        32,
        {"message_timestamp_before_max_ms": 9},
    ),
    Refusal("too old by the older setting", batch(NOW - 10), InvalidTimestampError, 32,
            {"message_timestamp_difference_max_ms": 9}),
    Refusal("without a key, where they are compacted by key", keyed(b"k", None), InvalidRecordError, 87, COMPACT),
    Refusal("without a key, compressed", zipped(keyed(None)), InvalidRecordError, 87, COMPACT),
    Refusal("without a key, compact and delete", ONE, InvalidRecordError, 87, {"cleanup_policy": "compact,delete"}),
    Refusal("timestamps that leave 64 bits, where records are looked at",
            changed(encode_batch([(0, b"k", b"v", ()), (5, b"l", b"v", ())]), base_timestamp=2**63 - 1),
            InvalidRecordError, 87, COMPACT),
    Refusal("more records than a broker counts while others wait",
            changed(zipped(ONE), record_count=MAX_RECORDS + 1, last_offset_delta=MAX_RECORDS),
            MessageTooLargeError, 10),
    Refusal("a bomb for a topic with a codec", bomb(), MessageTooLargeError, 10, {"compression_type": "gzip"}),
    Refusal("a bomb, where it is looked for keys", bomb(), MessageTooLargeError, 10, COMPACT),
    Refusal("not compressed as it says", with_records(ONE, b"\0" * 20, Codec.ZSTD), InvalidRecordError, 87, COMPACT),
    Refusal("not the records that it counts", with_records(ONE, b"\0" * 20), InvalidRecordError, 87, COMPACT),
]  # fmt: skip


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.case)
def test_refused_batch_changes_nothing(tmp_path: Path, refusal: Refusal) -> None:
    log = open_with(tmp_path, refusal.settings)
    log.append_as_leader(keyed(b"first"), 0, NOW)
    before = read_all(log), log.epochs, (tmp_path / "00000000000000000000.log").read_bytes()
    with pytest.raises(BrokerError) as caught:
        log.append_as_leader(refusal.data, 7, NOW)
    assert (type(caught.value), caught.value.code) == (refusal.error, refusal.code)
    assert (read_all(log), log.epochs, (tmp_path / "00000000000000000000.log").read_bytes()) == before
    assert log.log_end_offset == 1
    assert log.append_as_leader(keyed(b"next"), 7, NOW).base_offset == 1


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (batch(NOW + HOUR_MS), {}),
        (batch(0), {}),
        (batch(NOW - 9, NOW), {"message_timestamp_before_max_ms": 9}),
        (batch(NO_TIMESTAMP), {"message_timestamp_before_max_ms": 9}),
        (batch(NOW + 2 * HOUR_MS, NOW - 10), {"message_timestamp_type": "LogAppendTime",
                                              "message_timestamp_before_max_ms": 9}),
        (LARGE, {"max_message_bytes": len(LARGE), "segment_bytes": len(LARGE)}),
        (keyed(b"", b"k"), COMPACT),
        (zipped(keyed(b"k")), COMPACT),
        (zipped(TWO), {}),
        (bomb(), {}),
        (bomb(), {"compression_type": "gzip", "max_message_bytes": MAX_INSPECTED_BYTES + 1}),
        (changed(zipped(ONE), record_count=MAX_RECORDS, last_offset_delta=MAX_RECORDS - 1), {}),
    ],
)  # fmt: skip
def test_batch_at_the_limits_is_accepted(tmp_path: Path, data: bytes, settings: dict[str, object]) -> None:
    log = open_with(tmp_path, settings)
    log.append_as_leader(data, 0, NOW)
    assert log.log_end_offset == read_header(data).record_count


def test_no_record_is_decoded_if_the_header_is_sufficient(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_leader(with_records(TWO, b"\xff" * 30, Codec.ZSTD), 0, NOW)
    assert append(log) == 2


MANY = encode_batch([(NOW, b"k", b"", ())] * (MAX_QUICK_RECORDS + 1))
TOO_MANY_BYTES = encode_batch([(NOW, b"k", bytes(MAX_QUICK_BYTES), ())], codec=Codec.ZSTD)
TO_COMPRESS = encode_batch([(NOW, b"k", bytes(MAX_QUICKLY_COMPRESSED_BYTES), ())])
BOUNDED: dict[str, object] = {"message_timestamp_before_max_ms": 9}
GZIP: dict[str, object] = {"compression_type": "gzip"}


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        pytest.param(MANY, COMPACT, id="many records with keys"),
        pytest.param(zipped(MANY), COMPACT, id="many records with keys, compressed"),
        pytest.param(MANY, BOUNDED, id="many timestamps"),
        pytest.param(TOO_MANY_BYTES, COMPACT, id="many bytes of records"),
        pytest.param(TO_COMPRESS, GZIP, id="bytes to compress"),
        pytest.param(zipped(TO_COMPRESS), {"compression_type": "zstd"}, id="bytes to compress again"),
        pytest.param(bomb(), GZIP, id="a compression bomb"),
        pytest.param(keyed(*[None] * (MAX_QUICK_RECORDS + 1)), COMPACT, id="records that will be refused"),
    ],
)
def test_slow_validation_is_one_long_step(data: bytes, settings: dict[str, object]) -> None:
    work = begun(data, config(**settings))
    assert not work.finished and work.step is not PAUSE
    expected = call(partial(validate_batch, data, config(**settings), NOW))
    outcome = call(partial(work.resume, call(work.step)))
    assert str(outcome.error) == str(expected.error)
    assert work.finished == (expected.error is None)
    assert not work.finished or work.result == expected.value
    quick = begun(data, config())
    assert quick.finished and quick.result == (read_header(data), data), "the header tells all"


def begun(data: bytes, config: LogConfig) -> SteppedWork[ValidatedBatch]:
    """Return a validation that has run up to its first step."""
    work = SteppedWork(validation_steps(data, config, NOW))
    work.resume()
    return work


@pytest.mark.parametrize("settings", [COMPACT, BOUNDED, GZIP, {**COMPACT, **GZIP}])
@pytest.mark.parametrize("data", [keyed(b"k"), zipped(keyed(b"k", b"l")), keyed(*[b"k"] * 1000)])
def test_short_validation_needs_no_step(data: bytes, settings: dict[str, object]) -> None:
    work = begun(data, config(**settings))
    assert work.finished and work.result == validate_batch(data, config(**settings), NOW)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.case)
def test_only_bombs_need_a_step_to_be_refused(refusal: Refusal) -> None:
    try:
        work = begun(refusal.data, config(**refusal.settings))
    except BrokerError as error:
        assert (type(error), error.code) == (refusal.error, refusal.code)
    else:
        assert not work.finished and refusal.case.startswith("a bomb")


LATE, OLD = NOW + 2 * HOUR_MS, NOW - 2 * HOUR_MS
TOO_LATE = f"timestamp {LATE} is more than {HOUR_MS} ms after the broker's clock (message.timestamp.after.max.ms)"
TOO_OLD = f"timestamp {OLD} is more than {HOUR_MS} ms before the broker's clock (message.timestamp.before.max.ms)"
KEYLESS = "a record without a key; the topic is compacted by key"
SINCE_AN_HOUR: dict[str, object] = {"message_timestamp_before_max_ms": HOUR_MS}


@pytest.mark.parametrize("pack", [bytes, zipped], ids=["plain", "compressed"])
@pytest.mark.parametrize(
    ("stamps", "keys", "settings", "error", "faults"),
    [
        ([NOW, NOW, LATE, NOW], b"kkkk", {}, InvalidTimestampError, {2: TOO_LATE}),
        ([LATE, NOW, NOW, LATE], b"kkkk", {}, InvalidTimestampError, {0: TOO_LATE, 3: TOO_LATE}),
        ([NOW, OLD, LATE], b"kkk", SINCE_AN_HOUR, InvalidTimestampError, {1: TOO_OLD, 2: TOO_LATE}),
        ([NOW, NOW, NOW], b"k-k", COMPACT, InvalidRecordError, {1: KEYLESS}),
        ([NOW, LATE, NOW, NOW], b"-kkk", COMPACT, InvalidTimestampError, {0: KEYLESS, 1: TOO_LATE}),
    ],
)
def test_a_refusal_for_single_records_names_each_of_them(
    stamps: list[int],
    keys: bytes,
    settings: dict[str, object],
    error: type[BrokerError],
    faults: dict[int, str],
    pack: Callable[[bytes], bytes],
) -> None:
    records = [(stamp, None if key == ord("-") else b"k", b"v", ()) for stamp, key in zip(stamps, keys, strict=True)]
    with pytest.raises(error) as caught:
        validate_batch(pack(encode_batch(records)), config(**settings), NOW)
    assert caught.value.record_errors == faults
    first = min(faults)
    others = f"; {len(faults) - 1} more of its records are refused too" if len(faults) > 1 else ""
    assert str(caught.value) == (
        f"record {first} of the batch, which has records 0 to {len(stamps) - 1}: {faults[first]}{others}"
    )


def test_a_refusal_names_a_thousand_records_at_most() -> None:
    with pytest.raises(InvalidRecordError, match="1499 more") as caught:
        validate_batch(keyed(*[None] * 1500), config(**COMPACT), NOW)
    assert list(caught.value.record_errors) == list(range(MAX_NAMED_RECORDS))


def test_header_with_a_false_late_timestamp_is_refused_and_names_no_record() -> None:
    with pytest.raises(InvalidTimestampError, match=r"message\.timestamp\.after") as caught:
        validate_batch(changed(TWO, max_timestamp=LATE), config(), NOW)
    assert caught.value.record_errors == {}


def test_a_refusal_of_the_whole_batch_names_no_record() -> None:
    with pytest.raises(MessageTooLargeError) as caught:
        validate_batch(LARGE, config(max_message_bytes=100), NOW)
    assert caught.value.record_errors == {}


def test_documentation_states_the_limits() -> None:
    docs = Path(__file__).parents[2] / "docs"
    reported = (docs / "LIMITS.md").read_text() + (docs / "PROTOCOL.md").read_text()
    assert reported.count(f"{MAX_RECORDS:,} records") == 2
    assert f"more than {MAX_INSPECTED_BYTES >> 20} MiB (or `max.message.bytes`)" in " ".join(reported.split())
