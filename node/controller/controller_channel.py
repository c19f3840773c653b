"""The controller's line to one registration of one broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from cluster.backoff import Backoff
from cluster.controller.effects import AskLogEnds, SendLeaderAndIsr, SendMetadata, SendStopReplica
from cluster.controller.liveness import NEVER
from cluster.state import BrokerRegistration
from node.controller.outbox import Batch, Outbox, QuestionBatch
from tidelog.errors import (
    BrokerError,
    DisconnectedError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
    TidelogError,
    TimeoutError,
)
from tidelog.model import Endpoint
from tidelog.protocol.messages import Request, Response
from tidelog.protocol.native.connection import Connection

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 5000
#: Whoever gave an older answer may have died since, while this process or the network stood still.
FRESH_MS = 1000
#: Between two attempts to reach a broker; after a refusal of what was asked always the longest.
LEAST_BACKOFF_MS = 20
MOST_BACKOFF_MS = 500

#: What a broker is to be told or asked.
ControllerMessage = SendLeaderAndIsr | SendStopReplica | AskLogEnds | SendMetadata

#: Opens a connection to a broker's replication endpoint.
OpenConnection = Callable[[Endpoint], Awaitable[Connection]]


class ChannelOwner(Protocol):
    """Whom a channel tells what it finds. All of it happens on the loop and returns at once."""

    @property
    def moment(self) -> int:
        """Noted when a request is sent."""
        ...

    def build(self, batch: Batch) -> Request:
        """The request for a batch, with what is true now."""

    def on_answer(self, broker: BrokerRegistration, batch: Batch, response: Response, asked: int) -> None:
        """The broker has answered what was sent at that moment; NEVER: it took too long to tell that it still lives."""

    def on_gone(self, broker: BrokerRegistration) -> None:
        """The connection has closed, or none could be opened: a suspicion."""

    def on_replaced(self, broker: BrokerRegistration) -> None:
        """A later life of the broker answered: this registration is dead."""

    def on_fenced(self) -> None:
        """The broker knows a later controller."""

    def on_failed(self, error: BaseException) -> None:
        """The channel has ended by an error that nobody has foreseen, and tells its broker nothing any more."""


class ControllerChannel:
    """Keeps a connection open, as long as the registration stands, and empties the outbox into it.

    The open connection is also what notices a death at once. Every request carries the registration's epoch, so
    that it cannot reach a later life of the broker.
    """

    def __init__(self, broker: BrokerRegistration, open_connection: OpenConnection, owner: ChannelOwner) -> None:
        self.broker = broker
        self.outbox = Outbox()
        self._open = open_connection
        self._owner = owner
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"controller-channel-{broker.broker_id}")
        self._task.add_done_callback(self._on_done)

    def tell(self, word: ControllerMessage) -> None:
        """Say it until it is answered."""
        match word:
            case SendLeaderAndIsr(_, states):
                self.outbox.put_states(states)
            case SendStopReplica(_, stops):
                self.outbox.put_stops(stops)
            case AskLogEnds(_, tps):
                self.outbox.put_questions(tps)
            case SendMetadata(_, states, deleted_topics, whole):
                self.outbox.put_metadata(states, deleted_topics, whole=whole)
        self._wake.set()

    def close(self) -> None:
        """What is in flight or in the outbox is given up."""
        self._task.cancel()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._owner.on_failed(error)

    async def _run(self) -> None:
        backoff = Backoff(LEAST_BACKOFF_MS, MOST_BACKOFF_MS)
        while True:
            try:
                connection = await self._open(self.broker.replication_endpoint)
            except TidelogError as error:
                log.debug("broker %d: %s", self.broker.broker_id, error)
                if isinstance(error, DisconnectedError):
                    self._owner.on_gone(self.broker)
            else:
                connection.on_closed(self._wake.set)
                try:
                    if connection.peer.broker_epoch > self.broker.epoch:
                        self._owner.on_replaced(self.broker)
                    elif connection.peer.broker_epoch == self.broker.epoch:
                        backoff.reset()
                        await self._serve(connection)
                    # A lower epoch: the broker does not yet know of its registration.
                except TidelogError as error:
                    log.warning("broker %d is not to be told: %s", self.broker.broker_id, error)
                    await asyncio.sleep(MOST_BACKOFF_MS / 1000)
                finally:
                    was_closed = connection.closed
                    connection.close()
                if was_closed:
                    self._owner.on_gone(self.broker)
            await asyncio.sleep(backoff.next_ms() / 1000)

    async def _serve(self, connection: Connection) -> None:
        """Returns when the connection is of no more use."""
        loop = asyncio.get_running_loop()
        while not connection.closed:
            self._wake.clear()
            batch = self.outbox.peek()
            if batch is None:
                await self._wake.wait()
                continue
            asked, sent_s = self._owner.moment, loop.time()
            try:
                response = await connection.call(
                    self._owner.build(batch), timeout_ms=REQUEST_TIMEOUT_MS, addressee_epoch=self.broker.epoch
                )
            except TimeoutError:
                continue
            except StaleControllerEpochError:
                self._owner.on_fenced()
                return
            except (StaleBrokerEpochError, DisconnectedError):
                return
            except BrokerError as error:
                log.warning("broker %d refuses the controller's request: %s", self.broker.broker_id, error)
                await asyncio.sleep(MOST_BACKOFF_MS / 1000)
                continue
            code = getattr(response, "error_code", 0)
            if code == StaleControllerEpochError.code:
                self._owner.on_fenced()
                return
            if code == StaleBrokerEpochError.code:
                return
            if code:
                log.warning("broker %d answers the controller with error %d", self.broker.broker_id, code)
                await asyncio.sleep(MOST_BACKOFF_MS / 1000)
                continue
            if loop.time() - sent_s > FRESH_MS / 1000:
                if isinstance(batch, QuestionBatch):
                    continue
                asked = NEVER
                self.outbox.put_metadata(())  # it has something to answer again
            self.outbox.answered(batch)
            self._owner.on_answer(self.broker, batch, response, asked)
