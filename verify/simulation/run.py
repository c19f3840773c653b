"""Run one simulation from its scenario to its verdict."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, TypeVar

from cluster.state import TopicAssignment
from cluster.zookeeper.store import NoNodeError
from cluster.zookeeper.znodes import BROKER_TOPICS, decode_state, decode_topic, state_path, topic_path
from node.replication.replica import Replica
from tidelog.aio import Consumer
from tidelog.client.environment import ClientEnvironment
from tidelog.history.broker_events import Broker, BrokerEvent, Resources
from tidelog.history.events import Event
from tidelog.history.operations import Client
from tidelog.model import NO_LEADER, TopicPartition
from verify.chaos.results.final_logs import read_leaders
from verify.checker.checker import Checker
from verify.checker.facts import Source
from verify.checker.inputs.logs import FinalLog
from verify.checker.invariant import Ending, Window
from verify.checker.verdict import Verdict
from verify.simulation.cluster.admin_operations import TEMPORARY_TOPIC, AdminOperations
from verify.simulation.cluster.brokers import SimulatedBroker
from verify.simulation.cluster.cluster import ClientProcess, Cluster
from verify.simulation.cluster.durability_model import DurabilityModel
from verify.simulation.cluster.final_logs import replica_log
from verify.simulation.cluster.nemesis import Nemesis
from verify.simulation.fault_counts import FaultCounts
from verify.simulation.scenario import Scenario
from verify.simulation.scenario_generator import DURABLE, PLAIN, UNCLEAN
from verify.simulation.timeline import NS_PER_S
from verify.simulation.trace import Trace
from verify.simulation.workload import COMPACTED, TOPICS, Workload

T = TypeVar("T")

#: The invariants that are checked. I19 is checked only for the final recovery, because a scenario does not state how
#: much unavailability its faults may cause.
JUDGED = tuple(f"I{number}" for number in range(1, 24))
#: The invariants after an unclean election: acknowledged records may be lost, but logs and their leader epochs must be
#: right. A replica truncates to where it agrees with the new leader epoch by epoch, and its high watermark follows step
#: by step (I11).
LINEAGE = ("I4", "I10", "I12", "I14", "I15", "I16", "I17", "I19", "I20", "I21", "I22")
_CONFIGS = {DURABLE: {"flush.messages": "1"}, UNCLEAN: {"unclean.leader.election.enable": "true"}, PLAIN: {}}
#: The count of scenarios with unclean elections in which one happened.
_UNCLEAN_ELECTION = "unclean election"
#: The count of partitions whose ISR members all know that they lost records. The administrator elects another replica
#: for such a partition, as docs/OPERATIONS.md says, and the cluster must recover after that.
_GIVEN_UP = "given up"
_GIVEN_UP_AFTER_NS = 20 * NS_PER_S
#: The count of scenarios with a compacted topic in which compaction removed a record.
_COMPACTION = "compaction"
_TOPICS_WITHIN_S = 60
#: The time limits of a full recovery and of the release of resources. All replicas must be in sync, and all requests
#: answered.
_WHOLE_WITHIN_S = 60
_WHOLE_WITHIN_NS = _WHOLE_WITHIN_S * NS_PER_S
_LET_GO_S = 15
#: The time in which a recovered cluster must accept a record and an offset. Some brokers have only just learned of a
#: leader.
_SERVES_WITHIN_S = 30
#: The time until the cluster is idle before the first fault.
_AT_REST_AFTER_S = 3
_LOOK_EVERY_S = 1.0
#: The settings of brokers with two log directories. Moves take a few seconds, so that other faults hit them.
_TWO_LOG_DIRS = {"log_dirs": ("/data", "/other"), "replica_alter_log_dirs_io_max_bytes_per_second": 5_000}
#: Settings of scenarios with compaction. The log of committed offsets is compacted as well.
_CLEANING = {"log_cleaner_enable": True, "log_cleaner_backoff_ms": 2_000, "offsets_topic_segment_bytes": 4096}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one scenario.

    wrong            the failures, one text each; empty if there are none
    rows             the number of observations of each invariant; empty if the simulation failed before the verdict
    digest           a checksum of the trace; two runs of one scenario have the same digest
    simulated_s      the virtual time from the start of the brokers to the end
    messages         the number of messages that arrived
    turns            the number of turns of all event loops
    fault_counts     how often faults were drawn and had an effect
    failed_after_s   the time from the start of the workload until a violation was found; None: not before the end
    """

    scenario: Scenario
    wrong: tuple[str, ...]
    rows: tuple[tuple[str, int], ...]
    digest: str
    simulated_s: float
    messages: int
    turns: int
    fault_counts: FaultCounts
    failed_after_s: float | None = None

    @property
    def kinds(self) -> frozenset[str]:
        """Return the kinds of the failures, without details. A shortened scenario must still show one of them."""
        return frozenset(each.split(" ", 1)[0].rstrip(":") for each in self.wrong)


class _Lines:
    """The history of one process. Each event goes to the checker at once, and into the trace."""

    def __init__(self, checker: Checker, source: Source, trace: Trace) -> None:
        self._checker = checker
        self._source = source
        self._trace = trace

    def write(self, event: Event) -> None:
        self._trace.event(self._source.name, event)
        self._checker.take(self._source, event)

    def close(self) -> None: ...


class Run:
    """One simulation, to be executed once. The caller ends its processes with `cluster.vanish` afterwards.

    show   receives each line of the trace
    """

    def __init__(self, scenario: Scenario, show: Callable[[str], object] | None = None) -> None:
        self.scenario = scenario
        self.trace = Trace(show)
        self._topics = (*TOPICS, COMPACTED) if scenario.compacted else TOPICS
        self._tps = tuple(tp for topic in self._topics for tp in topic.tps)
        self._compacted = frozenset(topic.name for topic in self._topics if topic.is_compacted)
        self.checker = Checker(self._compacted)
        self._brokers: dict[tuple[int, int], _Lines] = {}
        configs = _CONFIGS[scenario.promises]
        durable = scenario.promises == DURABLE
        self.cluster = Cluster(
            scenario.seed,
            brokers=scenario.brokers,
            trace=self.trace,
            settings={
                **(_CLEANING if scenario.compacted else {}),
                **(_TWO_LOG_DIRS if scenario.two_log_dirs else {}),
            },
            configs=configs if durable else {},
            keep=self._keep,
            on_write=lambda broker_id, write: self.nemesis.take_write(broker_id, write),
        )
        self.durability = DurabilityModel(
            self.cluster,
            waits_for_disk=durable,
            on_unclean_election=self._give_up_records if scenario.promises == UNCLEAN else lambda: None,
        )
        self.admin_operations = AdminOperations(self.cluster)
        self.nemesis = Nemesis(self.cluster, self.durability, self.admin_operations)
        self.workload = Workload(self.cluster, self._open_history, self._topics, configs)
        self.wrong: list[str] = []
        self._judged = JUDGED
        if scenario.promises == UNCLEAN:
            self.nemesis.fault_counts.draw([_UNCLEAN_ELECTION])
        if scenario.compacted:
            self.nemesis.fault_counts.draw([_COMPACTION])
        self._at_rest: dict[int, Resources] = {}
        self._begun_ns = self._healed_ns = self._whole_ns = 0
        self._failed_after_s: float | None = None

    def execute(self) -> Outcome:
        """Simulate the scenario, heal all faults, check the invariants, and return the outcome.

        A violation found during the workload ends the simulation without healing. Uncaught errors of processes are
        added to the failures at the end. Defects of the cluster never raise an exception.
        """
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
        self.nemesis.settle()
        network, timeline = self.cluster.network, self.cluster.timeline
        return Outcome(
            self.scenario,
            tuple(self.wrong),
            rows,
            f"{self.trace.digest:08x}-{network.delivered:08x}",
            timeline.now_ns / 1e9,
            network.messages,
            timeline.turns,
            self.nemesis.fault_counts,
            self._failed_after_s,
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
        cluster.run(_AT_REST_AFTER_S)
        for broker in cluster.brokers.values():
            if (held := broker.resources("baseline")) is not None:
                self._at_rest[broker.broker_id] = held
        # The controller and the coordinators have more tasks than other brokers, and these roles move.
        most = max((held.tasks for held in self._at_rest.values()), default=0)
        self._at_rest = {broker_id: replace(held, tasks=most) for broker_id, held in self._at_rest.items()}
        self._begun_ns = cluster.timeline.now_ns
        for place, kind in enumerate(self.scenario.clients):
            client = cluster.client()
            if kind:
                self.workload.start(client, place, kind)
        for fault in self.scenario.faults:
            cluster.later(fault.at_ms, partial(self.nemesis.inject, fault))

    def _middle(self) -> None:
        end_ns = self.cluster.timeline.now_ns + round(self.scenario.seconds * 1e9)
        while self.cluster.timeline.now_ns < end_ns and not self.wrong:
            self.cluster.run(min(_LOOK_EVERY_S, (end_ns - self.cluster.timeline.now_ns) / 1e9))
            self._look()
        if self.wrong:
            self._failed_after_s = (self.cluster.timeline.now_ns - self._begun_ns) / 1e9

    def _heal(self) -> None:
        self.trace.add("heal")
        self.nemesis.heal()
        self.workload.end()
        cluster = self.cluster
        healed_ns = self._healed_ns = cluster.timeline.now_ns
        while cluster.timeline.now_ns < healed_ns + _WHOLE_WITHIN_NS and not self.wrong:
            for broker in cluster.brokers.values():
                broker.start()
            cluster.run(_LOOK_EVERY_S)
            self._look()
            if not self._whole_ns and not list(self._out_of_sync()):
                self._whole_ns = cluster.timeline.now_ns
                self._ask_to_serve()
            if self.admin_operations.idle and cluster.timeline.now_ns >= healed_ns + _GIVEN_UP_AFTER_NS:
                self._give_up_without_hope()
            if self._whole_ns and self._all_ended and not [*self._not_alike(), *self._left_behind()]:
                break
        else:
            if not self._all_ended:
                self.wrong.append(f"hanging-clients: not finished within {_WHOLE_WITHIN_S} s")
            if broken := [*self._out_of_sync(), *self._not_alike(), *self._left_behind()]:
                self.wrong.append(f"not-whole: after {_WHOLE_WITHIN_S} s: {'; '.join(broken)}")
        self._until_at_rest()
        self._count_what_is_left()

    def _ask_to_serve(self) -> None:
        """Check that the cluster accepts writes, because identical logs do not prove that. A refusal ends the
        simulation.
        """
        client = self.cluster.client()
        work = self.workload.ask_to_serve(client, _SERVES_WITHIN_S * 1000)
        # the client reports its own cause before this time limit
        self._within("not-serving", client, work, 2 * _SERVES_WITHIN_S)

    def _judge(self) -> Verdict:
        """Read the final logs, check the rest of the invariants, note their violations in `wrong`, and return the
        verdict.
        """
        cluster = self.cluster
        reader = cluster.client()

        async def read() -> list[FinalLog]:
            environment = ClientEnvironment(clock=reader.clock, opener=reader.open, rng=Random(1))
            async with environment.create(
                Consumer, cluster.bootstrap, client_id="final-read", auto_offset_reset="none"
            ) as consumer:
                return await read_leaders(consumer, self._tps)

        logs: dict[TopicPartition, list[FinalLog]] = {tp: [] for tp in self._tps}
        for log in self._within("final-read", reader, read(), 60):
            logs[log.tp].append(log)
        for broker in cluster.brokers.values():
            for tp in self._tps:
                if (replica := broker.replica(tp)) is not None:
                    logs[tp].append(replica_log(replica, broker.broker_id))
        if any(_has_gaps(log) for tp in COMPACTED.tps for log in logs.get(tp, ())):
            self.nemesis.fault_counts.bite([_COMPACTION])
        window = Window(
            "the scenario", self._begun_ns, self._healed_ns, self._whole_ns, most_healing_ns=_WHOLE_WITHIN_NS
        )
        verdict = self.checker.conclude(Ending(logs, [window], self._compacted)).only(self._judged)
        self.wrong += [str(finding) for finding in verdict.findings]
        return verdict

    # --- looking -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Note the violations that the checker has found since the last look, of the invariants that apply."""
        self.wrong += [str(each) for each in self.checker.new_findings() if each.invariant in self._judged]

    def _give_up_records(self) -> None:
        """Switch to the invariants of an unclean election, after checking everything until now by the full set.

        A second call has no effect.
        """
        if self._judged == JUDGED:
            self._look()
            self._judged = LINEAGE
            self.nemesis.fault_counts.bite([_UNCLEAN_ELECTION])

    @property
    def _all_ended(self) -> bool:
        return self.workload.ended and self.admin_operations.idle

    def _out_of_sync(self) -> Iterator[str]:
        """Yield the differences from a fully recovered cluster, in words.

        Differences are brokers that do not serve, unfinished reassignments, and partitions without exactly one leader
        or with replicas out of sync. The temporary topic does not count.
        """
        for broker in self.cluster.brokers.values():
            if not broker.serves:
                yield f"{broker} is not running ({broker.failure!r})"
        topics = [topic for topic in self._topics_there() if topic.topic != TEMPORARY_TOPIC]
        for topic in topics:
            if topic.adding or topic.removing:
                yield f"{topic.topic} is still being reassigned"
        for tp in (tp for topic in topics for tp in topic.topic_partitions()):
            leaders = [each.partition for each in self._replicas(tp) if each.partition.is_leader]
            if len(leaders) != 1:
                yield f"{tp} has {len(leaders)} leaders"
            elif len(leaders[0].isr) != len(leaders[0].replicas):
                yield f"{tp} has {list(leaders[0].isr)} of {list(leaders[0].replicas)} in sync"

    def _give_up_without_hope(self) -> None:
        """Begin unclean elections for the partitions without a leader whose ISR members all know that they lost
        records.
        """
        if given_up := list(self._without_hope()):
            self.nemesis.fault_counts.draw([_GIVEN_UP])
            self.nemesis.fault_counts.bite([_GIVEN_UP])
            self.admin_operations.give_up(given_up)

    def _without_hope(self) -> Iterator[TopicPartition]:
        """Yield the partitions without a leader whose ISR members all serve, and have no log or know that it lost
        records.
        """
        for tp in (tp for topic in self._topics_there() for tp in topic.topic_partitions()):
            try:
                state = decode_state(self.cluster.zookeeper.node(state_path(tp)).data)
            except NoNodeError:
                continue
            if state.leader == NO_LEADER and all(self.cluster.brokers[each].lacks(tp) for each in state.isr):
                yield tp

    def _not_alike(self) -> Iterator[str]:
        """Yield, in words, the partitions whose replicas differ in log end or high watermark after the last write."""
        for tp in self._tps:
            replicas = self._replicas(tp)
            high_watermark = max((each.partition.high_watermark for each in replicas), default=0)
            if any(each.log.log_end_offset != high_watermark for each in replicas):
                yield f"{tp} has records above the high watermark"
            elif any(each.partition.high_watermark != high_watermark for each in replicas):
                yield f"followers of {tp} have an older high watermark"

    def _left_behind(self) -> Iterator[str]:
        """Yield, in words, what brokers still have of deleted topics and of partitions that were reassigned to others.

        Such remains are served replicas, logs, and metadata of topics.
        """
        topics = self._topics_there()
        for broker in self.cluster.brokers.values():
            if not broker.serves or broker.broker is None:
                continue
            replicas, me = broker.broker.replicas, broker.broker_id
            its_own = {
                (tp, topic.topic_id)
                for topic in topics
                for tp in topic.topic_partitions()
                if me in topic.partitions[tp.partition]
            }
            served = {(replica.topic_partition, replica.topic_id) for replica in replicas}
            yield from (f"{broker} still serves {tp} of id {topic_id}" for tp, topic_id in sorted(served - its_own))
            kept = {tp for sizes in replicas.log_sizes().values() if isinstance(sizes, dict) for tp in sizes}
            yield from (f"{broker} still has a log of {tp}" for tp in sorted(kept - {tp for tp, _ in its_own}))
            known = {state.topic for state in replicas.metadata.partitions} - {topic.topic for topic in topics}
            yield from (f"{broker} still has metadata of {topic}" for topic in sorted(known))

    def _topics_there(self) -> list[TopicAssignment]:
        """Return the topics as ZooKeeper stores them, in order of their names, without configs."""
        zookeeper = self.cluster.zookeeper
        names = sorted(zookeeper.node(BROKER_TOPICS).children)
        return [decode_topic(name, zookeeper.node(topic_path(name)).data, {}) for name in names]

    def _replicas(self, tp: TopicPartition) -> list[Replica]:
        return [each for broker in self.cluster.brokers.values() if (each := broker.replica(tp)) is not None]

    def _until_at_rest(self) -> None:
        """Run until each broker holds no more resources than before the workload, for at most _LET_GO_S."""
        for _ in range(_LET_GO_S):
            self.cluster.run(1)
            if all(self._is_at_rest(broker) for broker in self.cluster.brokers.values()):
                return

    def _is_at_rest(self, broker: SimulatedBroker) -> bool:
        before, left = self._at_rest.get(broker.broker_id), broker.resources("healed")
        if before is None or left is None:
            return True
        return left.fds <= before.fds and left.purgatory <= before.purgatory and left.tasks <= before.tasks

    def _count_what_is_left(self) -> None:
        """Record each serving broker's resources from before the workload and after it, for the checker.

        Both are recorded in the broker's present process, because the checker compares within one process.
        """
        for broker in self.cluster.brokers.values():
            before, left = self._at_rest.get(broker.broker_id), broker.resources("healed")
            if before is not None and left is not None:
                self._keep(broker.broker_id, replace(before, t=left.t))
                self._keep(broker.broker_id, left)

    def _until(self, what: str, condition: Callable[[], bool], within_s: float) -> None:
        """Run until the condition holds. Raise _Ended after the time limit."""
        if not self.cluster.run_until(condition, within_s):
            raise _Ended(f"{what}: not done within {within_s:g} s")

    def _within(self, what: str, client: ClientProcess, work: Coroutine[Any, Any, T], within_s: float) -> T:
        """Run the work of a client and return its result. Raise _Ended if the work fails or exceeds the time limit."""
        try:
            return self.cluster.within(client, work, within_s)
        except Exception as error:
            raise _Ended(f"{what}: {error!r}") from error

    # --- histories ---------------------------------------------------------------------------------------------

    def _open_history(self, header: Client) -> _Lines:
        return _Lines(self.checker, self.checker.begin(header), self.trace)

    def _keep(self, broker_id: int, event: BrokerEvent) -> None:
        """Pass an event of a broker's history to the durability model, the nemesis, the checker and the trace.

        Events of the temporary topic are dropped.
        """
        tp: TopicPartition | None = getattr(event, "tp", None)
        if tp is not None and tp.topic == TEMPORARY_TOPIC:
            # topics of this name are created again and again, but a history identifies a topic by its name alone
            return
        self.durability.take(event)
        self.nemesis.take(broker_id, event)
        life = self.cluster.brokers[broker_id].lives
        lines = self._brokers.get((broker_id, life))
        if lines is None:
            source = self.checker.begin(Broker(str(broker_id), self.cluster.timeline.now_ns))
            lines = self._brokers[broker_id, life] = _Lines(self.checker, source, self.trace)
        lines.write(event)


def _has_gaps(log: FinalLog) -> bool:
    """Return whether the log has fewer records than offsets, because compaction has removed some."""
    return len(log.offsets) < log.leo - log.log_start


class _Ended(Exception):
    """The simulation cannot continue; the text is its failure."""
