"""A consumer of confluent-kafka with the interface of ours, as far as chaos clients need it.

librdkafka's polls and requests block, so each consumer has a thread of its own for them, one at a time. Callbacks of a
rebalance are passed to the event loop, while the thread waits for them.
"""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as Place

from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord
from tidelog.errors import CommitFailedError, TidelogError, TimeoutError
from tidelog.groups.membership.rebalance_listener import HeldListener, RebalanceListener
from tidelog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from verify.chaos.clients.confluent.errors import error_of, error_of_exception
from verify.chaos.clients.confluent.group_identity import parse_identity
from verify.chaos.clients.support.interfaces import FoundOffset

T = TypeVar("T")

#: The policies of a missing position that librdkafka names differently.
_RESETS: Final = {"none": "error"}
#: The time limit of each request, which is far below that of an operation, so that librdkafka can repeat a request.
_REQUEST_MS: Final = 4_000
#: librdkafka repeats a request without an answer after this time, with jitter of ±20 %, or later.
RETRY_BACKOFF_MS: Final = 100
#: Closing commits and leaves the group, by requests that librdkafka may repeat.
_CLOSE_S: Final = 30.0
#: The additional time for a call whose caller has given up, until the consumer counts as hung.
_LATE_S: Final = 5.0


class HungConsumerError(Exception):
    """A call of librdkafka does not return, so that this consumer cannot be used any more."""


class ConfluentConsumer:
    """A consumer of confluent-kafka on an event loop, which `async with` closes. The settings have the names of ours.

    default_api_timeout_ms   the time limit of a call without one of its own
    group_id                 the group; None: one named after the consumer, which must not subscribe then
    """

    def __init__(
        self,
        servers: str,
        name: str,
        *,
        default_api_timeout_ms: int,
        fetch_max_wait_ms: int = 500,
        group_id: str | None = None,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = False,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        partition_assignment_strategy: Collection[str] = ("range",),
    ) -> None:
        self._timeout_ms = default_api_timeout_ms
        self._group = group_id or name
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "client.id": name,
                "group.id": self._group,
                "auto.offset.reset": _RESETS.get(auto_offset_reset, auto_offset_reset),
                "enable.auto.commit": enable_auto_commit,
                "fetch.wait.max.ms": fetch_max_wait_ms,
                "session.timeout.ms": session_timeout_ms,
                "heartbeat.interval.ms": heartbeat_interval_ms,
                "partition.assignment.strategy": ",".join(partition_assignment_strategy),
                "socket.timeout.ms": _REQUEST_MS,
                "retry.backoff.ms": RETRY_BACKOFF_MS,
                "allow.auto.create.topics": False,
            }
        )
        self._thread = ThreadPoolExecutor(1, f"{name}-librdkafka")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener = HeldListener("listener", None)
        self._assigned: set[TopicPartition] = set()
        self._identity = ConsumerGroupMetadata(self._group)
        #: The error of a poll that also had records, which were returned first.
        self._failure: TidelogError | None = None
        self._has_rebalanced = False
        #: The call that still ran when its caller gave up.
        self._late_call: asyncio.Future[Any] | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._call(self._consumer.close, timeout_ms=int(_CLOSE_S * 1000))
        except TimeoutError:
            if kind is None:
                raise
        finally:
            self._thread.shutdown(wait=False)

    # --- partitions -------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign partitions, which are read from their first records on."""
        self._assigned = set(partitions)
        self._consumer.assign([Place(*tp, OFFSET_BEGINNING) for tp in sorted(self._assigned)])

    def subscribe(self, topics: Iterable[str], *, listener: RebalanceListener) -> None:
        """Subscribe to topics as a member of the group. Polls call the listener in the event loop's thread."""
        self._listener = HeldListener("listener", listener)
        self._consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that `assign` got, or those of the group's assignment as of the last poll."""
        return set(self._assigned)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the identity in the group as of the last rebalance or commit."""
        return self._identity

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._consumer.seek(Place(*partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read these partitions from their first records on; all without an argument."""
        for tp in partitions:
            self._consumer.seek(Place(*tp, OFFSET_BEGINNING))
        if not partitions:
            self.assign(self._assigned)

    # --- records ----------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return records as soon as there are any, or nothing after `timeout_ms`.

        Raise an error of a partition, or of the consumer, after the records that came before it. Raise
        HungConsumerError if an earlier call does not return.
        """
        self._raise_failure()
        await self._wait_for_late_call()
        found = await self._call(self._poll, timeout_ms / 1000, max_records)
        if not found:
            self._raise_failure()
        return found

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _poll(self, timeout_s: float, max_records: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        self._has_rebalanced = False
        message = self._consumer.poll(timeout_s)
        left = max_records
        while message is not None:
            if (error := message.error()) is not None:
                self._failure = error_of(error, _partition(message))
                break
            record = _record(message)
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
            left -= 1
            if not left or self._has_rebalanced:
                break
            message = self._consumer.poll(0)
        # The records of partitions that were revoked meanwhile are left to their next owner.
        return {tp: records for tp, records in found.items() if tp in self._assigned}

    # --- the group --------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """Commit offsets. Raise the first partition's error, or CommitFailedError if the generation changed.

        librdkafka does not tell the generation of a commit. After a rebalance meanwhile, the commit may have had the
        old one or the new one, so its outcome counts as unknown.
        """
        before = self._identity
        places = [Place(*tp, each.offset) for tp, each in offsets.items()]
        _raise_first(await self._call(lambda: self._commit(places), timeout_ms=timeout_ms))
        if self._identity != before:
            raise CommitFailedError(f"generation {before.generation_id} of {self._group} ended during the commit")

    def _commit(self, places: list[Place]) -> list[Place]:
        committed = self._consumer.commit(offsets=places, asynchronous=False)
        # Not after an error, because this call blocks the whole process until librdkafka's main thread answers.
        self._learn_identity()
        return committed

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets; None for a partition without one."""
        places = [Place(*tp) for tp in partitions]
        found = await self._call(self._consumer.committed, places, timeout_ms / 1000, timeout_ms=timeout_ms)
        return {
            tp: OffsetAndMetadata(place.offset) if place.offset >= 0 else None
            for tp, place in _raise_first(found).items()
        }

    def _learn_identity(self) -> None:
        self._identity = parse_identity(self._consumer.consumer_group_metadata())

    def _on_assign(self, _: Consumer, places: list[Place]) -> None:
        tps = {TopicPartition(place.topic, place.partition) for place in places}
        self._assigned |= tps
        self._rebalanced(lambda: self._listener.on_partitions_assigned(tps))

    def _on_revoke(self, _: Consumer, places: list[Place]) -> None:
        self._gave_up(places, self._listener.on_partitions_revoked)

    def _on_lost(self, _: Consumer, places: list[Place]) -> None:
        self._gave_up(places, self._listener.on_partitions_lost)

    def _gave_up(self, places: list[Place], tell: Callable[[Collection[TopicPartition]], object]) -> None:
        tps = {TopicPartition(place.topic, place.partition) for place in places}
        self._rebalanced(lambda: tell(tps))
        self._assigned -= tps

    def _rebalanced(self, tell: Callable[[], object]) -> None:
        """Call `tell` in the event loop's thread, and wait for its end in the thread of librdkafka's calls."""
        assert self._loop is not None
        self._has_rebalanced = True
        self._learn_identity()
        told: Future[object] = Future()

        def run() -> None:
            try:
                told.set_result(tell())
            except BaseException as error:
                told.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        told.result()

    # --- look-ups ---------------------------------------------------------------------------------------

    async def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset | None]:
        """Return the first offset at or after each time; None if there is none.

        The timestamp of each result is None, because librdkafka does not tell the timestamp of the record.
        """
        places = [Place(*tp, target) for tp, target in times.items()]
        found = await self._call(self._consumer.offsets_for_times, places, self._timeout_ms / 1000)
        return {
            tp: (place.offset, None, place.leader_epoch if place.leader_epoch >= 0 else None)
            if place.offset >= 0
            else None
            for tp, place in _raise_first(found).items()
        }

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: begin for tp, (begin, _) in (await self._watermarks(partitions)).items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: end for tp, (_, end) in (await self._watermarks(partitions)).items()}

    async def _watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        tps = list(partitions)

        def ask() -> dict[TopicPartition, tuple[int, int]]:
            deadline, found = time.monotonic() + self._timeout_ms / 1000, {}
            for tp in tps:
                left_s = max(0.001, deadline - time.monotonic())
                found[tp] = self._consumer.get_watermark_offsets(Place(*tp), left_s, cached=False)
            return found

        return await self._call(ask)

    async def _wait_for_late_call(self) -> None:
        late, self._late_call = self._late_call, None
        if late is not None and not (await asyncio.wait({late}, timeout=_LATE_S))[0]:
            raise HungConsumerError(f"{self._group}: a call of librdkafka did not return within its time limit")

    async def _call(self, function: Callable[..., T], *arguments: Any, timeout_ms: int | None = None) -> T:
        """Run a blocking call in this consumer's thread, and return its result.

        Raise a TidelogError in place of a KafkaException, and TimeoutError if the call still runs after `timeout_ms`,
        because some calls of librdkafka have no time limit.
        """
        running = asyncio.get_running_loop().run_in_executor(self._thread, lambda: function(*arguments))
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await asyncio.shield(running)
        except KafkaException as exception:
            raise error_of_exception(exception) from None
        except builtins.TimeoutError:
            running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            self._late_call = running
            raise TimeoutError(f"a call of librdkafka has not ended after {timeout_ms} ms") from None


def _raise_first(places: Iterable[Place]) -> dict[TopicPartition, Place]:
    """Return the places by partition. Raise the first error of a place."""
    found = {TopicPartition(place.topic, place.partition): place for place in places}
    for tp, place in found.items():
        if place.error is not None:
            raise error_of(place.error, tp)
    return found


def _partition(message: Message) -> TopicPartition | None:
    topic, partition = message.topic(), message.partition()
    return None if topic is None or partition is None or partition < 0 else TopicPartition(topic, partition)


def _record(message: Message) -> ConsumerRecord:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None
    kind, timestamp = message.timestamp()
    epoch = message.leader_epoch()
    stamped_by_broker = int(kind == TIMESTAMP_LOG_APPEND_TIME)
    return ConsumerRecord(
        topic, partition, -1 if epoch is None else epoch, offset, timestamp, stamped_by_broker, message.key(),
        message.value(), (),
    )  # fmt: skip
