"""One broker process, from its connection to ZooKeeper to its clean-shutdown marker.

This module defines the order in which the parts of a broker start and stop. Each step of the start registers the
action that undoes it, and the stop runs these actions in reverse order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path

from cluster.state import BrokerRegistration, TopicAssignment
from cluster.zookeeper.client import ZkClient
from node.controller.controller_client import ControllerClient
from node.controller.controller_elector import ControllerElector
from node.events.recorder import NO_EVENTS
from node.groups.offsets_topic import CREATION_TIMEOUT_MS
from node.groups.service import CoordinatorService
from node.handlers import Handlers
from node.handlers.admin import admin_handlers
from node.handlers.groups import group_handlers
from node.handlers.inspection.describe_broker import BrokerDescription
from node.handlers.operator import operator_handlers
from node.handlers.zookeeper_offsets import ZooKeeperOffsetHandlers
from node.kafka.calls import KafkaApi
from node.kafka.listener import KafkaListener, ListenerLimits
from node.kafka.translation.apis import kafka_apis, topic_configs_by
from node.metadata.auto_topic_creation import CREATION_TIMEOUT_MS as AUTO_CREATION_TIMEOUT_MS
from node.metadata.auto_topic_creation import AutoTopicCreation
from node.metadata.metadata_cache import MetadataCache
from node.net.client_connections import ClientConnections
from node.net.http_server import HttpServer
from node.net.identity import Identity
from node.net.server import Server
from node.observability.health_endpoints import HealthEndpoints
from node.observability.metrics import Metrics
from node.observability.readiness import why_not_ready
from node.process.advertised_addresses import AdvertisedAddresses
from node.process.controlled_shutdown import ControlledShutdown
from node.process.environment import BrokerEnvironment
from node.process.registration import Registration
from node.process.zookeeper_session import ZooKeeperSession
from node.replication.fetching.replica_fetcher import FetchSettings
from node.replication.fetching.replica_fetchers import ReplicaFetchers
from node.replication.log_dir_moves import LogDirMoves
from node.replication.log_maintenance import MaintenanceLoop
from node.replication.purgatories import Purgatories
from node.replication.replica_manager import ReplicaManager
from node.runtime.latency_histogram import RequestTimes
from node.runtime.loop_budget import LoopBudget
from node.runtime.rate_limit import THROTTLE_MEMORY_MS, RateLimit
from node.settings.broker_config_watch import BrokerConfigWatch
from node.settings.broker_settings import BrokerSettings
from node.settings.dynamic_settings import DynamicSettings
from node.settings.listeners import ListenerEndpoint, require_own_addresses
from storage.compaction.throttle import Throttle
from storage.configs.log_config import LogConfig
from storage.log_maintenance import LogMaintenance
from storage.log_manager import LogManager
from tidelog.errors import StorageError
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.messages import ApiKey

log = logging.getLogger(__name__)

#: A follower's fetch of idle partitions waits up to this many times longer than a fetch of active partitions. The wait
#: is at most this fraction of `replica_lag_time_max_ms`, so that the follower stays in the ISR.
_IDLE_WAITS = 4
#: A rate that no disk reaches.
_UNLIMITED = 2**63 - 1
#: The pause after a tick that failed.
_TICK_AGAIN_MS = 100


class Broker:
    """One broker. Call `start`, then `wait_ended`, then `stop`, also after an error.

    failure   the reason why the broker had to end by itself; None if it did not
    """

    def __init__(self, settings: BrokerSettings, environment: BrokerEnvironment) -> None:
        self._settings = settings
        self._environment = environment
        self._clock = environment.clock
        self._ended = asyncio.Event()
        self._undo = AsyncExitStack()
        self._events = NO_EVENTS
        self._health = HealthEndpoints()
        self._request_times: dict[str, RequestTimes] = {}
        self._is_shutting_down = False
        self.failure: Exception | None = None

    async def start(self) -> None:
        """Start the broker, and return when it is registered and serves clients and brokers.

        Raise UnreachableError if ZooKeeper cannot be reached, another StoreError if it stops answering, or OSError if a
        port is taken. Also raise ConfigError, DataDirectoryError, StorageError or BrokerIdTaken.
        """
        settings = self._settings
        self._events, end_history = self._environment.keep_history(settings)
        self._undo.callback(end_history)
        # The HTTP endpoint opens before any step that may take long, because it reports what the start waits for.
        await self._open_http_port()
        self._health.stage = f"waiting for ZooKeeper at {settings.zookeeper}"
        # ZooKeeper comes before the disks, because only ZooKeeper has the cluster id that the data directories must
        # have.
        store = await self._environment.open_store(settings)
        self._undo.push_async_callback(store.close)
        zk_client = ZkClient(store, self._clock, time_limit_ms=settings.zookeeper_session_timeout_ms)
        await zk_client.ensure_paths()
        self._dynamic = DynamicSettings(settings)
        self._broker_configs = BrokerConfigWatch(self._dynamic, zk_client.broker_configs, store)
        await self._broker_configs.start()
        self._undo.push_async_callback(self._broker_configs.stop)
        self._cluster_id = await zk_client.cluster_id(self._environment.rng)
        self._session = ZooKeeperSession(
            store, self._clock, self._environment.guard(store.session_timeout_ms), events=self._events
        )
        await self._session.start()
        self._undo.push_async_callback(self._session.stop)
        # The files say which listeners there are, and ZooKeeper may have other advertised addresses for them.
        listeners = self._dynamic.current.listener_endpoints
        require_own_addresses(settings.broker_id, listeners, (await zk_client.read_brokers()).values())

        self._health.stage = "opening its logs"
        # The disks are opened on a thread, because logs are scanned after a crash and the event loop must keep the
        # session alive meanwhile.
        self._logs = await asyncio.to_thread(self._open_directories)
        self._undo.push_async_callback(self._close_directories)
        names = await zk_client.topic_names()
        topics = await zk_client.read_topics(names)
        await asyncio.to_thread(
            self._logs.open_logs,
            lambda topic: self._config_of(topics.get(topic)),
            hosted=self._hosted(topics.values()),
            unreadable_topics=set(names) - topics.keys(),
            threads=settings.num_recovery_threads_per_data_dir,
        )

        handlers = self._wire(zk_client)

        # The listeners open before the registration announces them, so that no connection to them is refused.
        topic_configs = topic_configs_by(self._dynamic)
        kafka = kafka_apis(
            handlers.handle,
            self._metadata,
            self._clock,
            self._replicas.purgatories.consumer_sessions,
            topic_configs,
            self._fetchers.has_lost,
            self._replicas.latest_leader,
            self._identity,
        )
        for listener in listeners:
            if listener.between_brokers:
                self._open_listener_for_brokers(handlers, listener)
            else:
                await self._open_listener_for_clients(kafka, listener)
        # The coordinator and the replicas stop before the listeners close, so that waiting requests get an answer.
        self._undo.callback(self._coordinator.stop)
        self._undo.callback(self._auto_creation.close)
        self._undo.push_async_callback(self._replicas.close)
        self._undo.push_async_callback(self._fetchers.close)
        # Ticking stops after all parts that send requests to ZooKeeper. ZooKeeper may not answer them for a while, and
        # requests whose deadline passes meanwhile still get their answers.
        self._undo.callback(asyncio.create_task(self._keep_ticking()).cancel)

        self._health.expose(self._metrics())
        self._health.stage = "registering with ZooKeeper"
        registration = self._make_registration(zk_client)
        # The end of the registration makes the controller treat this broker as gone, so that no other broker connects
        # to it any more.
        self._undo.push_async_callback(registration.stop)
        self._dynamic.subscribe(lambda: registration.change_addresses(self._addresses.by_listener))
        self._identity.broker_epoch = await registration.start()
        self._undo.push_async_callback(self._elector.stop)
        await self._elector.start()
        maintenance = MaintenanceLoop(self._dynamic, self._replicas, self._logs, self._maintenance, self._clock)
        maintenance.start()
        self._moves.start()
        self._coordinator.start()
        self._undo.push_async_callback(maintenance.stop)
        self._undo.push_async_callback(self._moves.stop)
        # The controlled shutdown is the first step of a stop. This broker still answers meanwhile, so that clients
        # find the new leaders before they lose the old ones.
        self._undo.push_async_callback(self._move_leadership)
        self._health.stage = ""
        log.info(
            "broker %d serves %s, epoch %d",
            settings.broker_id, ", ".join(map(str, listeners)), self._identity.broker_epoch,
        )  # fmt: skip
        if reachable := [str(listener.bind) for listener in listeners if listener.beyond_this_machine]:
            log.warning(
                "listening beyond this machine at %s: there is no authentication yet, so that every client that"
                " reaches it may read, write and delete everything",
                ", ".join(reachable),
            )

    @property
    def replicas(self) -> ReplicaManager:
        """Return the replica manager. Raise AttributeError until `start` has wired the parts."""
        return self._replicas

    async def wait_ended(self) -> None:
        """Return when the broker must stop: `end` was called, its disks failed, or its id was taken."""
        await self._ended.wait()

    def end(self, failure: Exception | None = None) -> None:
        """Request that the broker stops, and record `failure`. Only the first call has an effect."""
        if not self._ended.is_set():
            self.failure = failure
            self._ended.set()

    async def stop(self) -> None:
        """Undo all steps that `start` has completed, in reverse order.

        A serving broker moves leadership away first, unless it has failed (`failure`).
        """
        self._health.stage = "stopping"
        await self._undo.aclose()

    # --- the parts ---------------------------------------------------------------------------------------------

    def _config_of(self, topic: TopicAssignment | None) -> LogConfig:
        """Return the settings for the logs of a topic; None, a deleted topic, yields the defaults."""
        return LogConfig.from_valid_topic_configs(topic.configs if topic else {}, self._dynamic.current.topic_defaults)

    def _hosted(self, topics: Iterable[TopicAssignment]) -> dict[TopicPartition, str]:
        """Return the topic ids of all partitions that are assigned to this broker."""
        me = self._settings.broker_id
        return {
            TopicPartition(topic.topic, partition): topic.topic_id
            for topic in topics
            for partition, replicas in topic.partitions.items()
            if me in replicas
        }

    def _wire(self, zk_client: ZkClient) -> Handlers:
        """Create and connect the parts that answer requests, and return the handlers. No part runs yet."""
        settings = self._settings
        self._identity = Identity(self._cluster_id, settings.broker_id, dial=self._environment.dial, clock=self._clock)
        self._metadata = MetadataCache(self._cluster_id)
        self._addresses = AdvertisedAddresses(self._dynamic, zk_client, self._identity)
        self._clients = ClientConnections(self._clock, self._known_topic)
        wait_ms = settings.replica_fetch_wait_max_ms
        fetch_settings = FetchSettings(
            settings.broker_id,
            wait_ms,
            max(wait_ms, min(_IDLE_WAITS * wait_ms, settings.replica_lag_time_max_ms // _IDLE_WAITS)),
            settings.replica_fetch_max_bytes,
            settings.replica_fetch_response_max_bytes,
        )
        loop_budget = LoopBudget()
        self._fetchers = ReplicaFetchers(
            fetch_settings, self._identity.connect, self._clock, loop_budget,
            RateLimit(lambda: self._dynamic.current.follower_replication_throttled_rate, THROTTLE_MEMORY_MS),
        )  # fmt: skip
        self._replicas = ReplicaManager(
            settings.broker_id,
            logs=self._logs,
            isr_store=zk_client,
            metadata=self._metadata,
            purgatories=Purgatories(asyncio.get_running_loop().call_soon, self._environment.monotonic_ns),
            fetchers=self._fetchers,
            clock=self._clock,
            max_lag_ms=settings.replica_lag_time_max_ms,
            topic_defaults=self._dynamic.current.topic_defaults,
            on_storage_error=self.end,
            cut_off=lambda: self._session.cut_off or self._is_shutting_down,
            may_be_deposed=self._may_be_deposed,
            events=self._events,
            loop_budget=loop_budget,
            leader_throttle=RateLimit(
                lambda: self._dynamic.current.leader_replication_throttled_rate, THROTTLE_MEMORY_MS
            ),
        )
        self._dynamic.subscribe(lambda: self._replicas.replace_topic_defaults(self._dynamic.current.topic_defaults))
        self._maintenance = self._log_maintenance()
        self._moves = LogDirMoves(
            self._logs,
            self._replicas,
            self._environment.files,
            self._dynamic,
            self._maintenance.is_cleaning,
            lambda: self._pace(_UNLIMITED),
        )
        self._elector = ControllerElector(
            settings,
            zk_client,
            self._clock,
            self._identity,
            max_broker_partitions=lambda: self._dynamic.current.max_broker_partitions,
            rng=self._environment.rng,
            probe=self._environment.probe,
            known_epoch=lambda: self._replicas.controller_epoch,
            events=self._events,
        )
        controller_client = ControllerClient(self._identity, self._metadata, self._elector)
        self._coordinator = CoordinatorService(
            self._replicas,
            settings,
            zk_client,
            lambda request: controller_client.ask(request, self._elector.topics.create_topics, CREATION_TIMEOUT_MS),
            may_be_deposed=self._may_be_deposed,
            rng=self._environment.rng,
        )
        self._auto_creation = AutoTopicCreation(
            settings,
            self._metadata,
            lambda request: controller_client.ask(
                request, self._elector.topics.create_topics, AUTO_CREATION_TIMEOUT_MS
            ),
            self._clock,
        )
        in_zookeeper = ZooKeeperOffsetHandlers(
            zk_client.zookeeper_offsets, self._metadata, self._clock, settings.offset_metadata_max_bytes
        )
        description = BrokerDescription(
            settings,
            self._replicas,
            self._session,
            self._logs,
            self._health.why_not_ready,
            lambda: self._dynamic.current.max_broker_partitions,
            self._clients,
            lambda: min(self._environment.max_connections, self._dynamic.current.max_connections),
        )
        more = {
            **group_handlers(self._coordinator, in_zookeeper),
            **operator_handlers(self._replicas, settings.log_retention_check_interval_ms, description, self._clients),
            **admin_handlers(
                self._replicas, self._broker_configs, zk_client.topic_configs, self._moves, self._addresses.check
            ),
            ApiKey.METADATA: lambda request, context: self._auto_creation.describe(request, context.listener),
        }
        return Handlers(self._replicas, self._metadata, zk_client, self._elector, more)

    def _known_topic(self, name: str) -> str | None:
        topic = self._metadata.topic(name)
        return None if topic is None else topic.name

    def _log_maintenance(self) -> LogMaintenance:
        settings = self._settings
        # The settings limit the memory and the I/O of all cleaners together, so that each cleaner gets its share.
        cleaners = max(settings.log_cleaner_threads, 1)
        return LogMaintenance(
            self._logs,
            self._environment.files,
            map_bytes=settings.log_cleaner_dedupe_buffer_size // cleaners,
            throttle=lambda: self._pace(self._dynamic.current.log_cleaner_io_max_bytes_per_second // cleaners),
        )

    def _pace(self, bytes_per_second: int) -> Throttle:
        return Throttle(bytes_per_second, self._environment.monotonic_ns, self._environment.sleep_s)

    def _open_directories(self) -> LogManager:
        paths = [Path(path) for path in self._settings.log_dirs]
        files, boot_id = self._environment.files, self._environment.boot_id()
        return LogManager.open(paths, files, self._settings.broker_id, self._cluster_id, boot_id)

    async def _close_directories(self) -> None:
        # The clean-shutdown marker is the last write to a disk. A disk that failed gets none.
        await asyncio.to_thread(self._logs.close, clean=not isinstance(self.failure, StorageError))

    def _open_listener_for_brokers(self, handlers: Handlers, listener: ListenerEndpoint) -> None:
        server = Server(
            listener.bind,
            self._identity,
            handlers.handle,
            self._clock,
            settle=self._replicas.purgatories.complete_ready,
            now_ns=self._environment.monotonic_ns,
            listen=self._environment.listen,
            events=self._events,
            clients_address=lambda: self._addresses.for_clients,
        )
        server.start()
        self._undo.callback(server.stop)
        self._request_times[listener.name] = server.times

    async def _open_listener_for_clients(self, apis: Iterable[KafkaApi], listener: ListenerEndpoint) -> None:
        opened = KafkaListener(
            listener.bind,
            listener.name,
            apis,
            self._clock,
            settle=self._replicas.purgatories.complete_ready,
            now_ns=self._environment.monotonic_ns,
            limits=self._listener_limits(),
            serve=self._environment.serve,
            clients=self._clients,
        )
        self._dynamic.subscribe(lambda: opened.replace_limits(self._listener_limits()))
        await opened.start()
        self._undo.push_async_callback(opened.stop)
        self._request_times[listener.name] = opened.times

    def _listener_limits(self) -> ListenerLimits:
        return listener_limits(self._dynamic.current, self._environment.max_connections)

    async def _open_http_port(self) -> None:
        if self._settings.http_listener:
            server = HttpServer(Endpoint.parse(self._settings.http_listener), self._health.answer)
            await server.start()
            self._undo.push_async_callback(server.stop)
            log.info("broker %d serves health and metrics at http://%s", self._settings.broker_id, server.endpoint)
            if server.beyond_this_machine:
                log.warning(
                    "health and metrics are served beyond this machine at %s: every client that reaches it may read"
                    " names of topics and sizes",
                    server.endpoint,
                )

    def _metrics(self) -> Metrics:
        return Metrics(
            identity=self._identity,
            metadata=self._metadata,
            replicas=self._replicas,
            waiting=self._replicas.purgatories,
            groups=self._coordinator,
            session=self._session,
            elector=self._elector,
            disks=self._logs,
            request_times=self._request_times,
            clients=self._clients,
            why_not_ready=lambda: why_not_ready(
                self._identity, self._metadata, self._replicas, cut_off=self._session.cut_off
            ),
        )

    def _make_registration(self, zk_client: ZkClient) -> Registration:
        previous = self._logs.read_session() or ""
        return Registration(
            zk_client,
            BrokerRegistration(
                self._settings.broker_id,
                self._addresses.by_listener,
                possibly_short=self._logs.possibly_short,
                rack=self._settings.broker_rack or None,
            ),
            previous_session=int(previous) if previous.removeprefix("-").isdecimal() else 0,
            save_session=lambda session_id: self._logs.write_session(str(session_id)),
            on_lost=self._on_registration_lost,
            on_registered=self._on_registered,
            on_possibly_short_cleared=self._on_possibly_short_cleared,
            on_taken=self.end,
            events=self._events,
        )

    # --- session and registration ------------------------------------------------------------------------------

    def _may_be_deposed(self) -> bool:
        return self._session.may_have_ended or self._is_shutting_down

    def _on_registration_lost(self) -> None:
        self._identity.broker_epoch = -1
        self._replicas.registration_lost()

    def _on_registered(self, broker_epoch: int) -> None:
        self._identity.broker_epoch = broker_epoch
        self._fetchers.reconnect()

    def _on_possibly_short_cleared(self) -> None:
        log.info("the controller no longer depends on records that this broker's logs may have lost")
        asyncio.get_running_loop().run_in_executor(None, self._logs.clear_possibly_short)

    # --- deadlines ---------------------------------------------------------------------------------------------

    async def _keep_ticking(self) -> None:
        while True:
            try:
                next_ms = self._replicas.tick(self._clock.monotonic_ms())
                groups_ms = self._coordinator.tick(self._clock.monotonic_ms())
                next_ms = next_ms if groups_ms is None else min(next_ms, groups_ms)
            except Exception:  # The loop must go on, because no delayed request would be answered without it.
                log.exception("a tick failed; some requests whose deadline has passed may not be answered yet")
                next_ms = self._clock.monotonic_ms() + _TICK_AGAIN_MS
            await self._replicas.purgatories.alarm.wait(max(1, next_ms - self._clock.monotonic_ms()))

    # --- controlled shutdown -----------------------------------------------------------------------------------

    async def _move_leadership(self) -> None:
        if self.failure is not None:
            return
        timeout_ms = self._settings.controlled_shutdown_timeout_ms
        # From the request on, other brokers may lead these partitions. This broker may learn of a new leader only
        # after that leader has answered clients.
        self._is_shutting_down = True
        shutdown = ControlledShutdown(self._identity, self._metadata, self._elector, timeout_ms)
        remaining = await shutdown.move_leadership()
        if remaining is None:
            log.warning(
                "controlled shutdown did not finish within %d ms: stopping while this broker still leads %d partitions",
                timeout_ms, len(self._replicas.led()),
            )  # fmt: skip
            return
        self._replicas.resign_all(but=remaining)


def listener_limits(settings: BrokerSettings, max_connections_of_process: int) -> ListenerLimits:
    """Return the limits of each listener for clients: those of the settings, and the process's connections."""
    return ListenerLimits(
        max_connections_of_process=max_connections_of_process,
        max_connections=settings.max_connections,
        max_connections_per_ip=settings.max_connections_per_ip,
        max_idle_ms=settings.connections_max_idle_ms,
        max_frame_bytes=settings.socket_request_max_bytes,
        max_memory_bytes=settings.queued_max_request_bytes,
    )
