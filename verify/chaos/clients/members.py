"""Run members of consumer groups: they share the topics, read, process records, and commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord
from tidelog.errors import TidelogError
from tidelog.groups.membership.rebalance_listener import ConsumerRebalanceListener
from tidelog.history.group_operations import (
    Assigned,
    CommitInvoked,
    CommitOk,
    CommittedFailed,
    CommittedOk,
    CommitUnknown,
    Revoked,
)
from tidelog.model import OffsetAndMetadata, TopicPartition
from verify.chaos.clients.client_context import ClientContext
from verify.chaos.clients.observing import Sessions
from verify.chaos.clients.reading import partition_of
from verify.chaos.clients.support.interfaces import RecordConsumer
from verify.checker.outcomes import error_name

_MOST_AT_ONCE = 500
#: The longest time to process the records of one poll, so that a kill meets records without a commit.
_LONGEST_WORK_S = 0.1
_SESSION_TIMEOUT_MS = 6_000


class MemberClient(ConsumerRebalanceListener):
    """One member of one group, which commits what it has processed. The group's strategy is `strategy`.

    The offsets that it has committed never decrease, unless the log lost records, for example by an unclean election.

    longest_work_s   the longest time to process the records of one poll
    open_consumer    opens the consumer, with its name and settings; None: our own
    """

    def __init__(
        self,
        context: ClientContext,
        name: str,
        group: str,
        strategy: str,
        *,
        longest_work_s: float = _LONGEST_WORK_S,
        open_consumer: Callable[..., RecordConsumer] | None = None,
    ) -> None:
        self.name = name
        self._context = context
        self._group = group
        self._strategy = strategy
        self._longest_work_s = longest_work_s
        self._history = context.history(name)
        self._sessions = Sessions(self._history, context)
        self._open_consumer = open_consumer or context.consumer
        self._consumer: RecordConsumer | None = None

    async def run(self) -> None:
        """Join the group, subscribe to all topics, then poll, process and commit until `context.stopping` is set.

        Records, commits, assigned and revoked partitions, and a partition's errors are recorded in the history. At the
        end this member leaves the group and closes the history.
        """
        context = self._context
        consumer = self._open_consumer(
            self.name,
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=1_000,
            partition_assignment_strategy=[self._strategy],
        )
        try:
            async with consumer:
                self._consumer = consumer
                consumer.subscribe([topic.name for topic in context.topics], listener=self)
                while not context.stopping.is_set():
                    try:
                        polled = await self._sessions.polled(consumer.poll(context.poll_ms, _MOST_AT_ONCE))
                    except TidelogError as error:
                        if (tp := partition_of(error, context.tps)) is not None:
                            self._sessions.failed(tp, error)
                        await context.pause(0.1)
                        continue
                    if polled:
                        await self._work(consumer, polled)
        finally:
            self._history.close()

    async def _work(self, consumer: RecordConsumer, polled: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        """Record the polled records, wait for up to `longest_work_s` as if processing them, commit their next offsets,
        and record the outcome.

        After one in ten commits, read one of the committed offsets and record the answer too. A TidelogError is not
        raised.
        """
        context = self._context
        for tp, records in polled.items():
            self._sessions.read(tp, records)
        await context.pause(0, self._longest_work_s)
        offsets = {tp: records[-1].offset + 1 for tp, records in polled.items()}
        me, t0 = consumer.group_metadata(), context.now_ns()
        for tp, offset in offsets.items():
            self._history.write(CommitInvoked(self._group, tp, offset, t0, me.generation_id, me.member_id))
        try:
            with context.noticed(self._history, "commit", offsets):
                committed = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}
                await consumer.commit(committed, context.timeout_ms)
        except TidelogError as error:
            # The last error does not exclude that an earlier attempt of the client was written.
            name, t1 = error_name(error), context.now_ns()
            for tp, offset in offsets.items():
                event = CommitUnknown(self._group, tp, offset, name, t0, t1, me.generation_id, me.member_id)
                self._history.write(event)
        else:
            t1 = context.now_ns()
            for tp, offset in offsets.items():
                self._history.write(CommitOk(self._group, tp, offset, t0, t1, me.generation_id, me.member_id))
        if context.rng.random() < 0.1:
            await self._ask(consumer, context.rng.choice(list(offsets)))

    async def _ask(self, consumer: RecordConsumer, tp: TopicPartition) -> None:
        context, t0 = self._context, self._context.now_ns()
        try:
            with context.noticed(self._history, "request for a committed offset", (tp,)):
                found = (await consumer.committed([tp], context.timeout_ms))[tp]
        except TidelogError as error:
            self._history.write(CommittedFailed(self._group, tp, error_name(error), t0, context.now_ns()))
            return
        offset = -1 if found is None else found.offset
        self._history.write(CommittedOk(self._group, tp, offset, t0, context.now_ns()))

    # --- callbacks of the group ------------------------------------------------------------------------

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        assert self._consumer is not None
        me = self._consumer.group_metadata()
        owned = sorted(self._consumer.assignment())
        self._history.write(Assigned(self._group, me.member_id, me.generation_id, owned, self._context.now_ns()))
        for tp in sorted(assigned):  # sorted, so that a simulation numbers them alike, whatever the hash seed
            self._sessions.begin(tp)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._gave_up(revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._gave_up(lost)

    def _gave_up(self, tps: Iterable[TopicPartition]) -> None:
        assert self._consumer is not None
        me, gone = self._consumer.group_metadata(), sorted(tps)
        self._history.write(Revoked(self._group, me.member_id, me.generation_id, gone, self._context.now_ns()))
