"""One broker process, from its first look at ZooKeeper to its clean-shutdown marker.

Everything here is order: what must be there before what, and what must be gone before what. Each step of the start
leaves behind how it is undone, and the stop undoes them from the last to the first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path

from cluster.state import BrokerRegistration, TopicAssignment
from cluster.zookeeper.client import ZkClient
from node.controlled_shutdown import ControlledShutdown
from node.controller.controller_client import ControllerClient
from node.controller.controller_elector import ControllerElector
from node.environment import BrokerEnvironment
from node.events.recorder import NO_EVENTS
from node.groups.offsets_topic import CREATION_TIMEOUT_MS
from node.groups.service import CoordinatorService
from node.handlers import Handlers
from node.handlers.admin import admin_handlers
from node.handlers.groups import group_handlers
from node.handlers.operator import operator_handlers
from node.handlers.zookeeper_offsets import ZooKeeperOffsetHandlers
from node.identity import Identity
from node.metadata_cache import MetadataCache
from node.net.http_server import HttpServer
from node.net.listeners import ListenerEndpoint, require_own_addresses
from node.net.server import Server
from node.observability.health_endpoints import HealthEndpoints
from node.observability.metrics import Metrics
from node.observability.readiness import why_not_ready
from node.purgatory.purgatories import Purgatories
from node.registration import Registration
from node.replication.fetching.replica_fetcher import FetchSettings
from node.replication.fetching.replica_fetchers import ReplicaFetchers
from node.replication.log_maintenance import MaintenanceLoop
from node.replication.replica_manager import ReplicaManager
from node.runtime.latency_histogram import RequestTimes
from node.runtime.loop_budget import LoopBudget
from node.settings import BrokerSettings
from node.zookeeper_session import Session
from storage.compaction.throttle import Throttle
from storage.configs.log_config import LogConfig
from storage.log_maintenance import Upkeep
from storage.log_manager import LogManager
from tidelog.errors import StorageError
from tidelog.model import Endpoint, TopicPartition

log = logging.getLogger(__name__)

#: So many times as long a fetch may wait where nothing happens, and so often it still comes before a follower lags.
_IDLE_WAITS = 4
#: When what is due is looked at again after it went wrong.
_TICK_AGAIN_MS = 100


class Broker:
    """`start`, then `wait_ended`, then `stop`, whatever happened. `failure` is why it had to end by itself."""

    def __init__(self, settings: BrokerSettings, environment: BrokerEnvironment) -> None:
        self._settings = settings
        self._environment = environment
        self._clock = environment.clock
        self._ended = asyncio.Event()
        self._undo = AsyncExitStack()
        self._events = NO_EVENTS
        self._observation = HealthEndpoints()
        self._request_times: dict[str, RequestTimes] = {}
        self._hands_over = False
        self.failure: Exception | None = None

    async def start(self) -> None:
        """Returns when clients and brokers are served and the broker is registered.

        UnreachableError (no ZooKeeper), ConfigError, DataDirectoryError, StorageError, BrokerIdTaken, OSError (a port
        is taken).
        """
        settings = self._settings
        self._events, end_history = self._environment.keep_history(settings)
        self._undo.callback(end_history)
        # Before anything that may take long: it tells what the start waits for.
        await self._open_http_port()
        self._observation.stage = f"waiting for ZooKeeper at {settings.zookeeper}"
        # ZooKeeper first: it alone knows which cluster this is, and so whether the data directory belongs to it.
        store = await self._environment.open_store(settings)
        self._undo.push_async_callback(store.close)
        zk_client = ZkClient(store, self._clock, patience_ms=settings.zookeeper_session_timeout_ms)
        await zk_client.ensure_paths()
        self._cluster_id = await zk_client.cluster_id(self._environment.dice)
        self._session = Session(
            store, self._clock, self._environment.guard(store.session_timeout_ms), events=self._events
        )
        await self._session.start()
        self._undo.push_async_callback(self._session.stop)
        doors = settings.doors
        require_own_addresses(settings.broker_id, doors, (await zk_client.read_brokers()).values())

        self._observation.stage = "opening its logs"
        # Then the disks, on a thread: after a crash they are scanned, and the session must live meanwhile.
        self._logs = await asyncio.to_thread(self._open_directories)
        self._undo.push_async_callback(self._close_directories)
        names = await zk_client.topic_names()
        topics = await zk_client.read_topics(names)
        await asyncio.to_thread(
            self._logs.open_logs,
            lambda topic: self._config_of(topics.get(topic)),
            hosted=self._hosted(topics.values()),
            unread=set(names) - topics.keys(),
            threads=settings.num_recovery_threads_per_data_dir,
        )

        handlers = self._wire(zk_client)

        # The doors open before the registration tells where they are, so that nobody finds them closed.
        for listener in doors:
            self._open_door(handlers, listener)
        # Undone before the doors close: whoever waits here still gets an answer.
        self._undo.callback(self._coordinator.stop)
        self._undo.push_async_callback(self._replicas.close)
        self._undo.push_async_callback(self._fetchers.close)
        # Undone after all that asks ZooKeeper, which may be silent: what is due meanwhile is answered then.
        self._undo.callback(asyncio.create_task(self._keep_ticking()).cancel)

        self._observation.measures = self._measures()
        self._observation.stage = "registering with ZooKeeper"
        registration = self._registration_at(zk_client, doors)
        # The controller then counts this broker as gone, and nobody dials it any more.
        self._undo.push_async_callback(registration.stop)
        self._identity.broker_epoch = await registration.start()
        self._undo.push_async_callback(self._shell.stop)
        await self._shell.start()
        housekeeping = self._housekeeping()
        housekeeping.start()
        self._coordinator.start()
        self._undo.push_async_callback(housekeeping.stop)
        # Undone first of all, while this broker still answers: clients find the new leaders before they lose the old.
        self._undo.push_async_callback(self._hand_over)
        self._observation.stage = ""
        log.info(
            "broker %d serves %s, epoch %d", settings.broker_id, ", ".join(map(str, doors)), self._identity.broker_epoch
        )
        if open_doors := [str(listener.bind) for listener in doors if listener.beyond_this_machine]:
            log.warning(
                "listening beyond this machine at %s: there is no authentication yet, and whoever reaches it"
                " may read, write and delete everything",
                ", ".join(open_doors),
            )

    @property
    def replicas(self) -> ReplicaManager:
        """What it hosts; once it has started."""
        return self._replicas

    async def wait_ended(self) -> None:
        """Returns when the broker must stop: `end` was called, its disks failed, or its id was taken."""
        await self._ended.wait()

    def end(self, failure: Exception | None = None) -> None:
        """Ask for the end; the first reason counts."""
        if not self._ended.is_set():
            self.failure = failure
            self._ended.set()

    async def stop(self) -> None:
        """Leave politely, as far as `start` came."""
        self._observation.stage = "stopping"
        await self._undo.aclose()

    # --- the parts ---------------------------------------------------------------------------------------------

    def _config_of(self, topic: TopicAssignment | None) -> LogConfig:
        """What a topic's logs are opened with; the defaults where the topic is gone."""
        return LogConfig.as_far_as_right(topic.configs if topic else {}, self._settings.topic_defaults)

    def _hosted(self, topics: Iterable[TopicAssignment]) -> dict[TopicPartition, str]:
        """The topic ids of all partitions that are assigned to this broker."""
        me = self._settings.broker_id
        return {
            TopicPartition(topic.topic, partition): topic.topic_id
            for topic in topics
            for partition, replicas in topic.partitions.items()
            if me in replicas
        }

    def _wire(self, zk_client: ZkClient) -> Handlers:
        """Makes what answers requests, and shows each part the others that it needs; nothing of it runs yet."""
        settings = self._settings
        self._identity = Identity(self._cluster_id, settings.broker_id, dial=self._environment.dial, clock=self._clock)
        self._metadata = MetadataCache(self._cluster_id)
        wait_ms = settings.replica_fetch_wait_max_ms
        fetch_settings = FetchSettings(
            settings.broker_id,
            wait_ms,
            max(wait_ms, min(_IDLE_WAITS * wait_ms, settings.replica_lag_time_max_ms // _IDLE_WAITS)),
            settings.replica_fetch_max_bytes,
            settings.replica_fetch_response_max_bytes,
        )
        loop_budget = LoopBudget()
        self._fetchers = ReplicaFetchers(fetch_settings, self._identity.connect, self._clock, loop_budget)
        self._replicas = ReplicaManager(
            settings.broker_id,
            logs=self._logs,
            isr_store=zk_client,
            metadata=self._metadata,
            purgatories=Purgatories(asyncio.get_running_loop().call_soon, self._environment.monotonic_ns),
            fetchers=self._fetchers,
            clock=self._clock,
            max_lag_ms=settings.replica_lag_time_max_ms,
            topic_defaults=self._settings.topic_defaults,
            on_storage_error=self.end,
            cut_off=self._may_be_deposed,
            events=self._events,
            loop_budget=loop_budget,
        )
        self._fetchers.on_storage_error = self._replicas.storage_failed
        self._shell = ControllerElector(
            settings,
            zk_client,
            self._clock,
            self._identity,
            dice=self._environment.dice,
            probe=self._environment.probe,
            known_epoch=lambda: self._replicas.controller_epoch,
            events=self._events,
        )
        line = ControllerClient(self._identity, self._metadata, self._shell)
        self._coordinator = CoordinatorService(
            self._replicas,
            settings,
            zk_client,
            lambda request: line.ask(request, self._shell.topics.create_topics, CREATION_TIMEOUT_MS),
            # A session may be ended by others at once; its connection is then the first to go.
            may_be_deposed=lambda: self._may_be_deposed() or not zk_client.store.connected,
            dice=self._environment.dice,
        )
        in_zookeeper = ZooKeeperOffsetHandlers(
            zk_client.zookeeper_offsets, self._metadata, self._clock, settings.offset_metadata_max_bytes
        )
        more = {
            **group_handlers(self._coordinator, in_zookeeper),
            **operator_handlers(self._replicas, self._observation, settings),
            **admin_handlers(self._replicas, settings, zk_client.topic_configs),
        }
        return Handlers(self._replicas, self._metadata, zk_client, self._shell, more)

    def _housekeeping(self) -> MaintenanceLoop:
        settings = self._settings
        cleaners = max(settings.log_cleaner_threads, 1)  # they share what the settings allow them together
        upkeep = Upkeep(
            self._logs,
            self._environment.files,
            map_bytes=settings.log_cleaner_dedupe_buffer_size // cleaners,
            throttle=lambda: Throttle(
                settings.log_cleaner_io_max_bytes_per_second // cleaners,
                self._environment.monotonic_ns,
                self._environment.sleep_s,
            ),
        )
        return MaintenanceLoop(settings, self._replicas, self._logs, upkeep, self._clock)

    def _open_directories(self) -> LogManager:
        paths = [Path(path) for path in self._settings.log_dirs]
        files, boot_id = self._environment.files, self._environment.boot_id()
        return LogManager.open(paths, files, self._settings.broker_id, self._cluster_id, boot_id)

    async def _close_directories(self) -> None:
        # The marker is the last word on a disk, and a disk that failed does not get one.
        await asyncio.to_thread(self._logs.close, clean=not isinstance(self.failure, StorageError))

    def _open_door(self, handlers: Handlers, listener: ListenerEndpoint) -> None:
        server = Server(
            listener.bind,
            self._identity,
            handlers.handle,
            self._clock,
            between_brokers=listener.between_brokers,
            listener=listener.name,
            settle=self._replicas.purgatories.complete_ready,
            now_ns=self._environment.monotonic_ns,
            listen=self._environment.listen,
            events=self._events,
        )
        server.start()
        self._undo.callback(server.stop)
        self._request_times[listener.name] = server.times

    async def _open_http_port(self) -> None:
        if self._settings.http_listener:
            port = HttpServer(Endpoint.parse(self._settings.http_listener), self._observation.answer)
            await port.start()
            self._undo.push_async_callback(port.stop)
            log.info("broker %d is watched at http://%s", self._settings.broker_id, port.endpoint)
            if port.beyond_this_machine:
                log.warning(
                    "watched beyond this machine at %s: whoever reaches it may read names of topics and sizes",
                    port.endpoint,
                )

    def _measures(self) -> Metrics:
        return Metrics(
            identity=self._identity,
            metadata=self._metadata,
            replicas=self._replicas,
            waiting=self._replicas.purgatories,
            groups=self._coordinator,
            session=self._session,
            lease=self._shell,
            disks=self._logs,
            doors=self._request_times,
            why_not_ready=lambda: why_not_ready(
                self._identity, self._metadata, self._replicas, cut_off=self._session.cut_off
            ),
        )

    def _registration_at(self, zk_client: ZkClient, doors: Iterable[ListenerEndpoint]) -> Registration:
        previous = self._logs.read_session() or ""
        return Registration(
            zk_client,
            BrokerRegistration(
                self._settings.broker_id,
                {listener.name: listener.advertised for listener in doors},
                possibly_short=self._logs.possibly_short,
            ),
            previous_session=int(previous) if previous.removeprefix("-").isdecimal() else 0,
            save_session=lambda session_id: self._logs.write_session(str(session_id)),
            on_lost=self._on_registration_lost,
            on_registered=self._on_registered,
            on_possibly_short_cleared=self._on_absolved,
            on_taken=self.end,
            events=self._events,
        )

    # --- standing with ZooKeeper -------------------------------------------------------------------------------

    def _may_be_deposed(self) -> bool:
        return self._session.cut_off or self._hands_over

    def _on_registration_lost(self) -> None:
        self._identity.broker_epoch = -1
        self._replicas.registration_lost()

    def _on_registered(self, broker_epoch: int) -> None:
        self._identity.broker_epoch = broker_epoch
        self._fetchers.reconnect()

    def _on_absolved(self) -> None:
        log.info("the cluster has dealt with what this broker's logs may lack")
        asyncio.get_running_loop().run_in_executor(None, self._logs.vouch)

    # --- what goes on all the time -----------------------------------------------------------------------------

    async def _keep_ticking(self) -> None:
        while True:
            try:
                next_ms = self._replicas.tick(self._clock.monotonic_ms())
                groups_ms = self._coordinator.tick(self._clock.monotonic_ms())
                next_ms = next_ms if groups_ms is None else min(next_ms, groups_ms)
            except Exception:  # else nobody would be answered any more, by a broker that looks alive
                log.exception("what was due could not all be done")
                next_ms = self._clock.monotonic_ms() + _TICK_AGAIN_MS
            await self._replicas.purgatories.alarm.wait(max(1, next_ms - self._clock.monotonic_ms()))

    # --- leaving -----------------------------------------------------------------------------------------------

    async def _hand_over(self) -> None:
        if self.failure is not None:
            return
        timeout_ms = self._settings.controlled_shutdown_timeout_ms
        # From the asking on others may lead, and whoever tells this broker may be slower than their first answers.
        self._hands_over = True
        remaining = await ControlledShutdown(self._identity, self._metadata, self._shell, timeout_ms).hand_over()
        if remaining is None:
            log.warning("stopping with %d partitions still led", len(self._replicas.led()))
            return
        self._replicas.resign_all(but=remaining)
