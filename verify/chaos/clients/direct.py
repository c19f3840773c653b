"""Fetch from and look up at every broker, leader or not, without the logic of a client.

A broker that is not the leader must refuse. A broker that answers must answer correctly, even if it was replaced while
it was paused, and must not return records above its high watermark. There are no retries: each request is an operation.
"""

from __future__ import annotations

from tidelog.errors import ProtocolError, TidelogError, error_for
from tidelog.history.events import Event
from tidelog.history.operations import (
    EarliestFailed,
    EarliestOk,
    LatestFailed,
    LatestOk,
    LookUpFailed,
    LookUpOk,
    Read,
    ReadFailed,
)
from tidelog.model import CONSUMER_REPLICA_ID, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Buffer, TopicPartition
from tidelog.protocol.messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from tidelog.records.header import iter_headers
from verify.chaos.clients.client_context import ClientContext, History
from verify.chaos.clients.observing import columns_of
from verify.chaos.clients.support.brokers import for_each_broker
from verify.chaos.clients.support.lines import Line
from verify.checker.outcomes import error_name

_MOST_BYTES = 64 << 10
_MOST_WAIT_MS = 100
_NO_EPOCH = -1


class DirectReader:
    """A client that queries all brokers at the same time, one request at a time to each. Each fetch is a session of its
    own in the client's history.
    """

    def __init__(self, context: ClientContext, name: str, *, pause_s: float = 0.03) -> None:
        self.name = name
        self._context = context
        self._pause_s = pause_s
        self._history: History = context.history(name)
        self._session = 0
        #: The latest leader epoch in an answer, and the offset below which all records have this epoch or an earlier
        #: one.
        self._epochs: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Fetch from and list offsets at every broker, in random partitions, and record each answer or error.

        When `context.stopping` is set, finish the current requests, close the history and return.
        """
        try:
            await for_each_broker(self._context, self.name, self._ask_without_rest)
        finally:
            self._history.close()

    async def _ask_without_rest(self, broker_id: int, address: str) -> None:
        context = self._context
        line = Line(address, context.opener)
        try:
            while not context.stopping.is_set():
                tp = context.rng.choice(context.tps)
                ask = context.rng.choice((self._fetch, self._fetch, self._list))
                if not await ask(line, tp):
                    await context.pause(0.1)
                await context.pause(0, 2 * self._pause_s)
        finally:
            line.close()

    async def _fetch(self, line: Line, tp: TopicPartition) -> bool:
        """Fetch once, and record the records or the error. Return whether the broker answered, also with an error."""
        context, known = self._context, self._context.acknowledged.get(tp)
        offset = context.rng.choice(known).offset if known else 0
        if known and context.rng.random() < 0.5:  # at the end, where a follower could return too much
            offset = known[-1].offset + context.rng.randint(0, 1)
        self._session, session, t0 = self._session + 1, self._session, context.now_ns()
        # every other fetch has no epoch, which tests what a replaced leader returns from its log
        epoch = self._epochs.get(tp, _NO_EPOCH) if session % 2 else _NO_EPOCH
        is_in_range = epoch != _NO_EPOCH and offset <= self._ends.get(tp, -1)
        wanted = FetchPartition(*tp, epoch, offset, _MOST_BYTES)
        request = FetchRequest(CONSUMER_REPLICA_ID, _MOST_WAIT_MS, 1, _MOST_BYTES, (wanted,))
        error: TidelogError | None = None
        try:
            with context.noticed(self._history, "fetch", (tp,)):
                answer = await line.ask(request, context.timeout_ms)
            if not isinstance(answer, FetchResponse) or len(answer.partitions) != 1:
                raise ProtocolError(f"unexpected answer to a fetch of one partition: {answer!r}")
            (found,) = answer.partitions
            error = error_for(found.error_code)
            if error is None:
                records = b"" if found.records is None else found.records
                columns = columns_of(records, offset)
                t1 = context.now_ns()
                self._history.write(Read(tp, session, found.high_watermark, t0, t1, *columns))
                self._learn(tp, records)
                return True
        except TidelogError as failure:
            error = failure
        offset_in_range = offset if is_in_range else -1  # otherwise a replaced leader may not have the offset yet
        self._history.write(ReadFailed(tp, error_name(error), t0, context.now_ns(), session, offset_in_range))
        return hasattr(error, "code")

    def _learn(self, tp: TopicPartition, records: Buffer) -> None:
        """Increase the partition's known leader epoch, and the known end of records of that epoch or an earlier one.

        Each leader of the known epoch or a later one has the records below that end, because a leader returned them.
        """
        for _, header in iter_headers(records):
            self._epochs[tp] = max(self._epochs.get(tp, _NO_EPOCH), header.partition_leader_epoch)
            self._ends[tp] = max(self._ends.get(tp, -1), header.last_offset + 1)

    async def _list(self, line: Line, tp: TopicPartition) -> bool:
        """List the latest or earliest offset or one by timestamp, once, and record the answer or the error.

        Return whether the broker answered, also with an error.
        """
        context, known = self._context, self._context.acknowledged.get(tp)
        which = context.rng.choice((LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, 0))
        target = context.rng.choice(known).timestamp if which == 0 and known else which
        request, t0 = ListOffsetsRequest((ListOffsetsPartition(*tp, target),)), context.now_ns()
        try:
            with context.noticed(self._history, "look-up", (tp,)):
                answer = await line.ask(request, context.timeout_ms)
            if not isinstance(answer, ListOffsetsResponse) or len(answer.partitions) != 1:
                raise ProtocolError(f"unexpected answer to a look-up in one partition: {answer!r}")
            (found,) = answer.partitions
            if refusal := error_for(found.error_code):
                raise refusal
        except TidelogError as error:
            self._history.write(_refused(tp, target, error_name(error), t0, context.now_ns()))
            return hasattr(error, "code")
        ts = found.timestamp if found.offset >= 0 else None
        epoch = found.leader_epoch if found.leader_epoch != _NO_EPOCH else None
        self._epochs[tp] = max(self._epochs.get(tp, _NO_EPOCH), found.leader_epoch)
        self._history.write(_answered(tp, target, found.offset, ts, epoch, t0, context.now_ns()))
        return True


def _answered(
    tp: TopicPartition, target: int, offset: int, ts: int | None, epoch: int | None, t0: int, t1: int
) -> Event:
    if target == LATEST_TIMESTAMP:
        return LatestOk(tp, offset, t0, t1, epoch)
    if target == EARLIEST_TIMESTAMP:
        return EarliestOk(tp, offset, t0, t1, epoch)
    return LookUpOk(tp, target, offset, t0, t1, ts, epoch)


def _refused(tp: TopicPartition, target: int, name: str, t0: int, t1: int) -> Event:
    if target == LATEST_TIMESTAMP:
        return LatestFailed(tp, name, t0, t1)
    if target == EARLIEST_TIMESTAMP:
        return EarliestFailed(tp, name, t0, t1)
    return LookUpFailed(tp, target, name, t0, t1)
