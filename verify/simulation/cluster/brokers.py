"""Run brokers on simulated machines that can lose their process, their power, their CPU time or their wall clock."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from random import Random

from cluster.zookeeper.in_memory import MemoryStore, MemoryZooKeeper
from cluster.zookeeper.store import Set, Store
from node.controller.failure_detector import ProbeOutcome
from node.events.history_file import EventRecorder
from node.events.recorder import Events
from node.kafka.server_socket import Serve
from node.net.zeromq.dealer import Dial
from node.net.zeromq.router import Listen
from node.process.broker import Broker
from node.process.watchdog import Guard
from node.replication.leader_appends import LeaderAppends
from node.replication.replica import Replica
from node.runtime.deferred_response import DeferredResponse
from node.settings.broker_settings import BrokerSettings
from storage.files import Files
from tidelog.history.broker_events import BrokerEvent, Resources
from tidelog.model import Endpoint, TopicPartition
from verify.simulation.cluster.network import Network
from verify.simulation.cluster.tcp_streams import serve
from verify.simulation.cluster.zeromq_messages import SimulatedDealer, SimulatedRouter
from verify.simulation.disks.disks import SimulatedDisk
from verify.simulation.disks.page_cache import Fate
from verify.simulation.timeline import NS_PER_MS, Process, Timeline

#: The connections from one broker to another.
_LINES = 2
#: The time limit for the acknowledgement of a batch that a broker appends itself.
_TIMEOUT_MS = 5_000
#: The time of the wall clocks when a simulation begins: 2023-11-14.
EPOCH_MS = 1_700_000_000_000


class MachineClock:
    """A wall clock that can jump and run at another rate, and a monotonic clock with its own zero."""

    def __init__(self, timeline: Timeline, zero_ms: int) -> None:
        self._timeline = timeline
        self.zero_ms = zero_ms
        self._since_ns = 0
        self._shown_ms = float(EPOCH_MS)
        self._rate = 1.0

    def jump(self, by_ms: int) -> None:
        """Set the wall clock forward, or back if `by_ms` is negative."""
        self._shown_ms += by_ms

    def run_at(self, rate: float) -> None:
        """Change the rate of the wall clock: 1.0 is right, a greater number fast, a negative one backwards."""
        now_ns = self._timeline.now_ns
        self._shown_ms += (now_ns - self._since_ns) / NS_PER_MS * self._rate
        self._since_ns, self._rate = now_ns, rate

    def now_ms(self) -> int:
        return int(self._shown_ms + (self._timeline.now_ns - self._since_ns) / NS_PER_MS * self._rate)

    def monotonic_ms(self) -> int:
        return self.zero_ms + self._timeline.now_ns // NS_PER_MS

    def monotonic_ns(self) -> int:
        return self.zero_ms * NS_PER_MS + self._timeline.now_ns


class _Idle:
    """A watchdog that does nothing, because a held process holds its watchdog too."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


class MachineEventRecorder(EventRecorder):
    """A recorder that stamps events with the time shared by all machines, instead of the machine's own clock."""

    def __init__(self, keep: Callable[[BrokerEvent], object], now_ns: Callable[[], int], zero_ms: int) -> None:
        super().__init__(keep, now_ns)
        self._zero_ms = zero_ms

    def processed(self, api: int, now_ms: int = -1, deadline_ms: int = -1, epoch: int = -1, known: int = -1) -> None:
        if deadline_ms >= 0:
            now_ms, deadline_ms = now_ms - self._zero_ms, deadline_ms - self._zero_ms
        super().processed(api, now_ms, deadline_ms, epoch, known)


class SimulatedBroker:
    """One broker on a machine of its own.

    lives          the number of starts of a process
    failure        the error that ended the last process, or None
    on_event       called with the name of each change of the broker's process, the broker's id and details
    before_start   functions to call before each start of a process
    on_write       called with the broker's id and each write to a znode, before the write leaves the broker
    """

    def __init__(
        self,
        settings: BrokerSettings,
        network: Network,
        zookeeper: MemoryZooKeeper,
        there: Process,
        disk: SimulatedDisk,
        rng: Random,
        keep: Callable[[int, BrokerEvent], object],
        on_event: Callable[..., object],
        on_write: Callable[[int, Set], object],
    ) -> None:
        self.settings = settings
        self.broker_id = settings.broker_id
        self.disk = disk
        self.machine = network.machine(settings.listener_endpoints[0].bind.host)
        self._for_clients = [each.bind for each in settings.listener_endpoints if not each.between_brokers]
        self.failure: Exception | None = None
        self.broker: Broker | None = None
        self._network = network
        self._timeline = network.timeline
        self._zookeeper = zookeeper
        self._there = there
        self._zookeeper_network = zookeeper.client_network(partial(on_write, self.broker_id))
        self._zookeeper_cut = self._zookeeper_slow = False
        self._expired_session = 0
        self._store: MemoryStore | None = None
        self._keep = keep
        self._on_event = on_event
        self.lives = 0
        self.before_start: dict[object, Callable[[], object]] = {}
        self._started = False
        # --- the environment of its process (`node.process.environment.BrokerEnvironment`)
        self.rng = rng
        self._clock = MachineClock(self._timeline, rng.randrange(1_000, 10_000_000))
        self._boot = 0

    def __repr__(self) -> str:
        return f"broker {self.broker_id}"

    @property
    def process(self) -> Process | None:
        return self.machine.process

    @property
    def _running(self) -> Process:
        assert self.process is not None
        return self.process

    @property
    def runs(self) -> bool:
        """Return whether the broker's process is alive, even if it is held."""
        return self.process is not None and self.process.alive

    def replica(self, tp: TopicPartition) -> Replica | None:
        """Return the replica of the broker's process, or None if it has none or is not serving."""
        return self.broker.replicas.get(tp) if self.serves and self.broker is not None else None

    def lacks(self, tp: TopicPartition) -> bool:
        """Return whether the broker is serving and either has no log of the partition or knows that the log lost
        committed records.
        """
        if not self.serves or self.broker is None:
            return False
        replicas = self.broker.replicas
        log = replicas.log_of(tp)
        return log is None or log.log_end_offset < replicas.recovered_high_watermark(tp)

    @property
    def serves(self) -> bool:
        """Return whether the broker has started and has not begun to shut down."""
        return self.runs and self._started

    def append(self, tp: TopicPartition, batch: bytes, on_done: Callable[[bool], object]) -> None:
        """Append a batch to a log that the broker leads, and report to `on_done` whether the log accepted it.

        `on_done` is not called if the broker is not serving.
        """

        def work() -> None:
            if self.broker is not None:
                answer = LeaderAppends(self.broker.replicas).append_own(tp, batch, _TIMEOUT_MS)
                on_done(isinstance(answer, DeferredResponse) or not any(each.error_code for each in answer.partitions))

        if self.serves:
            self._running.call_soon(work)

    def resources(self, phase: str) -> Resources | None:
        """Return the resources that the broker holds, or None if it is not serving. Threads and memory are unknown.

        `fds` is the number of connections of clients, and of those beyond two to or from each other broker. A broker
        has two to each other broker: one for fetches and one for all other requests. `purgatory` excludes the fetches
        of followers, because these always wait. `tasks` counts all tasks of the process.
        """
        if not self.serves or self.broker is None:
            return None
        waiting = self.broker.replicas.purgatories
        lines = self._network.connections_of(self.machine)
        return Resources(
            self._timeline.now_ns,
            phase,
            fds=sum(max(0, count - (0 if to in self._for_clients else _LINES)) for (_, to), count in lines.items()),
            purgatory=len(waiting.produces) + len(waiting.consumer_fetches),
            tasks=len(asyncio.all_tasks(self._running)),
        )

    # --- start, end and faults ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a new process on the files that the disk kept; no effect if one runs or the machine has no power."""
        if self.runs or not self.machine.up:
            return
        for call in list(self.before_start.values()):
            call()
        self.lives += 1
        self._started = False
        self.failure = None
        name = f"broker-{self.broker_id}.{self.lives}"
        process = Process(self._timeline, name, self.rng, lambda text: self._on_event("failure", self.broker_id, text))
        self.machine.run(process)
        self._files = self.disk.mount(process.spend)
        self.broker = Broker(self.settings, self)
        process.start(self._serve(self.broker))
        self._network.changed()

    def end(self) -> None:
        """Send SIGTERM: the process shuts down in an orderly way. No effect if none runs."""
        if self.runs and self.broker is not None:
            self._running.call_soon(self.broker.end)

    def kill(self) -> None:
        """Send SIGKILL. No effect if no process runs."""
        if self.runs:
            self._gone()

    def crash(self, fate: Random | Fate) -> None:
        """Cut the power of the machine. `fate` decides which unsynced bytes are lost, and no connection is closed."""
        self.machine.up = False
        self._boot += 1
        if self.runs:
            self._gone()
        else:
            self._network.changed()
        self.disk.crash(fate)

    def power_up(self) -> None:
        """Give the machine power again, without starting a process."""
        self.machine.up = True
        self._network.changed()

    def hold(self) -> None:
        """Send SIGSTOP. Brokers get no heartbeats either, but clients' TCP connections stay. No effect if no process
        runs.
        """
        if self.runs:
            self._running.hold()
            self._look()

    def resume(self) -> None:
        """Send SIGCONT. No effect if no process runs."""
        if self.runs:
            self._running.resume()
            self._look()

    def cut_from_zookeeper(self, cut: bool) -> None:
        """Cut the broker from ZooKeeper, or end the cut; a held process stays cut."""
        self._zookeeper_cut = cut
        self._look()

    def slow_zookeeper(self, by_ms: float) -> None:
        """Delay the broker's requests to ZooKeeper and their answers by about `by_ms`; 0 ends the delay."""
        self._zookeeper_slow = by_ms > 0
        conditions = self._zookeeper.conditions
        (least, most), (soonest, latest) = conditions.request_ms, conditions.answer_ms
        request_ms, answer_ms = (least + by_ms / 2, most + by_ms), (soonest + by_ms / 2, latest + by_ms)
        self._zookeeper_network.conditions = replace(conditions, request_ms=request_ms, answer_ms=answer_ms)

    @property
    def may_lose_session(self) -> bool:
        """Return whether the broker has a session and would learn at once that the session was expired.

        ZooKeeper never ends a session before its timeout; only a new connection that takes over the session can. A
        broker that does not learn of the end continues until its session would have timed out, and that is correct.
        """
        hears = self.process is not None and not (self.process.held or self._zookeeper_cut or self._zookeeper_slow)
        return hears and self._store is not None and bool(self._store.session_id)

    def expire_session(self) -> None:
        """Let ZooKeeper expire the broker's session now, if the broker has one."""
        if self._store is not None and self._store.session_id:
            self._expired_session = self._store.session_id
            self._in_zookeeper(partial(self._zookeeper.expire, self._expired_session))

    @property
    def is_losing_session(self) -> bool:
        """Return whether the broker's session was expired early and the broker has not learned it yet.

        No other fault may prevent that the broker learns of it.
        """
        return self._store is not None and 0 != self._store.session_id == self._expired_session

    def break_zookeeper_connection(self) -> None:
        """Break the broker's connection to ZooKeeper once; its session stays."""
        self._in_zookeeper(self._zookeeper_network.drop)

    def _look(self) -> None:
        """Apply the broker's state to its connections. A held process sends no pings, so its connection to ZooKeeper is
        cut too.
        """
        self._network.changed()
        held = self.process is not None and self.process.held and self.process.alive
        self._in_zookeeper(self._zookeeper_network.cut if held or self._zookeeper_cut else self._zookeeper_network.heal)

    def _in_zookeeper(self, call: Callable[[], object]) -> None:
        self._there.call_soon(call)

    def _gone(self) -> None:
        self._running.kill()
        self.disk.unmount()
        self._zookeeper_network.kill()
        self._store = None
        self._network.hang_up(self.machine)
        self._look()

    async def _serve(self, broker: Broker) -> None:
        """Run the broker in the way of `node.process.main`, note its error in `failure`, and kill the process
        afterwards.
        """
        loop = asyncio.get_running_loop()
        starting, ended = loop.create_task(broker.start()), loop.create_task(broker.wait_ended())
        try:
            await asyncio.wait((starting, ended), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                self._started = True
                self._on_event("serves", self.broker_id)
                await ended
            self.failure = broker.failure
        except Exception as error:
            self.failure = error
        finally:
            self._started = False
            ended.cancel()
            starting.cancel()
            await asyncio.gather(starting, ended, return_exceptions=True)
            try:
                await broker.stop()
            except Exception as error:  # an error of the disk during shutdown ends the process as well
                self.failure = self.failure or error
        self._on_event("ended", self.broker_id, *([repr(self.failure)] if self.failure else []))
        loop.call_soon(self.kill)

    # --- node.process.environment.BrokerEnvironment -------------------------------------------------------------------

    @property
    def clock(self) -> MachineClock:
        return self._clock

    @property
    def files(self) -> Files:
        return self._files

    @property
    def max_connections(self) -> int:
        return sys.maxsize  # a simulated connection needs no descriptor

    @property
    def dial(self) -> Dial:
        return partial(SimulatedDealer, self._network, self.machine, self._running)

    @property
    def listen(self) -> Listen:
        return partial(SimulatedRouter, self._network, self._running)

    @property
    def serve(self) -> Serve:
        return partial(serve, self._network, self._running)

    @property
    def probe(self) -> Callable[[Endpoint], Awaitable[ProbeOutcome]]:
        return partial(self._network.probe, self.machine, self._running)

    @property
    def sleep_s(self) -> Callable[[float], object]:
        return lambda _: None

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns()

    def boot_id(self) -> str | None:
        return f"boot-{self._boot}"

    async def open_store(self, settings: BrokerSettings) -> Store:
        self._store = await self._zookeeper.open(
            self._zookeeper_network,
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
            clock=self._clock,
            connect_timeout_ms=settings.zookeeper_connect_timeout_ms,
        )
        return self._store

    def guard(self, timeout_ms: int) -> Guard:
        return _Idle()

    def keep_history(self, settings: BrokerSettings) -> tuple[Events, Callable[[], None]]:
        keep = partial(self._keep, self.broker_id)
        return MachineEventRecorder(keep, lambda: self._timeline.now_ns, self._clock.zero_ms), lambda: None
