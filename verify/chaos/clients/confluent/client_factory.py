"""Create the clients of one process that uses confluent-kafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from verify.chaos.clients.client_context import ClientContext
from verify.chaos.clients.client_factory import RunningClient, first_producer
from verify.chaos.clients.confluent.consumer import RETRY_BACKOFF_MS, ConfluentConsumer
from verify.chaos.clients.confluent.producer import ConfluentProducer
from verify.chaos.clients.lookup_client import LookupClient
from verify.chaos.clients.members import MemberClient
from verify.chaos.clients.producing import ProducingClient
from verify.chaos.clients.reading import TailReader
from verify.chaos.load import Load

#: librdkafka's default time limit of a record, which is longer than any fault. When a record's time is over, librdkafka
#: gives all records without an outcome new sequence numbers, also those of other partitions. A record whose request
#: timed out may be stored already, and is then stored twice, whatever broker it is sent to.
DELIVERY_TIMEOUT_MS: Final = 300_000


class ConfluentLibrary:
    """Opens producers and consumers of confluent-kafka for the clients of a context, whose servers are the addresses of
    Kafka listeners.
    """

    def __init__(self, context: ClientContext) -> None:
        self._context = context

    def producer(self, name: str, **options: Any) -> ConfluentProducer:
        """Return a producer with the delivery timeout of these settings of ours. The other settings do not apply."""
        return ConfluentProducer(
            self._context.servers,
            name,
            delivery_timeout_ms=options["delivery_timeout_ms"],
            request_timeout_ms=max(1_000, self._context.timeout_ms // 3),
        )

    def consumer(self, name: str, **options: Any) -> ConfluentConsumer:
        context = self._context
        options = {
            "default_api_timeout_ms": context.timeout_ms,
            "fetch_max_wait_ms": context.fetch_wait_ms,
            **options,
        }
        return ConfluentConsumer(context.servers, name, **options)


def confluent_clients_of(context: ClientContext, load: Load, process: int, life: int = 0) -> Iterator[RunningClient]:
    """Yield an idempotent producer, a reader of everything, a client that looks up offsets, and a member of each group.

    `process` and `life` are as in `clients_of`. Processes of our own clients have the lower numbers.
    """
    library, prefix = ConfluentLibrary(context), f"confluent-{process}"
    yield ProducingClient(
        replace(context, timeout_ms=DELIVERY_TIMEOUT_MS),
        f"{prefix}-producer",
        first_producer(load, process, life),
        load.rate / load.all_processes,
        value_bytes=load.value_bytes,
        open_producer=library.producer,
    )
    yield TailReader(context, f"{prefix}-tail", batches=False, open_consumer=library.consumer)
    yield LookupClient(context, f"{prefix}-asker", open_consumer=library.consumer)
    # A commit call that takes less than this time was sent once. A longer call may leave a copy that takes effect late.
    member_context = replace(context, commit_copies_ms=RETRY_BACKOFF_MS // 2)
    for strategy, group in load.member_groups.items():
        name = f"{prefix}-member-{strategy}"
        yield MemberClient(member_context, name, group, strategy, open_consumer=library.consumer)
