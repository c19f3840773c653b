"""Runs the demo step by step. Each step waits for what it needs, within a time limit, and stores what it measured."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from tidelog import Admin, Consumer, Producer, TidelogError, TopicPartition
from tools.demo.cluster import PARTITIONS, REPLICAS, TOPIC, DemoCluster
from tools.demo.counts.parquet_counts import read_counts
from tools.demo.counts.plain_count import Counts, PlainCount, compare, total
from tools.demo.failover import Kill, TopicState, choose_victim, read_topic_state
from tools.demo.feed import pace
from tools.demo.feed.journal import Journal
from tools.demo.feed.line_producer import LineProducer
from tools.demo.interruption import uninterrupted
from tools.demo.lines.event_time import choose_start, watermark
from tools.demo.lines.line_splitter import Line
from tools.demo.lines.live_logs import LiveLogs
from tools.demo.lines.read_ahead import ReadAhead
from tools.demo.lines.sources import LineSource, in_order_of_time
from tools.demo.read_back import count_records
from tools.demo.report import ProgressReporter, utc
from tools.demo.spark_runs import AuditJob, StreamJob, StreamProgress
from tools.demo.verdict import MIN_ACKS_BEFORE_KILL, Audit, Figures

_TICK_S = 0.05
_BEFORE_KILL_S = 1.5
_NEARLY_USED_UP = 60
_READ_BACK_S = 8.0
_SPARK_START_S = 150.0
_SPARK_END_S = 300.0
_PARTITIONS = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]


class ScenarioError(Exception):
    """The scenario cannot go on. The message is one line."""


class Scenario:
    """Everything from the first line to the audit, on a cluster that runs when the `with` block begins.

    The end of the block stops the producer and the Spark jobs.

    live     whether the logs of the cluster's processes follow the sources
    figures  gets each figure as soon as it is measured
    ahead    the input, which is read from the construction on
    counts   the stream's result; empty until it has ended
    """

    def __init__(
        self, sources: list[LineSource], live: bool, cluster: DemoCluster, reporter: ProgressReporter, figures: Figures
    ) -> None:
        self.counts: Counts = {}
        self._sources = sources
        self._live = LiveLogs(cluster.log_files()) if live else None
        self.ahead = ReadAhead(self._lines())
        self._cluster = cluster
        self._reporter = reporter
        self._figures = figures
        self._plain = PlainCount()
        self._pace = pace.Pace(pace.head(0))
        self._stream: StreamJob | None = None
        self._state: Callable[[], str] = str
        self._killed_at_ms = 0
        self._in_sync_at_ms = 0
        self._stack = ExitStack()

    def __enter__(self) -> Scenario:
        servers = self._cluster.bootstrap_servers
        with ExitStack() as stack:
            self._admin = stack.enter_context(Admin(servers))
            self._consumer = stack.enter_context(Consumer(bootstrap_servers=servers, auto_offset_reset="earliest"))
            self._journal = stack.enter_context(Journal(self._cluster.directory / "journal.jsonl", TOPIC))
            self._producer = Producer(
                servers, linger_ms=5, batch_size=64 << 10, buffer_memory=16 << 20, max_block_ms=30_000
            )
            stack.callback(self._producer.close, 3.0)
            self._feed = LineProducer(
                self._producer, TOPIC, PARTITIONS, self.ahead, self._journal, self._plain, self._pace
            )
            stack.callback(self._feed.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *reason: object) -> None:
        self.ahead.close()
        self._stack.close()

    def run(self) -> None:
        """Run all steps. Raises ScenarioError, JobError or TidelogError if one fails; `stop_early` must follow then."""
        self._create_topic()
        self._send_head()
        self._start_stream()
        kill = self._kill_a_leader()
        self._watch_the_election(kill)
        self._bring_it_back()
        self._send_rest()
        self._end_stream()
        self._audit()

    def stop_early(self) -> None:
        """Stop sending after an interruption or a failure, and count what the topic holds without the audit."""
        self._feed.stop()
        self._reporter.step("stopping: counting what the topic holds")
        acks = self._feed.acks
        audit = self._figures.audit
        try:
            self._producer.flush(2.0)
            audit.read, ends = count_records(self._consumer, TOPIC, PARTITIONS, _READ_BACK_S)
            audit.lost = sum(max(0, acks.ends[partition] - end) for partition, end in ends.items())
        except TidelogError as error:
            self._reporter.step(f"the topic was not read to its end: {error}")
        audit.acknowledged = acks.acked
        self._note_input()
        self._figures.stream.excluded, self._figures.stream.plain = self._plain.excluded, self._plain.total

    # --- steps ------------------------------------------------------------------------------------

    def _create_topic(self) -> None:
        self._cluster.create_topic(self._admin)
        self._until("the topic gets its replicas", lambda: self._topic_state().all_in_sync, 30)
        self._reporter.step(f"topic {TOPIC}: {PARTITIONS} partitions, {REPLICAS} replicas, min ISR 2, retention.ms -1")

    def _send_head(self) -> None:
        """Wait for input, and send the first lines, so that a look-up by time has something to find.

        Raises ScenarioError if the input holds no line.
        """
        self._until("reading ahead", lambda: self.ahead.full or self.ahead.ended, 1)
        self._until("waiting for a line", lambda: len(self.ahead) > 0 or self.ahead.ended, None)
        if not len(self.ahead):
            raise ScenarioError("the input holds no line")
        stage = pace.head(len(self.ahead))
        self._pace.enter(stage)
        self._feed.start()
        acks = self._feed.acks
        self._until(
            "the first lines", lambda: acks.acked > 0 and (self.ahead.full or len(self.ahead) <= stage.keep), 30
        )

    def _start_stream(self) -> None:
        known_ms = self.ahead.stamps_ms()
        stamps_ms = [stamp for stamp in known_ms if stamp is not None]
        start_ms = 0

        def choose() -> None:
            nonlocal start_ms
            start_ms = choose_start([*self._plain.undecided_ms(), *stamps_ms])
            self._plain.start_from(start_ms)

        self._feed.between_records(choose)
        self._figures.stream.starting_timestamp_ms = start_ms
        places = self._consumer.offsets_for_times(dict.fromkeys(_PARTITIONS, start_ms), timeout_ms=30_000)
        offsets = ", ".join("end" if place is None else str(place.offset) for _, place in sorted(places.items()))
        self._reporter.step(f"counting from {utc(start_ms)}: the look-up answers offsets {offsets}")

        stage = pace.waiting(len(self.ahead))
        self._pace.enter(stage)
        mixed = len(stamps_ms) < len(known_ms) or self._feed.stamped_by_arrival > 0
        servers = self._cluster.bootstrap_servers
        delay = watermark(stamps_ms, mixed, _now_ms())
        with uninterrupted():
            self._stream = StreamJob(self._cluster.directory / "stream", servers, TOPIC, start_ms, delay)
            self._stack.callback(self._stream.stop)
        self._reporter.step("Spark is starting while more lines are sent")

        def running() -> bool:
            nothing_to_read = self._plain.total == 0 and len(self.ahead) <= stage.keep and not self.ahead.full
            return self._progress.rows > 0 or (self._progress.triggered and nothing_to_read)

        if not self._until("Spark is starting", running, _SPARK_START_S):
            raise ScenarioError(f"the Spark stream had no batch within {_SPARK_START_S:.0f} s (see {self._stream.log})")
        self._reporter.step(f"the stream runs: {self._progress.rows:,} lines in its first batch")

    def _kill_a_leader(self) -> Kill:
        """Kill a leader that is not the controller while the producer sends; return the kill, which is not over yet.

        Raises ScenarioError if only the controller leads partitions.
        """
        state_before = self._topic_state()
        failover = self._figures.failover
        failover.controller = self._admin.describe_cluster(timeout_ms=10_000).controller
        victim = choose_victim(state_before.leaders, failover.controller)
        if victim is None:
            raise ScenarioError(f"no broker but the controller, {failover.controller}, leads a partition")
        kill = Kill(victim, state_before, self._cluster.process(victim), self._feed)
        stage = pace.before_kill(len(self.ahead))
        self._pace.enter(stage)
        calm_until = time.monotonic() + _BEFORE_KILL_S

        def due() -> bool:
            used_up = not self.ahead.full and len(self.ahead) <= stage.keep + _NEARLY_USED_UP
            busy = self._feed.acks.in_second_before(time.monotonic_ns()) >= MIN_ACKS_BEFORE_KILL
            return used_up or (busy and time.monotonic() >= calm_until)

        self._until("sending before the kill", due, 20)
        self._feed.between_records(kill.execute, behind_burst=True)
        self._pace.enter(pace.during_gap(len(self.ahead)))
        self._killed_at_ms = kill.killed_at_ms
        failover.victim, failover.partitions = victim, kill.partitions
        failover.acks_in_second_before = kill.acks_in_second_before
        failover.unacknowledged = kill.unacknowledged
        led = ", ".join(map(str, kill.partitions))
        self._reporter.step(f"SIGKILL for broker {victim}, the leader of partitions {led}")
        self._reporter.step(
            f"  {kill.acks_in_second_before:,} acknowledgements in the second before, "
            f"{kill.unacknowledged:,} records for them in flight"
        )
        return kill

    def _watch_the_election(self, kill: Kill) -> None:
        failover = self._figures.failover
        few = not self.ahead.full and len(self.ahead) <= _NEARLY_USED_UP
        reached = self._until("waiting for new leaders", lambda: not kill.unreached(), 5 if few else 40)
        failover.unreached = kill.unreached()
        if reached and self._until("waiting for new leaders", lambda: kill.over, 40):
            failover.gap_s = max(kill.gaps_s().values())
            self._reporter.step(f"  every partition acknowledges again {failover.gap_s:.3f} s after the kill")
        failover.gaps_s = kill.gaps_s()
        elected = self._topic_state()
        for _ in range(20):
            if not elected.led_by(kill.victim):
                break
            self._pause(0.5)
            elected = self._topic_state()
        for change in kill.state_before.changes(elected):
            self._reporter.step(f"  {change}")
        self._pace.enter(pace.one_broker_less(len(self.ahead)))
        since_ms = self._killed_at_ms + int(1000 * (failover.gap_s or 0))
        if self._until("one broker less", lambda: self._progress.between(since_ms, _now_ms()) > 0, 5 if few else 20):
            self._reporter.step(f"the stream continues without broker {kill.victim}")

    def _bring_it_back(self) -> None:
        failover = self._figures.failover
        assert failover.victim is not None
        began = time.monotonic()
        with uninterrupted():
            self._cluster.restart(failover.victim)
        if self._until("waiting until it has caught up", lambda: self._topic_state().all_in_sync, 60):
            failover.in_sync_again_s = time.monotonic() - began
            seconds = f"{failover.in_sync_again_s:.1f} s after its restart"
            self._reporter.step(f"broker {failover.victim} is in sync again, {seconds}; every ISR is complete")
        self._in_sync_at_ms = _now_ms()

    def _send_rest(self) -> None:
        self._feed.finish()
        if self._live is not None:
            self._until("sending the rest", self._live_lines_are_counted, 30)
            self._live.stop()
        self._until("sending the rest", self._feed.finished.is_set, None)
        self._producer.flush(60.0)
        self._until("the last acknowledgements", lambda: not self._feed.in_flight, 10)
        self._note_input()
        acks = self._feed.acks
        self._reporter.step(f"all {self._feed.sent:,} lines are sent, {acks.acked:,} acknowledged")
        if acks.first_error is not None:
            self._reporter.step(f"  {acks.failed:,} failed: {acks.first_error}")

    def _end_stream(self) -> None:
        assert self._stream is not None
        ends = self._consumer.end_offsets(_PARTITIONS, timeout_ms=30_000)
        self._stream.stop_at({partition.partition: offset for partition, offset in ends.items()})
        if not self._until("the stream reads on to the end", lambda: self._progress.ended is not None, _SPARK_END_S):
            raise ScenarioError(
                f"the Spark stream did not reach the end within {_SPARK_END_S:.0f} s (see {self._stream.log})"
            )
        self._stream.stop()
        progress, stream = self._progress, self._figures.stream
        assert progress.ended is not None
        self.counts = read_counts(self._stream.counts)
        difference = compare(self._plain.counts, self.counts)
        stream.ended = True
        stream.excluded, stream.plain = self._plain.excluded, self._plain.total
        stream.counted, stream.late = total(self.counts), int(progress.ended["late"])
        stream.missing, stream.surplus = difference.missing, difference.surplus
        stream.batches_before = progress.between(0, self._killed_at_ms)
        stream.batches_during = progress.between(self._killed_at_ms, self._in_sync_at_ms)
        stream.batches_after = progress.between(self._in_sync_at_ms, _now_ms())
        stream.failed_tasks = progress.failed_tasks
        self._reporter.step(
            f"the stream has counted {stream.counted:,} lines; {stream.late:,} were later than the watermark"
        )

    def _audit(self) -> None:
        self._journal.close()
        directory, servers = self._cluster.directory / "audit", self._cluster.bootstrap_servers
        with uninterrupted():
            job = AuditJob(directory, servers, TOPIC, self._journal.path)
            self._stack.callback(job.stop)
        self._reporter.step("Spark is joining the producer's journal with the topic")
        if not self._until(lambda: f"the audit: {job.state()}", lambda: job.exit_status is not None, _SPARK_END_S):
            raise ScenarioError(f"the audit did not end within {_SPARK_END_S:.0f} s (see {job.log})")
        result = job.figures()
        names = ("read", "lost", "doubled", "altered", "misplaced", "foreign")
        self._figures.audit = Audit(
            acknowledged=int(result["acked"]), by_spark=True, **{name: int(result[name]) for name in names}
        )

    def _live_lines_are_counted(self) -> bool:
        return not len(self.ahead) and self._progress.between(self._in_sync_at_ms, _now_ms()) > 0

    # --- parts that steps share --------------------------------------------------------------------

    def _lines(self) -> Iterator[Line]:
        ended = in_order_of_time(self._sources)
        return ended if self._live is None else itertools.chain(ended, self._live.lines())

    @property
    def _progress(self) -> StreamProgress:
        assert self._stream is not None
        return self._stream.progress

    def _topic_state(self) -> TopicState:
        return read_topic_state(self._admin, TOPIC)

    def _note_input(self) -> None:
        input_figures = self._figures.input
        readers: list[LineSource | LiveLogs] = [*self._sources]
        if self._live is not None:
            readers.append(self._live)
        input_figures.lines, input_figures.sources = self._feed.sent, self._feed.sources
        input_figures.too_long = sum(reader.too_long_count for reader in readers)
        input_figures.too_long_places = [str(place) for reader in readers for place in reader.too_long]

    def _until(self, doing: str | Callable[[], str], condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Return whether the condition came true within the time; ScenarioError if a part of the demo fails meanwhile.

        The wait shows what `doing` returns, or the text `doing` with the counts of lines.
        """
        self._state = doing if callable(doing) else lambda: f"{doing}: {self._counts()}"
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not condition():
            if deadline is not None and time.monotonic() >= deadline:
                return False
            self._pause(_TICK_S)
        return True

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)
        feed = self._feed
        if feed.error is not None:
            raise ScenarioError(f"the producer stopped: {feed.error}")
        if self._stream is not None and self._progress.ended is None:
            self._stream.poll()
        self._reporter.state(self._state())

    def _counts(self) -> str:
        counts = f"{self._feed.sent:,} lines sent, {self._feed.acks.acked:,} acknowledged"
        return counts if self._stream is None else f"{counts}, {self._progress.rows:,} read by the stream"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
