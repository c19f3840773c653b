"""Build batches and requests as clients send them, and read their answers."""

from __future__ import annotations

from tidelog.model import Buffer, TopicPartition
from tidelog.protocol.messages import FetchPartition, FetchRequest, ProducePartition, ProduceRequest
from tidelog.records import decode_records, encode_batch, iter_headers

TP = TopicPartition("t", 0)


def batch_of(*values: bytes, timestamp: int = 1_700_000_000_000, producer_id: int = -1, sequence: int = -1) -> bytes:
    records = [(timestamp + index, None, value, ()) for index, value in enumerate(values)]
    epoch = 0 if producer_id >= 0 else -1
    return encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def produce_request(
    *values: bytes, acks: int = -1, timeout_ms: int = 5000, tp: TopicPartition = TP, batch: bytes | None = None
) -> ProduceRequest:
    records = batch if batch is not None else batch_of(*values)
    return ProduceRequest(acks, timeout_ms, (ProducePartition(tp.topic, tp.partition, records),))


def values_of(records: Buffer, offset: int) -> list[bytes]:
    found = []
    for position, _ in iter_headers(records):
        found += [record.value or b"" for record in decode_records(records, position) if record.offset >= offset]
    return found


def fetch_request(
    offset: int, *, replica_id: int = -1, epoch: int = -1, max_wait_ms: int = 0, min_bytes: int = 1
) -> FetchRequest:
    partition = FetchPartition(TP.topic, TP.partition, epoch, offset, 1 << 20)
    return FetchRequest(replica_id, max_wait_ms, min_bytes, 1 << 20, (partition,))
