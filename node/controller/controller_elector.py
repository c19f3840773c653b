"""Election of the controller: run for `/controller`, act as the controller while elected, else watch the controller.

Every broker has one elector. A broker that finds the controller's endpoint refusing connections replaces the
controller: the multi-operation of its election then also removes the old `/controller`. The multi checks the version
that `/controller_epoch` had *before* the connection attempt, so that an outdated suspicion loses against any
election since.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

from cluster.backoff import Backoff
from cluster.controller.preferred_leaders import LeaderImbalance
from cluster.state import BrokerRegistration, ControllerLease
from cluster.zookeeper import znodes
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.store import NodeChanged, SessionChanged, StoreError, StoreEvent
from cluster.zookeeper.write_conflicts import ControllerFenced
from node.controller.controller_channel import LEAST_BACKOFF_MS, MOST_BACKOFF_MS
from node.controller.controller_term import ControllerTerm
from node.controller.failure_detector import FenceLimiter, ProbeOutcome, probe
from node.controller.partition_commands import PartitionCommands
from node.controller.topic_commands import TopicCommands
from node.events.recorder import NO_EVENTS, Events
from node.metadata.internal_topics import InternalTopicRules
from node.net.identity import Identity
from node.settings.broker_settings import BrokerSettings
from tidelog.clock import Clock
from tidelog.errors import (
    BrokerError,
    NotControllerError,
    StaleBrokerEpochError,
    TidelogError,
)
from tidelog.model import NO_LEADER, Endpoint
from tidelog.protocol.control_messages import ControlledShutdownRequest, ControlledShutdownResponse
from tidelog.protocol.messages import DescribePartition

log = logging.getLogger(__name__)

_RETRY_S = 0.1
#: A term that lasted at least this long did not fail at its start, so that the backoff is reset.
_STABLE_TERM_MS = 5_000
#: How long a controlled shutdown waits for writes, and then for the new leaders' answers.
_SHUTDOWN_WRITES_MS = 3000
_SHUTDOWN_ANSWERS_MS = 1000


class ControllerElector:
    """Runs for controller, and owns the `ControllerTerm` while this broker is the controller.

    Call `start` once the broker is registered and answers at its replication endpoint.

    topics, partitions      the commands of clients, refused with NOT_CONTROLLER while this broker is not the controller
    known_epoch             returns the latest controller epoch that this broker has seen in requests; −1: none
    max_broker_partitions   returns the setting as it is now
    """

    def __init__(
        self,
        settings: BrokerSettings,
        zk_client: ZkClient,
        clock: Clock,
        identity: Identity,
        *,
        max_broker_partitions: Callable[[], int] | None = None,
        rng: random.Random | None = None,
        probe: Callable[[Endpoint], Awaitable[ProbeOutcome]] = probe,
        known_epoch: Callable[[], int] = lambda: -1,
        events: Events = NO_EVENTS,
    ) -> None:
        self._settings = settings
        self._known_epoch = known_epoch
        self._zk_client = zk_client
        self._clock = clock
        self._identity = identity
        self._events = events
        self._limiter = FenceLimiter(settings.zookeeper_session_timeout_ms)
        self._replace_limiter = FenceLimiter(settings.zookeeper_session_timeout_ms)
        self._probe = probe
        self._addresses: dict[int, BrokerRegistration] = {}
        self._lease = ControllerLease(NO_LEADER, 0, 0)
        self._lease_changed = asyncio.Event()
        self._last_epoch = -1
        #: Each term uses up a controller epoch of the cluster, so the pause grows between terms that soon fail.
        self._term_backoff = Backoff(LEAST_BACKOFF_MS, MOST_BACKOFF_MS)
        self._term: ControllerTerm | None = None
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None
        most = max_broker_partitions or (lambda: settings.max_broker_partitions)
        self.topics = TopicCommands(self._term_or_raise, settings, clock, rng or random.Random(), most)
        self.partitions = PartitionCommands(self._term_or_raise, InternalTopicRules.of(settings), clock, most)

    # --- start and stop ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to run for controller, and return at once."""
        self._unsubscribe = self._zk_client.store.subscribe(self._on_event)
        self._task = asyncio.create_task(self._run(), name="controller-elector")

    async def stop(self) -> None:
        """Stop running for controller, and end the term if there is one.

        Then remove `/controller` if it belongs to this session, so that the next election can start at once. An
        unreachable ZooKeeper is not waited for, and its errors are only logged.
        """
        self._unsubscribe()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        store = self._zk_client.store
        if not store.connected:
            return
        try:
            # Read even if no term has begun: an election may have been in flight, and ZooKeeper orders this read
            # after it.
            lease = await self._zk_client.read_controller()
            if lease.owner == store.session_id:
                await self._zk_client.resign_controller(lease)
        except (StoreError, znodes.MalformedZnodeError) as error:
            log.info("could not resign as controller; /controller goes when the session ends: %s", error)

    @property
    def is_controller(self) -> bool:
        """Return whether this broker has won the election and its term has not ended, even while the term starts."""
        return self._term is not None and not self._term.ended

    @property
    def controller_id(self) -> int:
        """Return the id of the controller that this broker has found in ZooKeeper last; −1 if it knows none."""
        return self._lease.controller_id

    @property
    def controller_epoch(self) -> int:
        """Return the epoch of the last controller that this broker knows, also after its term; 0 before the first."""
        return self._lease.epoch

    # --- requests ------------------------------------------------------------------------------------

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Move leadership away from a broker that shuts down, remove it from ISRs, and return what it still leads.

        The answer waits up to `_SHUTDOWN_WRITES_MS` for the writes, then up to `_SHUTDOWN_ANSWERS_MS` until the new
        leaders have confirmed. The response has only an error code if this broker is not the controller, or if the
        request's broker epoch is not the registered one.
        """
        try:
            term = self._term_or_raise()
            registered = term.controller.context.brokers.get(request.broker_id)
            if registered is None or registered.epoch != request.broker_epoch:
                raise StaleBrokerEpochError(
                    f"broker {request.broker_id} is not registered with broker epoch {request.broker_epoch}"
                )
        except BrokerError as error:
            return ControlledShutdownResponse(error.code)
        moving = term.controller.context.led_by(request.broker_id)
        await term.perform(term.while_registered(registered, term.controller.shutdown_wanted(request.broker_id)))
        begun_ms = self._clock.monotonic_ms()
        await term.wait_until(
            lambda: not term.controller.has_pending_work(request.broker_id), begun_ms + _SHUTDOWN_WRITES_MS
        )
        if term.ended:
            return ControlledShutdownResponse(NotControllerError.code)
        remaining = term.controller.context.led_by(request.broker_id)
        moved = set(moving) - set(remaining)
        await term.wait_until_led(moved, self._clock.monotonic_ms() + _SHUTDOWN_ANSWERS_MS)
        log.info(
            "broker %d shuts down: leadership of %d partitions moved, %d remain",
            request.broker_id, len(moved), len(remaining),
        )  # fmt: skip
        return ControlledShutdownResponse(0, tuple(DescribePartition(tp.topic, tp.partition) for tp in remaining))

    def _term_or_raise(self) -> ControllerTerm:
        if self._term is None or self._term.ended:
            raise NotControllerError(f"broker {self._settings.broker_id} is not the controller")
        return self._term

    # --- election ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._run_once()
            except (StoreError, ControllerFenced) as error:
                log.debug("controller election: %s", error)
                await asyncio.sleep(_RETRY_S)
            except Exception:
                log.exception("controller election failed")
                await asyncio.sleep(_RETRY_S)

    async def _run_once(self) -> None:
        """Read `/controller` once. If it is unclaimed or this broker's, run for it and serve the term to its end.

        Otherwise wait until `/controller` changes. If the controller's endpoint refuses connections before that,
        replace the controller and serve the term.
        """
        self._lease_changed.clear()
        lease = await self._zk_client.read_controller(watch=True)
        me = self._settings.broker_id
        mine: ControllerLease | None = None
        refused: BrokerRegistration | None = None
        if lease.unclaimed:
            mine = await self._run_for_controller(lease)
        elif lease.controller_id == me:
            # The lease is of an earlier process of this broker, or of a term that failed, because only this broker can
            # have its id now. The new epoch fences writes of the old term that are still in flight, so that none of
            # them lands after the reads of the new term. Replacing the lease never leaves `/controller` unclaimed.
            mine = await self._run_for_controller(lease, replace_controller=True)
        else:
            self._lease = lease
            if (refused := await self._wait_until_dead(lease)) is None:
                return
            log.warning("controller %d refuses connections: running for controller", lease.controller_id)
            mine = await self._run_for_controller(lease, replace_controller=True)
            if mine is not None:
                self._replace_limiter.fenced(lease.controller_id, self._clock.monotonic_ms())
        if mine is None:
            return
        self._lease = mine
        self._last_epoch = mine.epoch
        self._events.controller(mine.epoch)
        settings = self._settings
        rebalancing = LeaderImbalance(
            settings.leader_imbalance_check_interval_seconds, settings.leader_imbalance_per_broker_percentage
        )
        self._term = ControllerTerm(
            mine,
            self._zk_client,
            self._clock,
            self._limiter,
            self._identity.connect,
            unclean_by_default=settings.topic_defaults.unclean_leader_election_enable,
            min_insync_by_default=settings.topic_defaults.min_insync_replicas,
            recovery_timeout_ms=settings.unclean_recovery_timeout_ms,
            rebalancing=rebalancing if settings.auto_leader_rebalance_enable else None,
            refused=refused,
            probe=self._probe,
        )
        begun_ms = self._clock.monotonic_ms()
        try:
            await self._term.run()
        finally:
            self._term = None
            self._lease = ControllerLease(NO_LEADER, mine.epoch, mine.epoch_version)
        if self._clock.monotonic_ms() - begun_ms >= _STABLE_TERM_MS:
            self._term_backoff.reset()
        await asyncio.sleep(self._term_backoff.next_ms() / 1000)

    async def _run_for_controller(
        self, lease: ControllerLease, *, replace_controller: bool = False
    ) -> ControllerLease | None:
        """Run for controller once. Return the lease that this broker has won, or None if another broker was faster.

        `replace_controller`: remove the old `/controller` in the same multi-operation.
        The new epoch is above every controller epoch that this broker knows, because a ZooKeeper that was restored
        from a backup would give out old epochs again.
        """
        known = max(self._known_epoch(), self._last_epoch)
        after = replace(lease, epoch=max(lease.epoch, known))
        mine = await self._zk_client.try_become_controller(
            self._settings.broker_id, after, replace_controller=replace_controller
        )
        if mine is not None and known > lease.epoch:
            log.error("ZooKeeper has controller epoch %d, but this broker knows epoch %d: ZooKeeper's data is older",
                      lease.epoch, known)  # fmt: skip
        return mine

    async def _wait_until_dead(self, lease: ControllerLease) -> BrokerRegistration | None:
        """Return the controller's registration once it refuses connections; None if `/controller` changes first.

        Return None, after a pause, if this broker replaced a controller of this id within the last session timeout.
        """
        changed = asyncio.create_task(self._lease_changed.wait())
        refused = asyncio.create_task(self._until_refused(lease.controller_id))
        try:
            await asyncio.wait((changed, refused), return_when=asyncio.FIRST_COMPLETED)
            if changed.done():
                return None
            found = await refused
        finally:
            changed.cancel()
            refused.cancel()
        if self._replace_limiter.allows(lease.controller_id, self._clock.monotonic_ms()):
            return found
        await asyncio.sleep(MOST_BACKOFF_MS / 1000)
        return None

    async def _until_refused(self, controller_id: int) -> BrokerRegistration:
        backoff = Backoff(LEAST_BACKOFF_MS, MOST_BACKOFF_MS)
        while True:
            # The registration may be removed before `/controller`. The last known address is then still probed.
            if registration := await self._zk_client.read_broker(controller_id):
                self._addresses[controller_id] = registration
            if known := self._addresses.get(controller_id):
                try:
                    connection = await self._identity.connect(known.replication_endpoint)
                    backoff.reset()
                    try:
                        await connection.wait_closed()
                    finally:
                        connection.close()
                except TidelogError as error:
                    log.debug("controller %d: %s", controller_id, error)
                if await self._probe(known.replication_endpoint) is ProbeOutcome.REFUSED:
                    now = await self._zk_client.read_broker(controller_id)
                    if now is None or now.replication_endpoint == known.replication_endpoint:
                        return known
                    # The controller has moved to another address, so the next probe goes there.
                    backoff.reset()
            await asyncio.sleep(backoff.next_ms() / 1000)

    def _on_event(self, event: StoreEvent) -> None:
        if isinstance(event, SessionChanged) or event == NodeChanged(znodes.CONTROLLER):
            self._lease_changed.set()
