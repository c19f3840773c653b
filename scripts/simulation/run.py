"""One simulation from its story to its verdict."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeVar

from simulation.cluster import ClientProcess, Cluster
from simulation.faults import Nemesis
from simulation.final_logs import replica_log
from simulation.story import Story
from simulation.trace import Trace
from simulation.workload import TIMEOUT_MS, TOPICS, Workload
from tidelog.aio import Consumer
from tidelog.chaos.final_logs import read_leaders
from tidelog.checker.broker_events import Broker, BrokerEvent
from tidelog.checker.checker import Checker
from tidelog.checker.events import Event
from tidelog.checker.facts import Source
from tidelog.checker.invariant import Ending
from tidelog.checker.logs import FinalLog
from tidelog.checker.operations import Client
from tidelog.checker.verdict import Verdict
from tidelog.model import TopicPartition

T = TypeVar("T")

#: I19 knows what a fault may cost, which a story does not say; I21 counts descriptors and threads.
JUDGED = (*(f"I{number}" for number in range(1, 19)), "I20", "I22")
_TOPICS_WITHIN_S = 60
#: All that was hurt is whole again, and all that was asked is answered.
_WHOLE_WITHIN_S = 90
_LOOK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    wrong     what was found, in sentences; empty where all is well
    rows      how many observations each invariant had
    digest    of the trace; two runs of one story have the same
    """

    story: Story
    wrong: tuple[str, ...]
    rows: tuple[tuple[str, int], ...]
    digest: str
    simulated_s: float
    messages: int
    turns: int

    @property
    def kinds(self) -> frozenset[str]:
        """What is wrong, without the particulars: a shrunk story must still show one of them."""
        return frozenset(each.split(" ", 1)[0].rstrip(":") for each in self.wrong)


class _Lines:
    """The history of one life of a writer; goes to the checker at once, and into the trace."""

    def __init__(self, checker: Checker, source: Source, trace: Trace) -> None:
        self._checker = checker
        self._source = source
        self._trace = trace

    def write(self, event: Event) -> None:
        self._trace.event(self._source.name, event)
        self._checker.take(self._source, event)

    def close(self) -> None: ...


class Run:
    """`tell` it once."""

    def __init__(self, story: Story, show: Callable[[str], object] | None = None) -> None:
        self.story = story
        self.trace = Trace(show)
        self.checker = Checker()
        self._brokers: dict[tuple[int, int], _Lines] = {}
        self.cluster = Cluster(story.seed, brokers=story.brokers, trace=self.trace, keep=self._keep)
        self.nemesis = Nemesis(self.cluster)
        self.workload = Workload(self.cluster, self._open_history)
        self.wrong: list[str] = []

    def tell(self) -> Outcome:
        """Never raises for what the cluster does wrong."""
        rows: tuple[tuple[str, int], ...] = ()
        try:
            self._begin()
            self._middle()
            if not self.wrong:
                self._heal()
                verdict = self._judge()
                rows = tuple((row.key, row.observations) for row in verdict.rows)
        except _Ended as end:
            self.wrong.append(str(end))
        self.wrong += [f"failure: {line}" for line in self.trace.failures]
        network, timeline = self.cluster.network, self.cluster.timeline
        return Outcome(
            self.story,
            tuple(self.wrong),
            rows,
            f"{self.trace.digest:08x}-{network.delivered:08x}",
            timeline.now_ns / 1e9,
            network.messages,
            timeline.turns,
        )

    # --- the acts ----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        cluster = self.cluster
        for broker in cluster.brokers.values():
            broker.start()
        self._until("start", lambda: all(broker.serves for broker in cluster.brokers.values()), _TOPICS_WITHIN_S)
        maker = cluster.client()
        self._within("topics", maker, self.workload.create_topics(maker), _TOPICS_WITHIN_S)
        maker.kill()
        cluster.clients.clear()
        for place, kind in enumerate(self.story.clients):
            client = cluster.client()
            if kind:
                self.workload.start(client, place, kind)
        for fault in self.story.faults:
            cluster.later(fault.at_ms, partial(self.nemesis.inject, fault))

    def _middle(self) -> None:
        end_ns = self.cluster.timeline.now_ns + round(self.story.seconds * 1e9)
        while self.cluster.timeline.now_ns < end_ns and not self.wrong:
            self.cluster.run(min(_LOOK_EVERY_S, (end_ns - self.cluster.timeline.now_ns) / 1e9))
            self._look()

    def _heal(self) -> None:
        self.trace.add("heal")
        self.nemesis.heal()
        self.workload.end()
        cluster = self.cluster
        self._until("hanging-clients", lambda: self.workload.ended, TIMEOUT_MS / 1000 * 3)
        for _ in range(_WHOLE_WITHIN_S):
            for broker in cluster.brokers.values():
                broker.start()
            cluster.run(1)
            self._look()
            if self.wrong or not list(self._not_whole()):
                break
        if broken := list(self._not_whole()):
            self.wrong.append(f"not-whole: after {_WHOLE_WITHIN_S} s: {'; '.join(broken)}")

    def _judge(self) -> Verdict:
        cluster = self.cluster
        reader = cluster.client()
        tps = [tp for topic in TOPICS for tp in topic.tps]

        async def read() -> list[FinalLog]:
            async with Consumer(
                cluster.bootstrap,
                client_id="final-read",
                auto_offset_reset="none",
                _clock=reader.clock,
                _opener=reader.open,
                _rng=Random(1),
            ) as consumer:
                return await read_leaders(consumer, tps)

        logs: dict[TopicPartition, list[FinalLog]] = {tp: [] for tp in tps}
        for log in self._within("final-read", reader, read(), 60):
            logs[log.tp].append(log)
        for broker in cluster.brokers.values():
            for tp in tps:
                if (replica := broker.replica(tp)) is not None:
                    logs[tp].append(replica_log(replica, broker.broker_id))
        verdict = self.checker.conclude(Ending(logs)).only(JUDGED)
        self.wrong += [str(finding) for finding in verdict.findings]
        return verdict

    # --- looking -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self.wrong += [str(each) for each in self.checker.new_findings() if each.invariant in JUDGED]

    def _not_whole(self) -> Iterator[str]:
        for broker in self.cluster.brokers.values():
            if not broker.serves:
                yield f"{broker} does not serve ({broker.failure!r})"
                continue
        for tp in (tp for topic in TOPICS for tp in topic.tps):
            replicas = [each for broker in self.cluster.brokers.values() if (each := broker.replica(tp)) is not None]
            leaders = [each for each in replicas if each.partition.is_leader]
            if len(leaders) != 1:
                yield f"{tp} has {len(leaders)} leaders"
                continue
            partition = leaders[0].partition
            if len(partition.isr) != len(partition.replicas):
                yield f"{tp} has {list(partition.isr)} of {list(partition.replicas)} in sync"
            elif any(each.log.log_end_offset != partition.high_watermark for each in replicas):
                yield f"{tp} is not committed to its end"
            elif any(each.partition.high_watermark != partition.high_watermark for each in replicas):
                yield f"followers of {tp} have not heard how far it is committed"

    def _until(self, what: str, condition: Callable[[], bool], within_s: float) -> None:
        if not self.cluster.run_until(condition, within_s):
            raise _Ended(f"{what}: not within {within_s:g} s")

    def _within(self, what: str, client: ClientProcess, work: Coroutine[Any, Any, T], within_s: float) -> T:
        try:
            return self.cluster.within(client, work, within_s)
        except Exception as error:
            raise _Ended(f"{what}: {error!r}") from error

    # --- histories ---------------------------------------------------------------------------------------------

    def _open_history(self, header: Client) -> _Lines:
        return _Lines(self.checker, self.checker.begin(header), self.trace)

    def _keep(self, broker_id: int, event: BrokerEvent) -> None:
        life = self.cluster.brokers[broker_id].lives
        lines = self._brokers.get((broker_id, life))
        if lines is None:
            source = self.checker.begin(Broker(str(broker_id), self.cluster.timeline.now_ns))
            lines = self._brokers[broker_id, life] = _Lines(self.checker, source, self.trace)
        lines.write(event)


class _Ended(Exception):
    """The simulation cannot go on."""
