"""This broker's `/brokers/ids/N`: made, watched, and made again when it is found gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from cluster.state import BrokerRegistration
from cluster.zookeeper import znodes
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.store import NodeChanged, SessionChanged, SessionState, StoreError, StoreEvent
from cluster.zookeeper.write_conflicts import BrokerIdTaken
from node.events.recorder import NO_EVENTS, Events
from tidelog.errors import StorageError

log = logging.getLogger(__name__)

_RETRY_S = 0.1


class Registration:
    """`/brokers/ids/N`, made and made again.

    on_lost()             at once when the registration is found gone, and before this broker takes it away itself: stop
                          leading, there is another world now
    on_registered(epoch)  after each registration but the first, whose epoch `start` returns
    on_absolved()         the controller took the mark `possibly_short` from it
    on_taken(error)       another live process has our id: this one must end
    save_session(id)      before each registration: a restart may then delete this session's registration, and no other
    """

    def __init__(
        self,
        zk_client: ZkClient,
        registration: BrokerRegistration,
        *,
        previous_session: int = 0,
        save_session: Callable[[int], None] = lambda session_id: None,
        on_lost: Callable[[], None] = lambda: None,
        on_registered: Callable[[int], None] = lambda epoch: None,
        on_possibly_short_cleared: Callable[[], None] = lambda: None,
        on_taken: Callable[[BrokerIdTaken], None] = lambda error: None,
        events: Events = NO_EVENTS,
    ) -> None:
        self._zk_client = zk_client
        self._registration = registration
        self._previous_session = previous_session
        self._save_session = save_session
        self._on_lost = on_lost
        self._on_registered = on_registered
        self._on_absolved = on_possibly_short_cleared
        self._on_taken = on_taken
        self._events = events
        self._path = znodes.broker_path(registration.broker_id)
        self._changed = asyncio.Event()
        self._expired = False
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    @property
    def broker_epoch(self) -> int:
        """The czxid of the registration, −1 while there is none."""
        return self._registration.epoch

    async def start(self) -> int:
        """Registers, and keeps registered from now on. Returns the broker epoch; BrokerIdTaken, StoreError."""
        self._unsubscribe = self._zk_client.store.subscribe(self._on_event)
        epoch = await self._register()
        self._task = asyncio.create_task(self._keep(), name="registration")
        return epoch

    async def stop(self) -> None:
        """Leads no more, and removes the registration as far as ZooKeeper can be reached: nobody has to find out."""
        self._unsubscribe()
        if self._task is not None:
            self._task.cancel()
        epoch = self.broker_epoch
        # Others may lead soon, and nobody looks any more whether they do.
        self._resign()
        if epoch >= 0 and self._zk_client.store.connected:
            try:
                await self._zk_client.unregister_broker(self._registration.broker_id, epoch)
            except StoreError as error:
                log.info("the registration was left to its session: %s", error)

    def _on_event(self, event: StoreEvent) -> None:
        if isinstance(event, SessionChanged):
            if event.state is SessionState.EXPIRED:
                self._expired = True
                self._lose()
            self._changed.set()
        elif isinstance(event, NodeChanged) and event.path == self._path:
            self._changed.set()

    async def _register(self) -> int:
        self._expired = False
        session_id = self._zk_client.store.session_id
        self._save_session(session_id)
        epoch = await self._zk_client.register_broker(self._registration, self._previous_session)
        self._previous_session = session_id
        self._registration = replace(self._registration, epoch=epoch)
        self._events.registered(epoch)
        return epoch

    async def _keep(self) -> None:
        while True:
            try:
                await self._until_lost()
                self._lose()
                epoch = await self._register_with_patience()
                log.info("broker %d is registered again, epoch %d", self._registration.broker_id, epoch)
                self._on_registered(epoch)
            except BrokerIdTaken as error:
                self._on_taken(error)
                return
            except StorageError as error:
                # The last disk of ours has failed: this process ends, and until then it goes on as it may.
                log.warning("broker %d cannot write down its registration: %s", self._registration.broker_id, error)
                await asyncio.sleep(_RETRY_S)
            except Exception:
                # Who ceased to look here would lead on without a registration, and nobody would know.
                log.exception("broker %d goes on looking for its registration", self._registration.broker_id)
                await asyncio.sleep(_RETRY_S)

    def _lose(self) -> None:
        """Once for each registration, and at once: the next session is soon confirmed, and it vouches for nothing."""
        if self.broker_epoch >= 0:
            log.warning("the registration of broker %d is gone", self._registration.broker_id)
            self._resign()

    def _resign(self) -> None:
        if self.broker_epoch >= 0:
            self._registration = replace(self._registration, epoch=-1)
            self._on_lost()

    async def _until_lost(self) -> None:
        while not self._expired:
            self._changed.clear()
            try:
                broker_id, epoch = self._registration.broker_id, self._registration.epoch
                if not await self._zk_client.is_registered(broker_id, epoch, watch=True):
                    return
                await self._look_for_absolution()
            except StoreError as error:
                log.debug("looking for the registration: %s", error)
                await asyncio.sleep(_RETRY_S)
                continue
            await self._changed.wait()

    async def _look_for_absolution(self) -> None:
        if not self._registration.possibly_short:
            return
        found = await self._zk_client.read_broker(self._registration.broker_id)
        if found is not None and found.epoch == self.broker_epoch and not found.possibly_short:
            self._registration = replace(self._registration, possibly_short=False)
            self._on_absolved()

    async def _register_with_patience(self) -> int:
        while True:
            try:
                return await self._register()
            except StoreError as error:
                log.debug("registering again: %s", error)
                await asyncio.sleep(_RETRY_S)
