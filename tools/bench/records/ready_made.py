"""Sends batches that were made before the measured time through `Producer.send_batch`, to measure the cluster alone.

Run as a program it writes while another process reads.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from itertools import count
from typing import ClassVar

from tidelog import Producer, RecordFuture
from tidelog.client.settings import ProducerOptions
from tidelog.records import BatchBuilder
from tools.bench.records.load import FLUSH_S, Load

BATCH_BYTES = 64 << 10
#: A producer has one batch of a partition in flight. Several producers share the work, as several programs would.
PRODUCERS = 8
#: The buffer of each producer. The measured time ends when everything in the buffers is acknowledged.
BUFFER_BYTES = 8 << 20
_BATCHES = 64


class BatchLoad(Load):
    """A load by PRODUCERS producers, with one call of `Producer.send_batch` for each batch."""

    SETTINGS = (
        f"{PRODUCERS} producers with {BUFFER_BYTES >> 20} MiB each in one process, batches of {BATCH_BYTES >> 10} KiB "
        "made beforehand"
    )
    PRODUCERS = PRODUCERS
    OPTIONS: ClassVar[ProducerOptions] = {"client_id": "bench", "buffer_memory": BUFFER_BYTES}

    def _prepare(self) -> None:
        self._batches, self._records = batches_of(self._size)

    def _send(self, producers: Sequence[Producer], until: float) -> int:
        topic, partitions = self.tps[0].topic, len(self.tps)
        return self._records * send_until(producers, topic, partitions, self._batches, until, self._futures)


def batches_of(size: int) -> tuple[list[bytes], int]:
    """Return _BATCHES batches, full up to BATCH_BYTES with random values of `size` bytes, and the records in each."""
    batches = []
    for _ in range(_BATCHES):
        builder = BatchBuilder(BATCH_BYTES)
        now_ms = time.time_ns() // 1_000_000
        while builder.try_append(now_ms, None, os.urandom(size)) is not None:
            pass
        batches.append(builder.build())
    return batches, builder.record_count


def send_until(
    producers: Sequence[Producer],
    topic: str,
    partitions: int,
    batches: Sequence[bytes],
    until: float,
    futures: list[RecordFuture],
) -> int:
    """Send batches until `until` (`time.perf_counter`), and return their number; append their futures to `futures`.

    The partitions take turns, and each producer sends one batch to every partition before the next producer does.
    """
    sends = [producer.send_batch for producer in producers]
    for number in count():
        if time.perf_counter() >= until:
            return number
        send, partition = sends[number // partitions % len(sends)], number % partitions
        futures.append(send(topic, batches[number % len(batches)], partition=partition))
    raise AssertionError


def main(bootstrap_servers: str, topic: str, partitions: int, size: int, seconds: float) -> int:
    """Send for `seconds`, wait for all acknowledgements, and return the number of records.

    Exits the process with a message if a batch was not acknowledged.
    """
    batches, records = batches_of(size)
    futures: list[RecordFuture] = []
    with Producer(bootstrap_servers, **BatchLoad.OPTIONS) as producer:
        sent = send_until([producer], topic, partitions, batches, time.perf_counter() + seconds, futures)
        producer.flush(FLUSH_S)
    acknowledged = sum(future.succeeded() for future in futures)
    if acknowledged < sent:
        sys.exit(f"{sent - acknowledged} of {sent} batches were not acknowledged")
    return sent * records


if __name__ == "__main__":
    servers, name, parts, value_bytes, limit_s = sys.argv[1:]
    print(main(servers, name, int(parts), int(value_bytes), float(limit_s)))
