"""The controller's place in a broker: it runs for the seat, reigns while it holds it, and watches who holds it else.

Every broker has one. Whoever finds the controller's door refusing ousts it: the multi of the election then
also removes the old `/controller`. It stands on `/controller_epoch` as it was *before* the door was tried, so a
stale suspicion loses against any election since.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from cluster import znodes
from cluster.backoff import Backoff
from cluster.coordination import Coordination
from cluster.rebalancing import Rebalancing
from cluster.state import BrokerRegistration, ControllerSeat
from cluster.store import NodeChanged, SessionChanged, StoreError, StoreEvent
from cluster.topic_nodes import ControllerFenced
from node.controller_channel import LEAST_BACKOFF_MS, MOST_BACKOFF_MS
from node.detector import FenceLimiter, ProbeOutcome, probe
from node.identity import Identity
from node.partition_commands import PartitionCommands
from node.reign import Reign
from node.settings import BrokerSettings
from node.topic_rules import plan_topic
from node.turns import turn
from tidelog.clock import Clock
from tidelog.control_messages import ControlledShutdownRequest, ControlledShutdownResponse
from tidelog.errors import (
    BrokerError,
    InvalidRequestError,
    NotControllerError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    TidelogError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from tidelog.messages import (
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribePartition,
    NewTopic,
)
from tidelog.model import NO_LEADER, TopicPartition

log = logging.getLogger(__name__)

_RETRY_S = 0.1
#: How long an answer waits, at most, until every broker tells its clients the same.
_PROPAGATION_MS = 500
#: How long a controlled shutdown waits for writes, and then for the new leaders' answers.
_HANDOVER_WRITES_MS = 3000
_HANDOVER_ANSWERS_MS = 1000


class ControllerShell:
    """`start` it once the broker is registered and answers at its replication endpoint."""

    def __init__(
        self,
        settings: BrokerSettings,
        coordination: Coordination,
        clock: Clock,
        identity: Identity,
        source: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._coordination = coordination
        self._clock = clock
        self._identity = identity
        self._source = source or random.Random()
        self._limiter = FenceLimiter(settings.zookeeper_session_timeout_ms)
        self._oust_limiter = FenceLimiter(settings.zookeeper_session_timeout_ms)
        self._addresses: dict[int, BrokerRegistration] = {}
        self._seat = ControllerSeat(NO_LEADER, 0, 0)
        self._seat_changed = asyncio.Event()
        self._reign: Reign | None = None
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None
        self.partitions = PartitionCommands(self._reign_or_raise, clock, self._propagate)

    # --- life ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begins to run for the seat; returns at once."""
        self._unsubscribe = self._coordination.store.subscribe(self._on_event)
        self._task = asyncio.create_task(self._run(), name="controller-shell")

    async def stop(self) -> None:
        """Gives up the seat, if it is ours, so that the next controller need not wait."""
        self._unsubscribe()
        seat = self._seat if self._reign is not None else None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if seat is not None and self._coordination.store.connected:
            try:
                await self._coordination.leave_seat(seat)
            except StoreError as error:
                log.info("the controller's seat was left to its session: %s", error)

    @property
    def is_controller(self) -> bool:
        """Whether this broker reigns."""
        return self._reign is not None and not self._reign.ended

    @property
    def controller_id(self) -> int:
        """Who holds the seat as far as this broker knows; −1 nobody."""
        return self._seat.controller_id

    @property
    def controller_epoch(self) -> int:
        """The epoch of that reign."""
        return self._seat.epoch

    # --- requests ------------------------------------------------------------------------------------

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Answers when every partition of the new topics has a leader that knows, or when the time is over."""
        deadline_ms = self._clock.monotonic_ms() + request.timeout_ms
        names = [new.name for new in request.topics]
        outcomes: list[CreatedTopic] = []
        pending: list[TopicPartition] = []
        for new in request.topics:
            try:
                if names.count(new.name) > 1:
                    raise InvalidRequestError(f"the request names topic {new.name!r} twice")
                outcome = await self._create(new, request.validate_only, deadline_ms)
                if not request.validate_only:
                    pending += [TopicPartition(new.name, partition) for partition in range(outcome.num_partitions)]
            except BrokerError as error:
                outcome = CreatedTopic(new.name, error.code, str(error))
            except (StoreError, ControllerFenced) as error:
                outcome = CreatedTopic(new.name, RequestTimedOutError.code, f"ZooKeeper: {error}")
            outcomes.append(outcome)
        reign = self._reign
        if pending and reign is not None:
            await reign.progress.until(
                lambda: reign.ended or all(map(reign.is_led, pending)), max(0, deadline_ms - self._clock.monotonic_ms())
            )
            unled = {tp.topic for tp in pending if not reign.is_led(tp)}
            outcomes = [self._judge(outcome, unled) for outcome in outcomes]
            if not unled:
                await self._propagate(reign, deadline_ms)
        return CreateTopicsResponse(tuple(outcomes))

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Answers when the topics are gone from every live broker and from ZooKeeper, or when the time is over."""
        deadline_ms = self._clock.monotonic_ms() + request.timeout_ms
        outcomes: dict[str, DeletedTopic] = {}
        for topic in request.topics:
            try:
                reign = self._reign_or_raise()
                async with turn(reign.topics_lock, self._clock, deadline_ms):
                    if topic not in reign.controller.topics:
                        raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")
                    await reign.delete_topic(topic)
                outcomes[topic] = DeletedTopic(topic, 0)
            except BrokerError as error:
                outcomes.setdefault(topic, DeletedTopic(topic, error.code, str(error)))
            except (StoreError, ControllerFenced) as error:
                outcomes[topic] = DeletedTopic(topic, RequestTimedOutError.code, f"ZooKeeper: {error}")
        waiting = {topic for topic, outcome in outcomes.items() if not outcome.error_code}
        reigning = self._reign
        if waiting and reigning is not None:
            await reigning.progress.until(
                lambda: reigning.ended or waiting.isdisjoint(reigning.controller.topics),
                max(0, deadline_ms - self._clock.monotonic_ms()),
            )
            for topic in waiting & reigning.controller.topics.keys():
                message = f"topic {topic!r} is being deleted, but some brokers have not answered yet"
                outcomes[topic] = DeletedTopic(topic, RequestTimedOutError.code, message)
            if waiting.isdisjoint(reigning.controller.topics):
                await self._propagate(reigning, deadline_ms)
        return DeleteTopicsResponse(tuple(outcomes[topic] for topic in request.topics))

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Moves what the broker leads to others, and answers what nobody else could take, once the others know."""
        try:
            reign = self._reign_or_raise()
            registered = reign.controller.brokers.get(request.broker_id)
            if registered is None or registered.epoch != request.broker_epoch:
                raise StaleBrokerEpochError(f"broker {request.broker_id} is not registered as {request.broker_epoch}")
        except BrokerError as error:
            return ControlledShutdownResponse(error.code)
        moving = reign.controller.led_by(request.broker_id)
        reign.perform(reign.controller.shutdown_wanted(request.broker_id))
        await reign.progress.until(
            lambda: reign.ended or not reign.controller.busy_with(request.broker_id), _HANDOVER_WRITES_MS
        )
        if reign.ended:
            return ControlledShutdownResponse(NotControllerError.code)
        remaining = reign.controller.led_by(request.broker_id)
        moved = set(moving) - set(remaining)
        await reign.progress.until(lambda: reign.ended or all(map(reign.is_led, moved)), _HANDOVER_ANSWERS_MS)
        log.info("broker %d leaves: %d partitions moved, %d remain", request.broker_id, len(moved), len(remaining))
        return ControlledShutdownResponse(0, tuple(DescribePartition(tp.topic, tp.partition) for tp in remaining))

    def _reign_or_raise(self) -> Reign:
        if self._reign is None or self._reign.ended:
            raise NotControllerError(f"broker {self._settings.broker_id} is not the controller")
        return self._reign

    async def _create(self, new: NewTopic, validate_only: bool, deadline_ms: int) -> CreatedTopic:
        reign = self._reign_or_raise()
        async with turn(reign.topics_lock, self._clock, deadline_ms):
            assignment = plan_topic(
                new,
                existing=reign.controller.topics,
                brokers=reign.controller.brokers.keys() - reign.controller.leaving,
                num_partitions=self._settings.num_partitions,
                replication_factor=self._settings.default_replication_factor,
                defaults=self._settings.topic_defaults,
                source=self._source,
            )
            if not validate_only and not await reign.create_topic(assignment):
                raise TopicAlreadyExistsError(f"topic {new.name!r} exists")
        topic_id = "" if validate_only else assignment.topic_id
        return CreatedTopic(new.name, 0, None, topic_id, len(assignment.partitions), len(assignment.partitions[0]))

    @staticmethod
    def _judge(outcome: CreatedTopic, unled: set[str]) -> CreatedTopic:
        if outcome.error_code or outcome.name not in unled:
            return outcome
        message = f"topic {outcome.name!r} is created, but not all of its partitions have a leader yet"
        return CreatedTopic(outcome.name, RequestTimedOutError.code, message, outcome.topic_id)

    async def _propagate(self, reign: Reign, deadline_ms: int) -> None:
        left_ms = deadline_ms - self._clock.monotonic_ms()
        await reign.progress.until(lambda: reign.ended or reign.all_told(), max(0, min(left_ms, _PROPAGATION_MS)))

    # --- the seat ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._turn()
            except (StoreError, ControllerFenced) as error:
                log.debug("the controller's seat: %s", error)
                await asyncio.sleep(_RETRY_S)
            except Exception:
                log.exception("the controller's seat")
                await asyncio.sleep(_RETRY_S)

    async def _turn(self) -> None:
        """One look at the seat, and what follows from it."""
        self._seat_changed.clear()
        seat = await self._coordination.read_seat(watch=True)
        me = self._settings.broker_id
        mine: ControllerSeat | None = None
        if seat.vacant:
            mine = await self._coordination.take_seat(me, seat)
        elif seat.owner == self._coordination.store.session_id:
            mine = seat
        elif seat.controller_id == me:
            # An earlier life of this broker: only we can hold this id now.
            mine = await self._coordination.take_seat(me, seat, oust=True)
        else:
            self._seat = seat
            if not await self._found_dead(seat):
                return
            log.warning("controller %d refuses connections: running for its seat", seat.controller_id)
            mine = await self._coordination.take_seat(me, seat, oust=True)
            if mine is not None:
                self._oust_limiter.fenced(seat.controller_id, self._clock.monotonic_ms())
        if mine is None:
            return
        self._seat = mine
        settings = self._settings
        rebalancing = Rebalancing(
            settings.leader_imbalance_check_interval_seconds, settings.leader_imbalance_per_broker_percentage
        )
        self._reign = Reign(
            mine,
            self._coordination,
            self._clock,
            self._limiter,
            self._identity.connect,
            unclean_by_default=settings.topic_defaults.unclean_leader_election_enable,
            min_insync_by_default=settings.topic_defaults.min_insync_replicas,
            doubt_timeout_ms=settings.unclean_recovery_timeout_ms,
            rebalancing=rebalancing if settings.auto_leader_rebalance_enable else None,
        )
        try:
            await self._reign.run()
        finally:
            self._reign = None
            self._seat = ControllerSeat(NO_LEADER, mine.epoch, mine.epoch_version)
        await asyncio.sleep(LEAST_BACKOFF_MS / 1000)

    async def _found_dead(self, seat: ControllerSeat) -> bool:
        """Waits until the seat changes (False) or its holder refuses connections (True)."""
        changed = asyncio.create_task(self._seat_changed.wait())
        refused = asyncio.create_task(self._until_refused(seat.controller_id))
        try:
            await asyncio.wait((changed, refused), return_when=asyncio.FIRST_COMPLETED)
            if changed.done():
                return False
            await refused
        finally:
            changed.cancel()
            refused.cancel()
        if self._oust_limiter.allows(seat.controller_id, self._clock.monotonic_ms()):
            return True
        await asyncio.sleep(MOST_BACKOFF_MS / 1000)
        return False

    async def _until_refused(self, controller_id: int) -> None:
        backoff = Backoff(LEAST_BACKOFF_MS, MOST_BACKOFF_MS)
        while True:
            # A registration may go before the seat does; where it was is still where to knock.
            if registration := await self._coordination.read_broker(controller_id):
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
                if await probe(known.replication_endpoint) is ProbeOutcome.REFUSED:
                    return
            await asyncio.sleep(backoff.next_ms() / 1000)

    def _on_event(self, event: StoreEvent) -> None:
        if isinstance(event, SessionChanged) or event == NodeChanged(znodes.CONTROLLER):
            self._seat_changed.set()
