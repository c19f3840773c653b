"""Check that a recovered cluster serves clients: write one record per partition, and commit offsets of groups."""

from __future__ import annotations

from tidelog.history.operations import ProduceInvoked, ProduceOk
from tidelog.model import OffsetAndMetadata
from verify.chaos.clients.client_context import ClientContext
from verify.chaos.payload import SMALLEST_BYTES, make_id, payload

_NAME = "last"
#: A timestamp that no broker refuses as too far in the future, however wrong its clock is.
_LONG_AGO_MS = 0
#: One group for each partition of __consumer_offsets (`verify.simulation.cluster.cluster.OFFSETS_TPS`).
GROUPS = ("last-0", "last-1")


async def ask_to_serve(context: ClientContext, number: int) -> None:
    """Write one record to each partition, then commit an offset in each of GROUPS and read it back.

    Raise the error of a request that fails until its timeout, and ValueError for a wrong offset. `number` is the
    producer's own.
    """
    await _produce(context, number)
    for place, group in enumerate(GROUPS):
        await _commit(context, group, offset=place + 1)


async def _produce(context: ClientContext, number: int) -> None:
    history = context.history(_NAME)
    async with context.producer(_NAME, enable_idempotence=True, delivery_timeout_ms=context.timeout_ms) as producer:
        for sequence, tp in enumerate(context.tps):
            record_id = make_id(number, sequence)
            history.write(ProduceInvoked(tp, [record_id], [_LONG_AGO_MS], [context.now_ns()]))
            value = payload(record_id, SMALLEST_BYTES)
            placed = await producer.send_and_wait(
                tp.topic, value, key=b"last", partition=tp.partition, timestamp_ms=_LONG_AGO_MS
            )
            history.write(ProduceOk(tp, [record_id], [placed.offset], [context.now_ns()]))


async def _commit(context: ClientContext, group: str, offset: int) -> None:
    async with context.consumer(_NAME, group_id=group, enable_auto_commit=False) as consumer:
        tp = context.tps[0]
        await consumer.commit({tp: OffsetAndMetadata(offset)}, context.timeout_ms)
        if (found := await consumer.committed(tp, context.timeout_ms)) != offset:
            raise ValueError(f"group {group} committed offset {offset} of {tp}, but the coordinator returned {found}")
