"""Hand fetched data to the user of a consumer: wait for it, raise errors at the right time, and count records."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidelog import arguments
from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.deserialization import Polled
from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord, FetchedBatches
from tidelog.client.consumer.fetching.fetcher import Fetcher
from tidelog.client.consumer.fetching.standing_error import StandingError
from tidelog.client.consumer.poll_remainder import PollRemainder
from tidelog.client.settings import ConsumerSettings
from tidelog.display.listing import Listing, Table
from tidelog.errors import ClosedError, RecordDeserializationError
from tidelog.model import TopicPartition

if TYPE_CHECKING:  # imported when they are needed, because consumers without a group and without Arrow start faster
    import pyarrow as pa

    from tidelog.arrow.polled_rows import PolledRows
    from tidelog.client.consumer.topic_subscription import TopicSubscription
    from tidelog.groups.membership.group_consumer import GroupConsumer

#: Timeout of each poll of an iteration without `consumer_timeout_ms`.
ITERATION_POLL_MS = 1_000

A = TypeVar("A", bound="FetchedBatches | PolledRows")

#: Takes data from the buffers, and returns the partitions that gave some; see `Reader._wait_for_data`.
Take = Callable[[Fetcher, Callable[[], bool]], Collection[TopicPartition]]

#: What a poll of any kind returns.
Taken = Mapping[TopicPartition, "list[ConsumerRecord] | FetchedBatches | PolledRows"]


class Reader:
    """The calls of one consumer that read. Keys and values are bytes here.

    start        gives the remainder back, and returns the fetcher, which the first call starts; raises ClosedError if
                 the consumer is closed
    subscriber   returns the group, or the subscription without a group, that decides the assignment; None if the user
                 assigns the partitions
    remainder    the records that an iteration has polled and not yielded
    """

    def __init__(
        self,
        client: ClusterClient,
        settings: ConsumerSettings,
        start: Callable[[], Fetcher],
        subscriber: Callable[[], GroupConsumer | TopicSubscription | None],
    ) -> None:
        self.remainder = PollRemainder()
        self._client = client
        self._clock = client.clock
        self._settings = settings
        self._start = start
        self._subscriber = subscriber
        self._has_pending_error = False
        self._is_ended = False

    def end(self) -> None:
        """Give the remainder back, and let calls that wait raise ClosedError at their next turn."""
        self.give_remainder_back()
        self._is_ended = True

    # --- the calls --------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int, max_records: int | None = None) -> Polled:
        """Return at most `max_records` records (default `max_poll_records`) as soon as there are any."""
        limit = self._settings.max_poll_records
        if max_records is not None:
            limit = arguments.whole("max_records", max_records, 1)
        found: Polled = Table()

        def take(fetcher: Fetcher, is_last: Callable[[], bool]) -> Collection[TopicPartition]:
            fetcher.take_records(limit, found)
            return found.keys()

        await self._wait_for_data(timeout_ms, take)
        self._count(found)
        return found

    async def consume(self, timeout_ms: int, max_records: int) -> Polled:
        """Return `max_records` records, or fewer at the timeout and before an error.

        While this call waits for more records, the position stays before all of them, so that a rebalance, a commit or
        `close` meanwhile does not count them as consumed.
        """
        limit = arguments.whole("max_records", max_records, 1)
        found: Polled = Table()

        def take(fetcher: Fetcher, is_last: Callable[[], bool]) -> Collection[TopicPartition]:
            if fetcher.decode_ahead(limit) < limit and not is_last():
                fetcher.wake()  # records that are decoded take no space in the buffers
                return ()
            fetcher.take_records(limit, found)
            return found.keys()

        await self._wait_for_data(timeout_ms, take)
        self._count(found)
        return found

    async def poll_batches(self, timeout_ms: int) -> dict[TopicPartition, FetchedBatches]:
        """Return undecoded batches, for each partition those of one fetch answer."""
        return await self._poll_answers(timeout_ms, AssignedPartition.take_batches)

    async def poll_rows(self, schema: pa.Schema, timeout_ms: int) -> dict[TopicPartition, PolledRows]:
        """Return rows with the columns of the schema, for each partition those of one fetch answer."""
        from tidelog.arrow.polled_rows import decode_answer

        limit = self._settings.max_decompressed_batch_bytes

        def take_rows(assigned: AssignedPartition) -> PolledRows | None:
            while rows := assigned.take_decoded(partial(decode_answer, schema, limit, assigned.topic_partition)):
                if rows.batches:
                    return rows
            return None

        return await self._poll_answers(timeout_ms, take_rows)

    async def _poll_answers(
        self, timeout_ms: int, take_answer: Callable[[AssignedPartition], A | None]
    ) -> dict[TopicPartition, A]:
        """Return what `take_answer` returns for each partition, and wait if it returns None for all of them."""
        found: dict[TopicPartition, A] = Table()

        def take(fetcher: Fetcher, is_last: Callable[[], bool]) -> Collection[TopicPartition]:
            for tp, assigned in fetcher.partitions.items():
                if assigned.is_shown and (answer := take_answer(assigned)) is not None:
                    found[tp] = answer
            if not found:
                fetcher.wake()  # a buffer may have dropped records, which are fetched again
            return found.keys()

        await self._wait_for_data(timeout_ms, take)
        self._count(found)
        return found

    async def fill_remainder(self) -> bool:
        """Poll for an iteration, and hold the records for `remainder.next`.

        Returns False if no record arrived for `consumer_timeout_ms`. Without that setting the result is always True,
        also if no record arrived within a second.
        """
        limit_ms = self._settings.consumer_timeout_ms
        polled = await self.poll(ITERATION_POLL_MS if limit_ms is None else limit_ms)
        partitions = self._start().partitions
        self.remainder.take({partitions[tp]: records for tp, records in polled.items()})
        return bool(polled) or limit_ms is None

    # --- records that the user does not get -------------------------------------------------------

    def give_remainder_back(self) -> None:
        """Give the records that an iteration has not yielded back to their buffers."""
        self._client.metrics.records_consumed -= self.remainder.give_back()

    def give_back(self, polled: Taken) -> None:
        """Set the position of each partition back to its first polled record, because the caller received none.

        Partitions that are no longer assigned or have no position are ignored. If the consumer was closed or dropped
        meanwhile, nothing is done.
        """
        try:
            fetcher = self._start()
        except (ClosedError, ReferenceError):
            return
        self._client.metrics.records_consumed -= count_of(polled)
        for tp, taken in polled.items():
            assigned = fetcher.partitions.get(tp)
            if assigned is not None and assigned.position is not None:
                first = taken[0].offset if isinstance(taken, list) else taken.fetch_offset
                assigned.set_back(first)
        fetcher.wake()

    def refuse(self, errors: Iterable[RecordDeserializationError], not_given: int) -> None:
        """Set the positions back to the records of these errors, which the next poll raises.

        not_given   how many polled records the user does not get: the records of the errors, and all records after them
                    in their partitions

        A partition whose position is no longer after its record is left out.
        """
        fetcher = self._start()
        self._client.metrics.records_consumed -= not_given
        for error in errors:
            assigned = fetcher.partitions.get(error.topic_partition)
            if assigned is not None and assigned.position is not None and assigned.position > error.offset:
                assigned.refuse(error.offset, error)
                self._has_pending_error = True

    # --- waiting ----------------------------------------------------------------------------------

    async def wait_for_arrival(self, fetcher: Fetcher, deadline_ms: int) -> None:
        """Wait until the fetcher has news, or until the deadline (ms, monotonic clock)."""
        fetcher.arrived.clear()
        left_ms = deadline_ms - self._clock.monotonic_ms()
        with contextlib.suppress(builtins.TimeoutError):
            async with asyncio.timeout(max(0, left_ms) / 1000):
                await fetcher.arrived.wait()

    async def _wait_for_data(self, timeout_ms: int, take: Take) -> None:
        """Wait until `take` finds something in the buffers, or until the timeout.

        `take` also gets a function that returns whether the call may not wait for more, because its time is over or an
        error is due.

        Data comes before errors. A new error is raised by the next call at the latest. While an error that was raised
        lasts, a call raises it again only when the call's own time is over.
        """
        timeout_ms = arguments.timeout_ms("timeout_ms", timeout_ms)
        begun_ms = self._clock.monotonic_ms()
        self._start()
        subscriber = self._subscriber()
        if subscriber is None:
            return await self._wait(begun_ms, timeout_ms, take)
        subscriber.begin_poll()
        try:
            await self._wait(begun_ms, timeout_ms, take)
        finally:
            if (subscriber := self._subscriber()) is not None:
                subscriber.end_poll()

    async def _wait(self, begun_ms: int, timeout_ms: int, take: Take) -> None:
        while True:
            fetcher = self._start()
            fetcher.arrived.clear()
            if self._is_ended:
                raise ClosedError("the consumer is being closed")
            if (subscriber := self._subscriber()) is not None:
                await subscriber.run_callbacks()
            if self._has_pending_error:
                self._has_pending_error = False
                self._raise_errors(fetcher, StandingError.is_new)
            waited_ms = self._clock.monotonic_ms() - begun_ms
            is_over = waited_ms >= timeout_ms
            is_due = partial(StandingError.is_due, waited_ms=waited_ms, is_over=is_over)
            if found := take(fetcher, lambda: is_over or self._has_error(fetcher, is_due)):  # noqa: B023 called at once
                # The next call raises these errors before it returns data, so that data cannot hide them for long.
                self._has_pending_error = self._client.background.has_failed or any(
                    assigned.standing_error.is_new() and assigned.is_shown and tp not in found
                    for tp, assigned in fetcher.partitions.items()
                )
                fetcher.wake()
                return
            self._raise_errors(fetcher, is_due)
            if is_over:
                # A poll with timeout 0 still lets the event loop handle answers that have arrived meanwhile.
                await asyncio.sleep(0)
                return
            await self.wait_for_arrival(fetcher, begun_ms + timeout_ms)

    def _raise_errors(self, fetcher: Fetcher, is_due: Callable[[StandingError], bool]) -> None:
        """Raise a background task's failure, an unassigned partition's error, or the first error that `is_due` selects.

        Errors of paused and withheld partitions are not raised.
        """
        self._client.background.raise_failure()
        if (error := fetcher.unassigned_error) is not None:
            fetcher.unassigned_error = None
            raise error
        for standing_error in fetcher.shown_errors:
            if is_due(standing_error):
                standing_error.raise_it()

    def _has_error(self, fetcher: Fetcher, is_due: Callable[[StandingError], bool]) -> bool:
        """Return whether `_raise_errors` would raise an error."""
        return (
            self._client.background.has_failed
            or fetcher.unassigned_error is not None
            or any(each.error is not None and is_due(each) for each in fetcher.shown_errors)
        )

    def _count(self, polled: Taken) -> None:
        self._client.metrics.records_consumed += count_of(polled)


def in_one_list(polled: Mapping[TopicPartition, list[ConsumerRecord]]) -> list[ConsumerRecord]:
    """Return the records of all partitions, one partition after the other."""
    return Listing(record for records in polled.values() for record in records)


def count_of(polled: Taken) -> int:
    """Return the number of records, or of undecoded batches the number of offsets, which is known without decoding."""
    count = 0
    for taken in polled.values():
        if isinstance(taken, FetchedBatches):
            count += taken.next_offset - taken.fetch_offset
        else:
            count += len(taken) if isinstance(taken, list) else taken.record_count
    return count
