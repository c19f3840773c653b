"""Test that the records of aborted transactions are left out of fetched batches, and all others stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.records.aborted import AbortedTransaction, without_aborted
from tidelog.records.control import MarkerKind, encode_control_batch
from tidelog.records.decode import decode_records
from tidelog.records.encode import encode_batch
from tidelog.records.header import (
    HEADER,
    TRANSACTIONAL_BIT,
    assign_offsets,
    iter_headers,
    read_header,
    seal,
)


def written(offset: int, producer_id: int = -1, records: int = 2, *, in_transaction: bool = False) -> bytes:
    """Return a batch whose values name its producer and their offsets."""
    values = [(0, None, b"%d at %d" % (producer_id, offset + number), ()) for number in range(records)]
    epoch, sequence = (0, 0) if producer_id >= 0 else (-1, -1)
    batch = bytearray(
        encode_batch(values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, base_offset=offset)
    )
    if in_transaction:
        header = read_header(batch)
        HEADER.pack_into(batch, 0, *header._replace(attributes=header.attributes | TRANSACTIONAL_BIT))
        seal(batch, 0, len(batch))
    return bytes(batch)


def marker(offset: int, producer_id: int, kind: MarkerKind) -> bytes:
    batch = bytearray(
        encode_control_batch(kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0)
    )
    assign_offsets(batch, 0, offset, 0)
    return bytes(batch)


def values_in(records: memoryview) -> list[bytes | None]:
    """Return the values of users' records."""
    return [
        record.value
        for at, header in iter_headers(records)
        if not header.is_control
        for record in decode_records(records, at)
    ]


def test_records_of_an_aborted_transaction_are_left_out() -> None:
    log = memoryview(
        b"".join(
            [
                written(0),
                written(2, 7, in_transaction=True),
                written(4, 8, in_transaction=True),
                marker(6, 7, MarkerKind.ABORT),
                written(7, 7, in_transaction=True),
                marker(9, 8, MarkerKind.COMMIT),
                marker(10, 7, MarkerKind.COMMIT),
            ]
        )
    )
    kept = without_aborted(log, [AbortedTransaction(7, 2)])
    assert values_in(kept) == [b"-1 at 0", b"-1 at 1", b"8 at 4", b"8 at 5", b"7 at 7", b"7 at 8"]
    assert [header.base_offset for _, header in iter_headers(kept)] == [0, 4, 6, 7, 9, 10]


def test_batches_without_aborted_records_are_not_copied() -> None:
    log = memoryview(written(0) + written(2, 7, in_transaction=True) + marker(4, 7, MarkerKind.COMMIT))
    assert without_aborted(log, [AbortedTransaction(7, 5)]) is log
    assert without_aborted(log, [AbortedTransaction(8, 0)]) is log


def test_transaction_that_began_before_the_fetch_is_left_out() -> None:
    log = memoryview(written(50, 7, in_transaction=True) + marker(52, 7, MarkerKind.ABORT) + written(53))
    assert values_in(without_aborted(log, [AbortedTransaction(7, 10)])) == [b"-1 at 53", b"-1 at 54"]


def test_idempotent_records_outside_of_transactions_stay() -> None:
    log = memoryview(written(0, 7) + written(2, 7, in_transaction=True) + marker(4, 7, MarkerKind.ABORT))
    assert values_in(without_aborted(log, [AbortedTransaction(7, 0)])) == [b"7 at 0", b"7 at 1"]


@given(st.data())
def test_filter_agrees_with_one_that_knows_each_transaction(data: st.DataObject) -> None:
    parts: list[bytes] = []
    aborted: list[AbortedTransaction] = []
    expected: list[bytes] = []
    open_transactions: dict[int, tuple[int, list[bytes]]] = {}
    offset = 0
    for _ in range(data.draw(st.integers(0, 25))):
        producer = data.draw(st.integers(0, 2))
        if producer in open_transactions and data.draw(st.booleans()):
            kind = data.draw(st.sampled_from(MarkerKind))
            first, values = open_transactions.pop(producer)
            parts.append(marker(offset, producer, kind))
            offset += 1
            if kind is MarkerKind.ABORT:
                aborted.append(AbortedTransaction(producer, first))
            else:
                expected += values
            continue
        count = data.draw(st.integers(1, 3))
        values = [b"%d at %d" % (producer, offset + number) for number in range(count)]
        parts.append(written(offset, producer, count, in_transaction=True))
        open_transactions.setdefault(producer, (offset, []))[1].extend(values)
        offset += count
    # A consumer gets no records from the first open transaction on; here each of them ends at last.
    for producer, (_, values) in open_transactions.items():
        parts.append(marker(offset, producer, MarkerKind.COMMIT))
        offset += 1
        expected += values
    shuffled = data.draw(st.permutations(aborted))
    assert sorted(map(str, values_in(without_aborted(memoryview(b"".join(parts)), shuffled)))) == sorted(
        map(str, expected)
    )
