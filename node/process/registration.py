"""The registration of this broker, `/brokers/ids/N`: create it, watch it, and create it again when it is gone.

If the broker's addresses change, the registration is written again. It keeps its epoch, so that leadership stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from cluster.state import BrokerRegistration
from cluster.zookeeper import znodes
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.store import NodeChanged, SessionChanged, SessionState, StoreError, StoreEvent
from cluster.zookeeper.write_conflicts import BrokerIdTaken
from node.events.recorder import NO_EVENTS, Events
from tidelog.errors import StorageError
from tidelog.model import Endpoint
from tidelog.protocol.listeners import Listener

log = logging.getLogger(__name__)

_RETRY_S = 0.1


class Registration:
    """Creates `/brokers/ids/N`, and creates it again whenever it is gone.

    on_lost()                    called at once when the registration is gone, and before this broker removes it itself,
                                 so that this broker stops leading
    on_registered(epoch)         called after each registration except the first, whose epoch `start` returns
    on_possibly_short_cleared()  called when the controller has cleared the mark `possibly_short` of the registration
    on_taken(error)              called if another live process has this broker id, so that this process must end
    save_session(id)             called before each registration, so that a restarted broker can delete the registration
                                 of this session, and no other
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
        self._written = registration.listeners  # the addresses in ZooKeeper
        self._previous_session = previous_session
        self._save_session = save_session
        self._on_lost = on_lost
        self._on_registered = on_registered
        self._on_possibly_short_cleared = on_possibly_short_cleared
        self._on_taken = on_taken
        self._events = events
        self._path = znodes.broker_path(registration.broker_id)
        self._changed = asyncio.Event()
        self._expired = False
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    @property
    def broker_epoch(self) -> int:
        """Return the broker epoch, which is the czxid of the registration; −1 while there is none."""
        return self._registration.epoch

    async def start(self) -> int:
        """Register this broker, keep it registered from now on, and return the broker epoch.

        Raise BrokerIdTaken, StoreError, or the errors of `save_session`.
        """
        self._unsubscribe = self._zk_client.store.subscribe(self._on_event)
        epoch = await self._register()
        self._task = asyncio.create_task(self._keep(), name="registration")
        return epoch

    def change_addresses(self, listeners: Mapping[str, Endpoint]) -> None:
        """Write these addresses into the registration, as soon as ZooKeeper answers, and into all later ones."""
        self._registration = replace(self._registration, listeners=listeners)
        self._changed.set()

    async def stop(self) -> None:
        """Stop watching, stop leading (`on_lost`), and remove the registration at once if ZooKeeper is connected.

        An error of ZooKeeper is only logged.
        """
        self._unsubscribe()
        if self._task is not None:
            self._task.cancel()
        epoch = self.broker_epoch
        # Other brokers may be elected from now on, and this broker does not watch its registration any more.
        self._stop_leading()
        if epoch >= 0 and self._zk_client.store.connected:
            try:
                await self._zk_client.unregister_broker(self._registration.broker_id, epoch)
            except StoreError as error:
                log.info("could not remove the registration; it goes when the session ends: %s", error)

    def _on_event(self, event: StoreEvent) -> None:
        if isinstance(event, SessionChanged):
            if event.state is SessionState.EXPIRED:
                self._expired = True
                self._on_gone()
            self._changed.set()
        elif isinstance(event, NodeChanged) and event.path == self._path:
            self._changed.set()

    async def _register(self) -> int:
        self._expired = False
        session_id = self._zk_client.store.session_id
        self._save_session(session_id)
        registration = self._registration
        epoch = await self._zk_client.register_broker(registration, self._previous_session)
        self._previous_session = session_id
        self._written = registration.listeners
        self._registration = replace(self._registration, epoch=epoch)
        self._events.registered(epoch)
        return epoch

    async def _keep(self) -> None:
        while True:
            try:
                await self._until_lost()
                self._on_gone()
                epoch = await self._retry_register()
                log.info("broker %d is registered again, epoch %d", self._registration.broker_id, epoch)
                self._on_registered(epoch)
            except BrokerIdTaken as error:
                self._on_taken(error)
                return
            except StorageError as error:
                # The last disk of this broker has failed. The process ends soon, and retries until then.
                log.warning("broker %d cannot save its session id: %s", self._registration.broker_id, error)
                await asyncio.sleep(_RETRY_S)
            except Exception:
                # The loop must go on, because a broker that does not watch its registration would lead on without one.
                log.exception("broker %d failed to watch its registration; trying again", self._registration.broker_id)
                await asyncio.sleep(_RETRY_S)

    def _on_gone(self) -> None:
        """Stop leading, once per registration.

        The broker must not wait for the next session, because a confirmed new session says nothing about leadership
        that was won under the old registration.
        """
        if self.broker_epoch >= 0:
            log.warning("the registration of broker %d is gone", self._registration.broker_id)
            self._stop_leading()

    def _stop_leading(self) -> None:
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
                await self._check_possibly_short()
                await self._write_addresses()
            except StoreError as error:
                log.debug("reading the registration: %s", error)
                await asyncio.sleep(_RETRY_S)
                continue
            await self._changed.wait()

    async def _check_possibly_short(self) -> None:
        if not self._registration.possibly_short:
            return
        found = await self._zk_client.read_broker(self._registration.broker_id)
        if found is not None and found.epoch == self.broker_epoch and not found.possibly_short:
            self._registration = replace(self._registration, possibly_short=False)
            self._on_possibly_short_cleared()

    async def _write_addresses(self) -> None:
        listeners = self._registration.listeners
        if listeners == self._written or self.broker_epoch < 0:
            return
        if not await self._zk_client.change_addresses(self._registration.broker_id, self.broker_epoch, listeners):
            return  # the watch calls this again when the registration changes or ends
        self._written = listeners
        log.info(
            "broker %d advertises %s from now on",
            self._registration.broker_id,
            ", ".join(str(Listener(name, endpoint)) for name, endpoint in listeners.items()),
        )

    async def _retry_register(self) -> int:
        while True:
            try:
                return await self._register()
            except StoreError as error:
                log.debug("registering again: %s", error)
                await asyncio.sleep(_RETRY_S)
