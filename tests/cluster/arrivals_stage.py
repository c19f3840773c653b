"""Random stories of the controller: brokers register, answer, die and return while others are still being asked.

The stage keeps everything apart that the network keeps apart. ZooKeeper applies a write now and tells the controller
later; a broker reads its log now and its answer arrives later; a registration stands in ZooKeeper and the controller
reads it later. A step of a story is one such event.

Each election of a replica that may lack records is compared with a twin that knows every log (`Twin`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from cluster.controller import Controller
from cluster.doubt import LogEnd
from cluster.effects import (
    Absolve,
    AskLogEnds,
    CloseChannel,
    Effect,
    OpenChannel,
    SendLeaderAndIsr,
    SendMetadata,
    SendStopReplica,
    WriteOutcome,
    WriteRefused,
    WriteState,
    Written,
)
from cluster.state import BrokerRegistration, PartitionState, TopicAssignment, VersionedState
from tests.cluster.controller_stage import broker
from tidelog.model import NO_LEADER, TopicPartition

#: Replicas of each partition. Every two partitions share brokers, so that a write of one delays who hosts another.
PARTITIONS = {0: (1, 2, 3), 1: (2, 3, 4), 2: (4, 1, 2)}
BROKERS = (1, 2, 3, 4)
OUTSIDER = 9
TIMEOUT_MS = 300_000
UNCLEAN_ELECTION = "unclean.leader.election.enable"

#: A record: the epoch it was written in, and its own number.
Record = tuple[int, int]
Log = tuple[Record, ...]


def reach(log: Log) -> tuple[int, int]:
    """Returns what decides between two logs: the last epoch, then the log end offset."""
    return (log[-1][0] if log else -1, len(log))


@dataclass(slots=True)
class Process:
    """One life of a broker, from its registration on.

    logs    of the partitions that it hosts, as they are, or were when it died
    short   it registered with the mark of a possibly short log
    lacks   it knows that records below its high watermark are gone
    whole   partitions that it leads, or has copied from their leader, since it registered
    """

    registration: BrokerRegistration
    logs: dict[TopicPartition, Log]
    short: bool
    lacks: bool
    runs: bool = True
    whole: set[TopicPartition] = field(default_factory=set)

    def may_lack(self, tp: TopicPartition) -> bool:
        """Returns whether records of this partition may be missing."""
        return (self.short or self.lacks) and tp not in self.whole

    def log_end(self, tp: TopicPartition) -> LogEnd:
        """Returns what the broker answers if it is asked for the end of its log."""
        epochs: dict[int, int] = {}
        for offset, (epoch, _) in enumerate(self.logs[tp]):
            epochs.setdefault(epoch, offset)
        return LogEnd(*reach(self.logs[tp]), self.lacks and tp not in self.whole, tuple(epochs.items()))


@dataclass(slots=True)
class Asked:
    """A request of the controller that is under way to a broker, and what the broker answered, if it has.

    moment    the controller's, which comes back with the answer
    question  the twin's
    """

    moment: int
    question: int
    tps: tuple[TopicPartition, ...]
    ends: Mapping[TopicPartition, LogEnd] | None = None


@dataclass(slots=True)
class Channel:
    """The controller's line to one registration."""

    epoch: int
    under_way: list[Asked] = field(default_factory=list)


class World:
    """Four brokers, ZooKeeper, and one controller after the other."""

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
        # What ZooKeeper holds.
        self.registered: dict[int, BrokerRegistration] = {}
        self.states: dict[TopicPartition, VersionedState] = {}
        self.history: dict[tuple[TopicPartition, int], PartitionState] = {}
        # The brokers' processes: the one that is or was last, and each by its registration.
        self.processes: dict[int, Process] = {}
        self.lives: dict[int, Process] = {}
        # What is under way.
        self.channels: dict[int, Channel] = {}
        self.writes: list[WriteState] = []
        self.outcomes: list[WriteOutcome] = []
        self.isr_news: list[TopicPartition] = []
        self.elections = 0
        self.log: list[str] = []
        for broker_id in BROKERS:
            self._start(broker_id)
        self.reign(OUTSIDER)
        self.play(self.controller.topics_created([self.topic]))
        self.calm_down()

    # --- the controller --------------------------------------------------------------------------------------

    def reign(self, controller_id: int) -> None:
        """Another controller reads what ZooKeeper holds. The writes of the one before are refused from now on."""
        if controller_id != OUTSIDER and not self.processes[controller_id].runs:
            return
        self.controller_id = controller_id
        self.controller_epoch += 1
        self.channels.clear()
        self.writes.clear()
        self.outcomes.clear()
        self.twin = Twin(self)
        self.controller = Controller(controller_id, self.controller_epoch, doubt_timeout_ms=TIMEOUT_MS)
        self.twin.sees(self.registered)
        topics = {"t": self.topic} if self.states else {}
        self.play(self.controller.begin(dict(self.registered), topics, dict(self.states)))

    def play(self, effects: list[Effect]) -> None:
        """Does what the controller wants. Requests and writes are under way from now on."""
        for effect in effects:
            match effect:
                case WriteState():
                    self.twin.judge(effect)
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
                    self.twin.asks(broker_id, tps)
                    self._send(broker_id, tps)
                case Absolve(registration):
                    self.absolve(registration)

    def _send(self, broker_id: int, tps: tuple[TopicPartition, ...] = ()) -> None:
        self.channels[broker_id].under_way.append(Asked(self.controller.signs.now, self.twin.moment, tps))

    def absolve(self, registration: BrokerRegistration) -> None:
        """The mark is taken from the registration, if it still is that one."""
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
        """A process starts and registers. If its machine went down, the registration says so."""
        dead = self.processes[broker_id]
        if not dead.runs:
            self._start(broker_id, short=dead.short, lacks=dead.lacks)

    def kill(self, broker_id: int) -> None:
        """The process dies. Its log and, for a while, its registration stay."""
        self.processes[broker_id].runs = False
        if self.controller_id == broker_id:
            self.reign(OUTSIDER)

    def crash(self, broker_id: int) -> None:
        """The machine goes down, and a few records that were not synced are gone."""
        process = self.processes[broker_id]
        self.kill(broker_id)
        logs: dict[TopicPartition, Log] = {}
        for tp, log in process.logs.items():
            logs[tp] = log[: max(0, len(log) - self.rng.choice((0, 0, 1, 2)))]
        # The process before keeps what it had, because it may have told of it.
        lost_much = logs != process.logs and self.rng.random() < 0.3
        after = Process(process.registration, logs, short=True, lacks=process.lacks or lost_much, runs=False)
        self.processes[broker_id] = after

    def expire(self, broker_id: int) -> None:
        """The session of a dead process ends."""
        if not self.processes[broker_id].runs:
            self.registered.pop(broker_id, None)

    def look(self) -> None:
        """The controller reads the registrations."""
        self.twin.sees(self.registered)
        self.play(self.controller.brokers_changed(dict(self.registered)))

    def read_log(self, broker_id: int) -> None:
        """The broker takes up the oldest request that it has not answered yet."""
        channel, process = self.channels.get(broker_id), self.processes[broker_id]
        if channel is None or not process.runs or process.registration.epoch != channel.epoch:
            return
        for asked in channel.under_way:
            if asked.ends is None:
                asked.ends = {tp: process.log_end(tp) for tp in asked.tps}
                return

    def answer(self, broker_id: int) -> None:
        """The oldest answer of the broker arrives, also if the broker has died since it answered."""
        channel = self.channels.get(broker_id)
        if channel is None or not channel.under_way or channel.under_way[0].ends is None:
            return
        asked = channel.under_way.pop(0)
        ends = asked.ends or {}
        self.play(self.controller.broker_answered(broker_id, asked.moment))
        if ends and self.channels.get(broker_id) is channel:
            self.twin.hears(broker_id, ends, asked.question)
            self.play(self.controller.log_ends_told(broker_id, ends, asked.moment))

    # --- ZooKeeper -------------------------------------------------------------------------------------------

    def apply_write(self) -> None:
        """ZooKeeper applies or refuses one of the writes that are under way; the controller does not know yet."""
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

    def tell_outcomes(self) -> None:
        """The controller learns what became of its writes."""
        outcomes, self.outcomes = self.outcomes, []
        if outcomes:
            self.play(self.controller.states_written(outcomes))

    def _store(self, tp: TopicPartition, state: PartitionState, version: int) -> None:
        self.states[tp] = VersionedState(state, version, self.numbers)
        self.history[tp, version] = state

    # --- replication -----------------------------------------------------------------------------------------

    def leader(self, tp: TopicPartition) -> int:
        """Returns who leads the partition and serves others, −1 if nobody does."""
        leader = self.states[tp].state.leader if tp in self.states else NO_LEADER
        return leader if leader != NO_LEADER and self._serves(leader) else NO_LEADER

    def _serves(self, broker_id: int) -> bool:
        process, channel = self.processes[broker_id], self.channels.get(broker_id)
        return process.runs and channel is not None and channel.epoch == process.registration.epoch

    def append(self, tp: TopicPartition) -> None:
        """The leader appends a record."""
        leader = self.leader(tp)
        if leader != NO_LEADER:
            self.numbers += 1
            record = (self.states[tp].state.leader_epoch, self.numbers)
            self.processes[leader].logs[tp] += (record,)

    def copy(self, tp: TopicPartition, follower: int) -> None:
        """A follower takes over the leader's log, and the leader lets it into the ISR."""
        leader = self.leader(tp)
        if leader in (NO_LEADER, follower) or follower not in PARTITIONS[tp.partition] or not self._serves(follower):
            return
        self.processes[follower].logs[tp] = self.processes[leader].logs[tp]
        self.processes[follower].whole.add(tp)
        self.change_isr(tp, (*self.states[tp].state.isr, follower))

    def drop(self, tp: TopicPartition, follower: int) -> None:
        """The leader takes a follower out of the ISR."""
        if self.leader(tp) not in (NO_LEADER, follower):
            self.change_isr(tp, tuple(each for each in self.states[tp].state.isr if each != follower))

    def change_isr(self, tp: TopicPartition, isr: tuple[int, ...]) -> None:
        known = self.states[tp]
        isr = tuple(dict.fromkeys(isr))
        if isr != known.state.isr:
            self._store(tp, replace(known.state, isr=isr, eligible=()), known.partition_epoch + 1)
            self.isr_news.append(tp)

    def read_isr(self) -> None:
        """The controller reads what leaders have changed."""
        tps, self.isr_news = self.isr_news, []
        if tps:
            self.play(self.controller.states_read({tp: self.states[tp] for tp in tps}, {"t": "id"}))

    # --- time ------------------------------------------------------------------------------------------------

    def wait(self, ms: int) -> None:
        self.play(self.controller.time_passed(self.now_ms))
        self.now_ms += ms
        self.play(self.controller.time_passed(self.now_ms))

    def calm_down(self) -> None:
        """Everything that is under way arrives, until nothing is."""
        for _ in range(60):
            self.look()
            self.read_isr()
            while self.writes:
                self.apply_write()
            self.tell_outcomes()
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
        """In the end everybody is back and answers; then every partition has a leader again."""
        for broker_id in BROKERS:
            self.come(broker_id)
        for _ in range(4):
            self.calm_down()
            self.wait(TIMEOUT_MS)
        self.calm_down()
        for tp in self.tps:
            if not self._all_in_sync_lack(tp):
                assert self.leader(tp) != NO_LEADER, f"nobody leads {tp}: {self.states[tp]}"

    def wish(self, tp: TopicPartition) -> None:
        """Somebody asks for an unclean election."""
        if tp in self.states and self.states[tp].state.leader == NO_LEADER:
            self.twin.wished.add(tp)
            self.play(self.controller.elections_wanted([tp], unclean=True))

    def _all_in_sync_lack(self, tp: TopicPartition) -> bool:
        return not self.unclean and all(self.processes[each].may_lack(tp) for each in self.states[tp].state.isr)

    # --- stories ---------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Draws an event and lets it happen."""
        names = list(STEPS)
        name = self.rng.choices(names, [STEPS[each] for each in names])[0]
        broker_id, tp = self.rng.choice(BROKERS), self.rng.choice(self.tps)
        self.log.append(f"{name} {broker_id} {tp.partition}")
        EVENTS[name](self, broker_id, tp)

    def part_the_logs(self) -> None:
        """Gives every partition an ISR of one or two, behind which the other logs end at different offsets."""
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
        self.calm_down()


EVENTS: dict[str, Callable[[World, int, TopicPartition], object]] = {
    "append": lambda world, broker_id, tp: world.append(tp),
    "copy": lambda world, broker_id, tp: world.copy(tp, broker_id),
    "drop": lambda world, broker_id, tp: world.drop(tp, broker_id),
    "kill": lambda world, broker_id, tp: world.kill(broker_id),
    "crash": lambda world, broker_id, tp: world.crash(broker_id),
    "expire": lambda world, broker_id, tp: world.expire(broker_id),
    "come": lambda world, broker_id, tp: world.come(broker_id),
    "look": lambda world, broker_id, tp: world.look(),
    "read log": lambda world, broker_id, tp: world.read_log(broker_id),
    "answer": lambda world, broker_id, tp: world.answer(broker_id),
    "apply write": lambda world, broker_id, tp: world.apply_write(),
    "tell outcomes": lambda world, broker_id, tp: world.tell_outcomes(),
    "read isr": lambda world, broker_id, tp: world.read_isr(),
    "wait": lambda world, broker_id, tp: world.wait(1500),
    "wait long": lambda world, broker_id, tp: world.wait(TIMEOUT_MS),
    "wish": lambda world, broker_id, tp: world.wish(tp),
    "another controller": lambda world, broker_id, tp: world.reign(world.rng.choice((OUTSIDER, broker_id))),
    "calm down": lambda world, broker_id, tp: world.calm_down(),
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
    "wish": 0.2,
    "another controller": 0.7,
    "calm down": 0.3,
}


class Twin:
    """Knows every log, and says of each election in one reign whether a better replica was passed over.

    seen      the registrations as the controller has read them
    moment    counts what the controller has heard of that was lost
    lost_at   the last moment at which a replica of a partition was lost
    asked     the moment, and the time, at which a broker was last asked for the end of a log
    heard     the moment of the last question that a broker has answered
    lacking   what the brokers have told of what they lack
    wished    partitions for which somebody has asked for an unclean election
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: dict[int, BrokerRegistration] = {}
        self.moment = 0
        self.lost_at: dict[TopicPartition, int] = dict.fromkeys(world.tps, 0)
        self.asked: dict[tuple[int, TopicPartition], tuple[int, int]] = {}
        self.heard: dict[tuple[int, TopicPartition], int] = {}
        self.lacking: set[tuple[int, TopicPartition]] = set()
        self.wished: set[TopicPartition] = set()
        self.trusted_at: dict[TopicPartition, int] = dict.fromkeys(world.tps, world.now_ms)

    # --- what the controller has heard ------------------------------------------------------------------------

    def sees(self, registered: Mapping[int, BrokerRegistration]) -> None:
        """The controller reads the registrations."""
        self._note_trusted()
        for broker_id in BROKERS:
            before, now = self.seen.get(broker_id), registered.get(broker_id)
            if (before and before.epoch) != (now and now.epoch):
                self._forget(broker_id)
                if before is not None or (now is not None and now.possibly_short):
                    self._lose(broker_id)
        self.seen = dict(registered)
        self._note_trusted()

    def _forget(self, broker_id: int) -> None:
        for tp in self.world.tps:
            self.asked.pop((broker_id, tp), None)
            self.heard.pop((broker_id, tp), None)
            self.lacking.discard((broker_id, tp))

    def _lose(self, broker_id: int) -> None:
        self.moment += 1
        for tp in self.world.tps:
            if broker_id in PARTITIONS[tp.partition]:
                self.lost_at[tp] = self.moment

    def _note_trusted(self) -> None:
        """A whole member of the ISR is registered: whoever is away is waited for from now on."""
        for tp in self.world.tps:
            if tp in self.world.states and self.trusted(tp, self.world.states[tp].state.isr):
                self.trusted_at[tp] = self.world.now_ms

    def asks(self, broker_id: int, tps: tuple[TopicPartition, ...]) -> None:
        """The controller asks a broker for the ends of logs."""
        for tp in tps:
            self.asked[broker_id, tp] = self.moment, self.world.now_ms
            self.heard.pop((broker_id, tp), None)

    def hears(self, broker_id: int, ends: Mapping[TopicPartition, LogEnd], question: int) -> None:
        """A broker answers what it was asked at that moment."""
        for tp, end in ends.items():
            if question >= self.asked.get((broker_id, tp), (question + 1, 0))[0]:
                self.heard[broker_id, tp] = question
            if end.lacks:
                self.lacking.add((broker_id, tp))

    # --- what it makes of an election ---------------------------------------------------------------------------

    def judge(self, write: WriteState) -> None:
        """Asserts that the leader of a new state, if it may lack records, reaches as far as any that is eligible."""
        tp, leader = write.tp, write.state.leader
        if write.expected < 0 or leader == NO_LEADER:
            return
        before = self.world.history[tp, write.expected]
        trusted = self.trusted(tp, before.isr)
        if leader in trusted or leader == before.leader:
            return
        self.world.elections += 1
        assert not trusted, f"{tp}: {leader} is elected though {trusted} of {before} is registered and has everything"
        problem = self._wrong_in_doubt(tp, leader, before)
        if problem and (tp in self.wished or (self.world.unclean and not self._hopes(tp, before))):
            problem = self._wrong_uncleanly(tp, leader)
        assert problem == "", f"{tp}: {leader} is elected upon {before}, and {problem}"

    def trusted(self, tp: TopicPartition, isr: tuple[int, ...]) -> list[int]:
        """Returns the registered members of an ISR that cannot have lost anything, as far as the controller knows."""
        return [
            each
            for each in isr
            if each in self.seen and not self._life(each).may_lack(tp) and not self._lacks(each, tp)
        ]

    def _wrong_in_doubt(self, tp: TopicPartition, leader: int, before: PartitionState) -> str:
        """Returns what is wrong with the choice of one of the ISR, or of one that was given up for it."""
        given_up = () if self.world.unclean else before.eligible
        candidates = (*before.isr, *given_up)
        if leader not in candidates:
            return "it was not in sync"
        away = [each for each in candidates if each not in self.seen]
        if away and self.world.now_ms - self.trusted_at[tp] < TIMEOUT_MS:
            return f"{away} were not waited for"
        if not self._is_only_candidate(before) and (silent := self._unheard(tp, candidates)):
            return f"{silent} have not answered"
        sound = [each for each in candidates if each in self.seen and not self._lacks(each, tp)]
        in_sync = [each for each in sound if each in before.isr]
        if problem := self._passed_over(tp, leader, in_sync):
            return problem
        best = max((self._life(each).logs[tp] for each in in_sync), key=reach, default=())
        heirs = [each for each in sound if each in before.isr or self._life(each).logs[tp][: len(best)] == best]
        if leader not in heirs:
            return "its log does not hold all that is left in sync"
        return self._passed_over(tp, leader, heirs)

    def _wrong_uncleanly(self, tp: TopicPartition, leader: int) -> str:
        """Returns what is wrong with the choice of any replica."""
        present = [each for each in PARTITIONS[tp.partition] if each in self.seen]
        if len(present) > 1 and (silent := self._unheard(tp, present)):
            return f"{silent} have not answered"
        return self._passed_over(tp, leader, present)

    def _is_only_candidate(self, before: PartitionState) -> bool:
        return len(before.isr) == 1 and (self.world.unclean or not before.eligible)

    def _hopes(self, tp: TopicPartition, before: PartitionState) -> list[int]:
        """Returns the registered members of the ISR that may have everything."""
        return [each for each in before.isr if each in self.seen and not self._lacks(each, tp)]

    def _passed_over(self, tp: TopicPartition, leader: int, replicas: Collection[int]) -> str:
        """Returns a sentence about a registered replica whose log reaches farther than the leader's, else ""."""
        farthest = max(replicas, key=lambda each: self._reach(each, tp), default=leader)
        if self._reach(farthest, tp) <= self._reach(leader, tp) or self._is_silent(farthest, tp):
            return ""
        return f"{farthest} reaches to {self._reach(farthest, tp)}, the leader to {self._reach(leader, tp)}"

    def _unheard(self, tp: TopicPartition, replicas: Collection[int]) -> list[int]:
        """Returns the registered replicas whose answer is missing or older than the last loss."""
        return [
            each
            for each in replicas
            if each in self.seen and self.heard.get((each, tp), -1) < self.lost_at[tp] and not self._is_silent(each, tp)
        ]

    def _is_silent(self, broker_id: int, tp: TopicPartition) -> bool:
        """Returns whether the broker was asked long ago, and has not answered."""
        if (broker_id, tp) in self.heard or (broker_id, tp) not in self.asked:
            return False
        return self.world.now_ms - self.asked[broker_id, tp][1] >= TIMEOUT_MS

    def _lacks(self, broker_id: int, tp: TopicPartition) -> bool:
        """Returns whether the broker has told that it lacks records, and has not got them since."""
        return (broker_id, tp) in self.lacking and tp not in self._life(broker_id).whole

    def _life(self, broker_id: int) -> Process:
        """Returns the process of the broker that the controller knows."""
        return self.world.lives[self.seen[broker_id].epoch]

    def _reach(self, broker_id: int, tp: TopicPartition) -> tuple[int, int]:
        return reach(self._life(broker_id).logs[tp])
