"""The controller's channel to one registration of one broker, which sends the outbox over one connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from cluster.backoff import Backoff
from cluster.controller.effects import AskLogEnds, SendLeaderAndIsr, SendMetadata, SendStopReplica
from cluster.controller.liveness import NEVER
from cluster.state import BrokerRegistration
from node.controller.outbox import Batch, Outbox, QuestionBatch
from node.net.zeromq.connection import Connection
from tidelog.errors import (
    BrokerError,
    DisconnectedError,
    ProtocolError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
    TidelogError,
    TimeoutError,
)
from tidelog.model import Endpoint
from tidelog.protocol.messages import Request, Response

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 5000
#: An answer that took longer does not prove that the broker is alive: the broker may have failed since, while this
#: process or the network stood still.
FRESH_MS = 1000
#: The pause between two attempts to reach a broker. After an error response it is always the longest.
LEAST_BACKOFF_MS = 20
MOST_BACKOFF_MS = 500

#: The effects that become requests to a broker.
ControllerMessage = SendLeaderAndIsr | SendStopReplica | AskLogEnds | SendMetadata

#: Opens a connection to a broker's replication endpoint.
OpenConnection = Callable[[Endpoint], Awaitable[Connection]]


class ChannelOwner(Protocol):
    """Receives the events of a channel. Every method is called on the event loop and returns at once."""

    @property
    def liveness_epoch(self) -> int:
        """Return the current liveness epoch, which the channel reads when it sends a request."""
        ...

    def build(self, batch: Batch) -> Request:
        """Return the request that carries a batch.

        LeaderAndIsr and UpdateMetadata also carry the live brokers, and the batch's topics as the controller knows them
        now. StopReplica and LogEnds carry the batch alone.
        """

    def on_answer(self, broker: BrokerRegistration, batch: Batch, response: Response, asked: int) -> None:
        """Handle a response without a top-level error code to a request that was sent in liveness epoch `asked`.

        `asked` is NEVER if the response took so long that it does not prove that the broker is alive.
        """

    def on_gone(self, broker: BrokerRegistration) -> None:
        """Suspect the broker, because its connection has closed or could not be opened."""

    def on_replaced(self, broker: BrokerRegistration) -> None:
        """Treat this registration as dead, because a later process of the same broker has answered."""

    def on_fenced(self) -> None:
        """Check this controller's lease, because the broker knows a later controller."""

    def on_failed(self, error: BaseException) -> None:
        """Handle an unexpected error that has ended the channel, so that it sends nothing any more."""


class ControllerChannel:
    """Keeps a connection to the broker open, from the channel's construction until `close`, to send the outbox.

    A closed connection also reveals at once that the broker has died. Every request carries the broker epoch of the
    registration, so that a later process of the same broker refuses it.

    broker   the registration, with the addresses that the controller knows now
    """

    def __init__(self, broker: BrokerRegistration, open_connection: OpenConnection, owner: ChannelOwner) -> None:
        self.broker = broker
        self.outbox = Outbox()
        self._open = open_connection
        self._owner = owner
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"controller-channel-{broker.broker_id}")
        self._task.add_done_callback(self._on_done)

    def enqueue(self, message: ControllerMessage) -> None:
        """Put the message into the outbox.

        The channel sends the message until the broker has accepted it, or until a newer message replaces it.
        """
        match message:
            case SendLeaderAndIsr(_, states):
                self.outbox.put_states(states)
            case SendStopReplica(_, stops):
                self.outbox.put_stops(stops)
            case AskLogEnds(_, tps):
                self.outbox.put_questions(tps)
            case SendMetadata(_, states, deleted_topics, whole):
                self.outbox.put_metadata(states, deleted_topics, whole=whole)
        self._wake.set()

    def move(self, broker: BrokerRegistration) -> None:
        """Use the addresses of this registration from now on, which has the same epoch.

        If the replication endpoint is another one, the channel connects there when no request is in flight.
        """
        self.broker = broker
        self._wake.set()

    def close(self) -> None:
        """Close the connection and drop the messages without an answer; return at once."""
        self._task.cancel()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._owner.on_failed(error)

    async def _run(self) -> None:
        # A cancelled task keeps a traceback that refers to this channel, and the channel refers to the task. The memory
        # of such a cycle would wait for a garbage collection, and these are rare.
        with suppress(asyncio.CancelledError):
            await self._keep_connected()

    async def _keep_connected(self) -> None:
        backoff = Backoff(LEAST_BACKOFF_MS, MOST_BACKOFF_MS)
        while True:
            endpoint = self.broker.replication_endpoint
            try:
                connection = await self._open(endpoint)
            except TidelogError as error:
                log.debug("broker %d: %s", self.broker.broker_id, error)
                if isinstance(error, DisconnectedError):
                    self._owner.on_gone(self.broker)
            else:
                connection.on_closed(self._wake.set)
                try:
                    if connection.peer.broker_id != self.broker.broker_id:
                        raise ProtocolError(f"{endpoint} is broker {connection.peer.broker_id}")
                    if connection.peer.broker_epoch > self.broker.epoch:
                        self._owner.on_replaced(self.broker)
                    elif connection.peer.broker_epoch == self.broker.epoch:
                        backoff.reset()
                        await self._serve(connection, endpoint)
                    # With a lower epoch, the broker does not yet know of this registration: try again.
                except TidelogError as error:
                    log.warning("cannot send to broker %d: %s", self.broker.broker_id, error)
                    await asyncio.sleep(MOST_BACKOFF_MS / 1000)
                finally:
                    was_closed = connection.closed
                    connection.close()
                if was_closed:
                    self._owner.on_gone(self.broker)
            await asyncio.sleep(backoff.next_ms() / 1000)

    async def _serve(self, connection: Connection, endpoint: Endpoint) -> None:
        """Send the outbox over the connection, one request at a time, and pass the answers to the owner.

        Return when the connection is closed, when the broker refuses this controller's epoch or the registration, or
        when the broker's replication endpoint is not `endpoint` any more.
        """
        loop = asyncio.get_running_loop()
        while not connection.closed and self.broker.replication_endpoint == endpoint:
            self._wake.clear()
            batch = self.outbox.peek()
            if batch is None:
                await self._wake.wait()
                continue
            asked, sent_s = self._owner.liveness_epoch, loop.time()
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
                log.warning("broker %d refused the controller's request: %s", self.broker.broker_id, error)
                await asyncio.sleep(MOST_BACKOFF_MS / 1000)
                continue
            code = getattr(response, "error_code", 0)
            if code == StaleControllerEpochError.code:
                self._owner.on_fenced()
                return
            if code == StaleBrokerEpochError.code:
                return
            if code:
                log.warning("broker %d answered the controller's request with error %d", self.broker.broker_id, code)
                await asyncio.sleep(MOST_BACKOFF_MS / 1000)
                continue
            if loop.time() - sent_s > FRESH_MS / 1000:
                # The log ends of a late answer may be outdated, so that the request is sent again. The other answers
                # are valid, but they do not prove that the broker is alive.
                if isinstance(batch, QuestionBatch):
                    continue
                asked = NEVER
                self.outbox.put_metadata(())  # so that the broker can prove soon that it is alive
            self.outbox.answered(batch)
            self._owner.on_answer(self.broker, batch, response, asked)
