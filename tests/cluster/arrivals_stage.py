"""Random scenarios of the controller: brokers register, answer, die and return while others are still being asked.

The stage separates all steps that the network separates. ZooKeeper applies a write now, and the controller learns it
later. A broker reads its log now, and its answer arrives later. A registration exists in ZooKeeper, and the controller
reads it later. A step of a scenario is one such event.

Each election of a replica that may lack records is compared with a twin that knows every log (`arrivals_twin`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

from cluster.controller.controller import Controller
from cluster.controller.effects import (
    AskLogEnds,
    ClearPossiblyShort,
    CloseChannel,
    Effect,
    OpenChannel,
    SendLeaderAndIsr,
    SendMetadata,
    SendStopReplica,
    WriteOutcome,
    WriteRefused,
    Written,
)
from cluster.state import BrokerRegistration, PartitionState, TopicAssignment, VersionedState, WriteState
from tests.cluster.arrivals_brokers import (
    BROKERS,
    OUTSIDER,
    PARTITIONS,
    TIMEOUT_MS,
    UNCLEAN_ELECTION,
    Asked,
    Channel,
    Log,
    Process,
)
from tests.cluster.arrivals_twin import Twin
from tests.cluster.controller_stage import broker
from tidelog.model import NO_LEADER, TopicPartition


class Stage:
    """Four brokers, ZooKeeper, and a sequence of controllers."""

    def __init__(self, rng: random.Random, *, unclean: bool) -> None:
        self.rng = rng
        self.unclean = unclean
        self.now_ms = 0
        self.numbers = 100
        self.controller_epoch = 0
        self.controller_id = OUTSIDER
        self.tps = [TopicPartition("t", number) for number in PARTITIONS]
        configs = {UNCLEAN_ELECTION: "true"} if unclean else {}
        self.topic = TopicAssignment("t", "id", PARTITIONS, configs, version=0)
        # The state in ZooKeeper.
        self.registered: dict[int, BrokerRegistration] = {}
        self.states: dict[TopicPartition, VersionedState] = {}
        self.history: dict[tuple[TopicPartition, int], PartitionState] = {}
        # The brokers' processes: the one that is or was last, and each by its registration.
        self.processes: dict[int, Process] = {}
        self.lives: dict[int, Process] = {}
        # The requests and writes without an answer yet.
        self.channels: dict[int, Channel] = {}
        self.writes: list[WriteState] = []
        self.outcomes: list[WriteOutcome] = []
        self.isr_news: list[TopicPartition] = []
        self.elections = 0
        self.log: list[str] = []
        for broker_id in BROKERS:
            self._start(broker_id)
        self.begin_term(OUTSIDER)
        self.play(self.controller.topics_created([self.topic]))
        self.deliver_all()

    # --- the controller --------------------------------------------------------------------------------------

    def begin_term(self, controller_id: int) -> None:
        """Let another controller read ZooKeeper. Writes of the previous one are refused from now on."""
        if controller_id != OUTSIDER and not self.processes[controller_id].runs:
            return
        self.controller_id = controller_id
        self.controller_epoch += 1
        self.channels.clear()
        self.writes.clear()
        self.outcomes.clear()
        self.twin = Twin(self)
        self.controller = Controller(controller_id, self.controller_epoch, recovery_timeout_ms=TIMEOUT_MS)
        self.twin.on_registrations(self.registered)
        topics = {"t": self.topic} if self.states else {}
        self.play(self.controller.begin(dict(self.registered), topics, dict(self.states)))

    def play(self, effects: Iterable[Effect]) -> None:
        """Perform the controller's effects. Requests and writes are under way from now on."""
        for effect in effects:
            match effect:
                case WriteState():
                    self.twin.choose_recovery_leader(effect)
                    self.writes.append(effect)
                case OpenChannel(registration):
                    self.channels[registration.broker_id] = Channel(registration.epoch)
                case CloseChannel(broker_id):
                    self.channels.pop(broker_id, None)
                case SendMetadata(broker_ids):
                    for broker_id in broker_ids:
                        self._send(broker_id)
                case SendLeaderAndIsr(broker_id) | SendStopReplica(broker_id):
                    self._send(broker_id)
                case AskLogEnds(broker_id, tps):
                    self.twin.on_request(broker_id, tps)
                    self._send(broker_id, tps)
                case ClearPossiblyShort(registration):
                    self.clear_mark(registration)

    def _send(self, broker_id: int, tps: tuple[TopicPartition, ...] = ()) -> None:
        self.channels[broker_id].under_way.append(Asked(self.controller.liveness.epoch, self.twin.moment, tps))

    def clear_mark(self, registration: BrokerRegistration) -> None:
        """Clear the mark of the registration, if it is still that one."""
        known = self.registered.get(registration.broker_id)
        if known is not None and known.epoch == registration.epoch:
            self.registered[registration.broker_id] = replace(known, possibly_short=False)
            self.lives[registration.epoch].short = False

    # --- brokers ---------------------------------------------------------------------------------------------

    def _start(self, broker_id: int, *, short: bool = False, lacks: bool = False) -> None:
        before = self.processes.get(broker_id)
        hosted = [tp for tp in self.tps if broker_id in PARTITIONS[tp.partition]]
        logs = dict(before.logs) if before else dict.fromkeys(hosted, ())
        self.numbers += 1
        registration = replace(broker(broker_id, self.numbers), possibly_short=short)
        process = Process(registration, logs, short, lacks)
        self.processes[broker_id] = self.lives[registration.epoch] = process
        self.registered[broker_id] = registration

    def come(self, broker_id: int) -> None:
        """Start a process, which registers. If its machine went down, the registration says so."""
        dead = self.processes[broker_id]
        if not dead.runs:
            self._start(broker_id, short=dead.short, lacks=dead.lacks)

    def kill(self, broker_id: int) -> None:
        """Kill the process. Its log and, for a while, its registration stay."""
        self.processes[broker_id].runs = False
        if self.controller_id == broker_id:
            self.begin_term(OUTSIDER)

    def crash(self, broker_id: int) -> None:
        """Crash the machine. A few records that were not flushed are lost."""
        process = self.processes[broker_id]
        self.kill(broker_id)
        logs: dict[TopicPartition, Log] = {}
        for tp, log in process.logs.items():
            logs[tp] = log[: max(0, len(log) - self.rng.choice((0, 0, 1, 2)))]
        # The previous process keeps its log, because it may have reported its end.
        lost_much = logs != process.logs and self.rng.random() < 0.3
        after = Process(process.registration, logs, short=True, lacks=process.lacks or lost_much, runs=False)
        self.processes[broker_id] = after

    def expire(self, broker_id: int) -> None:
        """End the session of a dead process."""
        if not self.processes[broker_id].runs:
            self.registered.pop(broker_id, None)

    def look(self) -> None:
        """Let the controller read the registrations."""
        self.twin.on_registrations(self.registered)
        self.play(self.controller.brokers_changed(dict(self.registered)))

    def read_log(self, broker_id: int) -> None:
        """Let the broker handle its oldest unanswered request."""
        channel, process = self.channels.get(broker_id), self.processes[broker_id]
        if channel is None or not process.runs or process.registration.epoch != channel.epoch:
            return
        for asked in channel.under_way:
            if asked.ends is None:
                asked.ends = {tp: process.log_end(tp) for tp in asked.tps}
                return

    def answer(self, broker_id: int) -> None:
        """Deliver the oldest answer of the broker, even if the broker has died since."""
        channel = self.channels.get(broker_id)
        if channel is None or not channel.under_way or channel.under_way[0].ends is None:
            return
        asked = channel.under_way.pop(0)
        ends = asked.ends or {}
        self.play(self.controller.broker_answered(broker_id, asked.moment))
        if ends and self.channels.get(broker_id) is channel:
            self.twin.on_answer(broker_id, ends, asked.question)
            self.play(self.controller.log_ends_reported(broker_id, ends, asked.moment))

    # --- ZooKeeper -------------------------------------------------------------------------------------------

    def apply_write(self) -> None:
        """Let ZooKeeper apply or refuse one of the writes under way. The controller does not know the outcome yet."""
        if not self.writes:
            return
        write = self.writes.pop(self.rng.randrange(len(self.writes)))
        actual = self.states.get(write.tp)
        if (-1 if actual is None else actual.partition_epoch) != write.expected:
            self.outcomes.append(WriteRefused(write.tp, actual))
            return
        self._store(write.tp, write.state, write.expected + 1)
        if self.leader(write.tp) != NO_LEADER:
            self.processes[write.state.leader].whole.add(write.tp)
        self.outcomes.append(Written(write.tp, write.expected + 1))

    def report_outcomes(self) -> None:
        """Report the outcomes of its writes to the controller."""
        outcomes, self.outcomes = self.outcomes, []
        if outcomes:
            self.play(self.controller.states_written(outcomes))

    def _store(self, tp: TopicPartition, state: PartitionState, version: int) -> None:
        self.states[tp] = VersionedState(state, version, self.numbers)
        self.history[tp, version] = state

    # --- replication -----------------------------------------------------------------------------------------

    def leader(self, tp: TopicPartition) -> int:
        """Return the broker that leads the partition and serves requests, or −1."""
        leader = self.states[tp].state.leader if tp in self.states else NO_LEADER
        return leader if leader != NO_LEADER and self._serves(leader) else NO_LEADER

    def _serves(self, broker_id: int) -> bool:
        process, channel = self.processes[broker_id], self.channels.get(broker_id)
        return process.runs and channel is not None and channel.epoch == process.registration.epoch

    def append(self, tp: TopicPartition) -> None:
        """Let the leader append a record."""
        leader = self.leader(tp)
        if leader != NO_LEADER:
            self.numbers += 1
            record = (self.states[tp].state.leader_epoch, self.numbers)
            self.processes[leader].logs[tp] += (record,)

    def copy(self, tp: TopicPartition, follower: int) -> None:
        """Let a follower copy the leader's log, and the leader add it to the ISR."""
        leader = self.leader(tp)
        if leader in (NO_LEADER, follower) or follower not in PARTITIONS[tp.partition] or not self._serves(follower):
            return
        self.processes[follower].logs[tp] = self.processes[leader].logs[tp]
        self.processes[follower].whole.add(tp)
        self.change_isr(tp, (*self.states[tp].state.isr, follower))

    def drop(self, tp: TopicPartition, follower: int) -> None:
        """Let the leader remove a follower from the ISR."""
        if self.leader(tp) not in (NO_LEADER, follower):
            self.change_isr(tp, tuple(each for each in self.states[tp].state.isr if each != follower))

    def change_isr(self, tp: TopicPartition, isr: tuple[int, ...]) -> None:
        known = self.states[tp]
        isr = tuple(dict.fromkeys(isr))
        if isr != known.state.isr:
            self._store(tp, replace(known.state, isr=isr, eligible=()), known.partition_epoch + 1)
            self.isr_news.append(tp)

    def read_isr(self) -> None:
        """Let the controller read ISRs that leaders have changed."""
        tps, self.isr_news = self.isr_news, []
        if tps:
            self.play(self.controller.states_read({tp: self.states[tp] for tp in tps}, {"t": "id"}))

    # --- time ------------------------------------------------------------------------------------------------

    def wait(self, ms: int) -> None:
        self.play(self.controller.time_passed(self.now_ms))
        self.now_ms += ms
        self.play(self.controller.time_passed(self.now_ms))

    def deliver_all(self) -> None:
        """Deliver everything that is under way, until nothing is."""
        for _ in range(60):
            self.look()
            self.read_isr()
            while self.writes:
                self.apply_write()
            self.report_outcomes()
            for broker_id in BROKERS:
                for _ in range(len(self.channels[broker_id].under_way) if broker_id in self.channels else 0):
                    self.read_log(broker_id)
                    self.answer(broker_id)
            if not self.writes and not self.outcomes and not self._answerable():
                return
        raise AssertionError("the controller does not come to rest")

    def _answerable(self) -> bool:
        return any(self.channels[b].under_way and self._serves(b) for b in BROKERS if b in self.channels)

    def recover(self) -> None:
        """Bring all brokers back and let them answer; every partition then has a leader again."""
        for broker_id in BROKERS:
            self.come(broker_id)
        for _ in range(4):
            self.deliver_all()
            self.wait(TIMEOUT_MS)
        self.deliver_all()
        for tp in self.tps:
            if not self._all_in_sync_lack(tp):
                assert self.leader(tp) != NO_LEADER, f"{tp} has no leader: {self.states[tp]}"

    def request_unclean_election(self, tp: TopicPartition) -> None:
        """Request an unclean election, as an operator does."""
        if tp in self.states and self.states[tp].state.leader == NO_LEADER:
            self.twin.requested.add(tp)
            self.play(self.controller.elections_wanted([tp], unclean=True))

    def _all_in_sync_lack(self, tp: TopicPartition) -> bool:
        return not self.unclean and all(self.processes[each].may_lack(tp) for each in self.states[tp].state.isr)

    # --- scenarios -------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Draw an event and perform it."""
        names = list(STEPS)
        name = self.rng.choices(names, [STEPS[each] for each in names])[0]
        broker_id, tp = self.rng.choice(BROKERS), self.rng.choice(self.tps)
        self.log.append(f"{name} {broker_id} {tp.partition}")
        EVENTS[name](self, broker_id, tp)

    def diverge_logs(self) -> None:
        """Give every partition an ISR of one or two members, and the other logs different ends."""
        for tp in self.tps:
            for follower in PARTITIONS[tp.partition]:
                for _ in range(self.rng.randrange(3)):
                    self.append(tp)
                if self.rng.random() < 0.6:
                    self.copy(tp, follower)
            for follower in PARTITIONS[tp.partition]:
                if self.rng.random() < 0.6:
                    self.drop(tp, follower)
            self.append(tp)
            for follower in self.states[tp].state.isr:
                self.copy(tp, follower)
        self.read_isr()
        self.deliver_all()


EVENTS: dict[str, Callable[[Stage, int, TopicPartition], object]] = {
    "append": lambda stage, broker_id, tp: stage.append(tp),
    "copy": lambda stage, broker_id, tp: stage.copy(tp, broker_id),
    "drop": lambda stage, broker_id, tp: stage.drop(tp, broker_id),
    "kill": lambda stage, broker_id, tp: stage.kill(broker_id),
    "crash": lambda stage, broker_id, tp: stage.crash(broker_id),
    "expire": lambda stage, broker_id, tp: stage.expire(broker_id),
    "come": lambda stage, broker_id, tp: stage.come(broker_id),
    "look": lambda stage, broker_id, tp: stage.look(),
    "read log": lambda stage, broker_id, tp: stage.read_log(broker_id),
    "answer": lambda stage, broker_id, tp: stage.answer(broker_id),
    "apply write": lambda stage, broker_id, tp: stage.apply_write(),
    "tell outcomes": lambda stage, broker_id, tp: stage.report_outcomes(),
    "read isr": lambda stage, broker_id, tp: stage.read_isr(),
    "wait": lambda stage, broker_id, tp: stage.wait(1500),
    "wait long": lambda stage, broker_id, tp: stage.wait(TIMEOUT_MS),
    "request_unclean_election": lambda stage, broker_id, tp: stage.request_unclean_election(tp),
    "another controller": lambda stage, broker_id, tp: stage.begin_term(stage.rng.choice((OUTSIDER, broker_id))),
    "calm down": lambda stage, broker_id, tp: stage.deliver_all(),
}
STEPS = {
    "append": 3,
    "copy": 2,
    "drop": 1,
    "kill": 2,
    "crash": 3,
    "expire": 5,
    "come": 7,
    "look": 10,
    "read log": 14,
    "answer": 14,
    "apply write": 10,
    "tell outcomes": 7,
    "read isr": 2,
    "wait": 1,
    "wait long": 1,
    "request_unclean_election": 0.2,
    "another controller": 0.7,
    "calm down": 0.3,
}
