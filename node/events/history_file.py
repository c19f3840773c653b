"""The history of a broker: a recorder that adds the time to each event, and the file that stores the events."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cluster.replication.partition import UNKNOWN_OFFSET, IsrProposal, Partition
from node.events.recorder import Events
from tidelog.history import broker_events
from tidelog.history.broker_events import Broker, BrokerEvent
from tidelog.history.history_files import HistoryWriter
from tidelog.model import TopicPartition
from tidelog.protocol.messages import ApiKey

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 1.0
_BUFFER_BYTES = 64 << 10
_NS_PER_MS = 1_000_000
#: Events that may be lost in a crash: without them the checker sees less, but nothing that contradicts the history.
_MAY_WAIT = (broker_events.Append, broker_events.Ack, broker_events.Processed)


class EventRecorder(Events):
    """Passes each event to `keep`, with its time by `now_ns`, the clock that the broker's deadlines use.

    A `processed` event with a deadline has the time of the decision.
    """

    def __init__(self, keep: Callable[[BrokerEvent], object], now_ns: Callable[[], int]) -> None:
        self._keep = keep
        self._now_ns = now_ns

    def become_leader(self, partition: Partition, log_end_offset: int) -> None:
        tp, epoch, high_watermark = partition.topic_partition, partition.leader_epoch, partition.high_watermark
        version = partition.partition_epoch
        self._keep(broker_events.BecomeLeader(self._now_ns(), tp, epoch, log_end_offset, high_watermark, version))

    def become_follower(self, partition: Partition) -> None:
        tp, epoch = partition.topic_partition, partition.leader_epoch
        self._keep(broker_events.BecomeFollower(self._now_ns(), tp, epoch, partition.leader))

    def append(self, partition: Partition, first: int, end: int) -> None:
        if first < end:
            role = "leader" if partition.is_leader else "follower"
            tp, epoch = partition.topic_partition, partition.leader_epoch
            self._keep(broker_events.Append(self._now_ns(), tp, first, end - 1, epoch, role))

    def hw(self, partition: Partition) -> None:
        tp, epoch = partition.topic_partition, partition.leader_epoch
        self._keep(broker_events.HighWatermark(self._now_ns(), tp, epoch, partition.high_watermark))

    def isr_cas(self, tp: TopicPartition, proposal: IsrProposal, partition_epoch: int | None) -> None:
        state, ok = proposal.state, partition_epoch is not None
        version = proposal.partition_epoch if partition_epoch is None else partition_epoch
        self._keep(broker_events.IsrChange(self._now_ns(), tp, state.isr, state.leader_epoch, version, ok))

    def truncate(self, tp: TopicPartition, to: int, why: str) -> None:
        self._keep(broker_events.Truncate(self._now_ns(), tp, to, why))

    def ack(self, partition: Partition, log_end_offset: int, required_offset: int) -> None:
        # The event has raw state of the partition, and no result of its rules, so that the checker can detect a wrong
        # rule.
        pending = () if partition.pending is None else partition.pending.state.isr
        # A follower whose log end is not known is left out, because it may have registered again since the commit.
        leos = {partition.broker_id: log_end_offset}
        for replica, known in partition.followers.items():
            if known.log_end_offset != UNKNOWN_OFFSET:
                leos[replica] = known.log_end_offset
        self._keep(
            broker_events.Ack(
                self._now_ns(),
                partition.topic_partition,
                required_offset - 1,
                partition.leader_epoch,
                partition.isr,
                [replica for replica in pending if replica not in partition.isr],
                leos,
                partition.replicas,
                partition.effective_min_isr,
            )
        )

    def session(self, state: str) -> None:
        self._keep(broker_events.Session(self._now_ns(), state))

    def registered(self, epoch: int) -> None:
        self._keep(broker_events.Registered(self._now_ns(), epoch))

    def controller(self, epoch: int) -> None:
        self._keep(broker_events.Controller(self._now_ns(), epoch))

    def processed(self, api: int, now_ms: int = -1, deadline_ms: int = -1, epoch: int = -1, known: int = -1) -> None:
        t, deadline = self._now_ns(), 0
        if deadline_ms >= 0:
            # The checker compares the deadline with the time of the decision, because the event may be recorded later.
            t, deadline = min(t, _end_of(now_ms)), _end_of(deadline_ms)
        self._keep(broker_events.Processed(t, _name(api), deadline, epoch, known))

    def reject(self, api: int, why: str) -> None:
        self._keep(broker_events.Reject(self._now_ns(), _name(api), why))

    def error(self, api: int, code: int) -> None:
        self._keep(broker_events.Error(self._now_ns(), _name(api), code))

    def traceback(self, text: str) -> None:
        self._keep(broker_events.Traceback(self._now_ns(), text))


def _end_of(ms: int) -> int:
    """Return the end of the millisecond in ns, because a time in whole milliseconds lasts until then."""
    return (ms + 1) * _NS_PER_MS


def _name(api: int) -> str:
    try:
        return ApiKey(api).name
    except ValueError:
        return str(api)


class Tracebacks(logging.Handler):
    """Records each error log line with a stack as a traceback event, from any thread; those of kazoo are left out."""

    def __init__(self, events: Events, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(logging.ERROR)
        self._events = events
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not record.name.startswith("kazoo"):
            text = f"{record.getMessage()}\n{''.join(traceback.format_exception(*record.exc_info))}"
            with suppress(RuntimeError):  # the loop is closed, and so is the history
                self._loop.call_soon_threadsafe(self._events.traceback, text)


class HistoryFile:
    """The file of a broker's history. An error of its disk after the start ends the history, but not the broker.

    Most events are written to the kernel at once, so that they outlive the process. Events in `_MAY_WAIT` are buffered,
    for at most `LONGEST_WAIT_S` and `_BUFFER_BYTES`.

    later   calls a function after so many seconds (`loop.call_later`)
    """

    def __init__(self, path: Path, broker: Broker, later: Callable[[float, Callable[[], None]], object]) -> None:
        self._writer: HistoryWriter | None = HistoryWriter(path, broker, buffer_bytes=_BUFFER_BYTES)
        self._later = later
        self._is_due = False

    def keep(self, event: BrokerEvent) -> None:
        with self._stop_on_error() as writer:
            if writer is None:
                return
            writer.write(event)
            if not isinstance(event, _MAY_WAIT):
                writer.flush()
            elif not self._is_due:
                self._is_due = True
                self._later(LONGEST_WAIT_S, self._flush)

    def close(self) -> None:
        """Write the buffered events and close the file. Later events are dropped."""
        with self._stop_on_error() as writer:
            self._writer = None
            if writer is not None:
                writer.close()

    def _flush(self) -> None:
        self._is_due = False
        with self._stop_on_error() as writer:
            if writer is not None:
                writer.flush()

    @contextmanager
    def _stop_on_error(self) -> Iterator[HistoryWriter | None]:
        writer = self._writer
        try:
            yield writer
        except OSError as error:
            self._writer = None
            log.error("the history file cannot be written, so that the history ends here: %s", error)
