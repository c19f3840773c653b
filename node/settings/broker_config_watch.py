"""Keeps a broker's dynamic settings as they are in ZooKeeper, and changes them there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from cluster.zookeeper import znodes
from cluster.zookeeper.broker_configs import ALL_BROKERS, BrokerConfigs, Change
from cluster.zookeeper.store import NodeChanged, SessionChanged, SessionState, Store, StoreError, StoreEvent
from node.settings.dynamic_settings import DynamicSettings

log = logging.getLogger(__name__)

_RETRY_S = 0.5


class BrokerConfigWatch:
    """Watches the settings of one broker, and those of all brokers, from `start` to `stop`.

    settings   gets the settings whenever they have changed
    """

    def __init__(self, settings: DynamicSettings, configs: BrokerConfigs, store: Store) -> None:
        self.settings = settings
        self._configs = configs
        self._store = store
        self._own = str(settings.static.broker_id)
        self._paths = {znodes.broker_config_path(name) for name in (self._own, ALL_BROKERS)}
        self._changed = asyncio.Event()
        self._reading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Apply the present settings, and each change from now on. Raise StoreError if ZooKeeper does not answer."""
        self._unsubscribe = self._store.subscribe(self._on_event)
        await self._apply()
        self._task = asyncio.create_task(self._keep(), name="settings in ZooKeeper")

    async def stop(self) -> None:
        """Apply no further changes."""
        self._unsubscribe()
        if self._task is not None:
            self._task.cancel()

    async def read(self, name: str) -> Mapping[str, str]:
        """Return the settings under a name: a broker id or ALL_BROKERS. Raise StoreError or MalformedZnodeError."""
        return await self._configs.read(name)

    async def change(self, name: str, change: Change) -> Mapping[str, str]:
        """Change the settings under a name, return them, and apply this broker's and all brokers' settings again.

        Raise the errors of `BrokerConfigs.change`. A StoreError may also come after the change was written.
        """
        after = await self._configs.change(name, change)
        self._changed.set()  # in case that the next line fails
        await self._apply()
        return after

    def _on_event(self, event: StoreEvent) -> None:
        if isinstance(event, SessionChanged):
            is_news = event.state is SessionState.CONNECTED  # the watches may be lost
        else:
            is_news = isinstance(event, NodeChanged) and event.path in self._paths
        if is_news:
            self._changed.set()

    async def _keep(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._apply()
            except StoreError as error:
                log.debug("reading the settings of brokers: %s", error)
                self._changed.set()
                await asyncio.sleep(_RETRY_S)
            except Exception:
                # The broker must go on with the settings that it has, and apply later changes.
                log.exception("the settings in ZooKeeper cannot be applied")

    async def _apply(self) -> None:
        """Read both sets, watch them, and apply them. If one is malformed, log that and change nothing."""
        async with self._reading:  # so that an older answer is never applied after a later one
            try:
                of_all = await self._configs.read(ALL_BROKERS, watch=True)
                own = await self._configs.read(self._own, watch=True)
            except znodes.MalformedZnodeError as error:
                log.error("the settings of brokers in ZooKeeper are ignored: %s", error)
                return
            self.settings.apply(of_all, own)
