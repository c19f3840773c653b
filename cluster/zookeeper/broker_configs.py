"""The settings of brokers in ZooKeeper that take effect while the brokers run: `/config/brokers`, as Kafka has them.

One znode has the settings of one broker, and `<default>` those of all brokers. A broker watches both of its znodes
itself, because these settings are no part of the cluster's metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cluster.zookeeper import znodes
from cluster.zookeeper.retrying_store import RetryingStore
from cluster.zookeeper.store import BadVersionError, NodeExistsError, NoNodeError, Store

#: The name that stands for all brokers.
ALL_BROKERS = "<default>"

#: Returns the new settings for the current ones.
Change = Callable[[Mapping[str, str]], Mapping[str, str]]


class BrokerConfigs:
    """Access of one session to `/config/brokers`. `name` is a broker id or ALL_BROKERS.

    OutcomeUnknownError if ZooKeeper does not answer in time.
    """

    def __init__(self, store: Store, retrying: RetryingStore) -> None:
        self._store = store
        self._retrying = retrying

    async def read(self, name: str, *, watch: bool = False) -> Mapping[str, str]:
        """Return the settings under this name; {} if there are none. MalformedZnodeError.

        A watch fires when the settings are created, changed or removed.
        """
        path = znodes.broker_config_path(name)
        if watch:
            await self._retrying.until_answered(lambda: self._store.exists(path, watch=True))
        node = await self._retrying.get_or_none(path)
        return {} if node is None else znodes.decode_broker_config(node.data)

    async def change(self, name: str, change: Change) -> Mapping[str, str]:
        """Write what `change` returns for the settings under this name, and return it.

        `change` is called again if another client was faster; an exception of `change` ends the attempt. Unchanged
        settings are not written. MalformedZnodeError if the settings are unreadable. After an OutcomeUnknownError the
        settings may have changed.
        """
        path = znodes.broker_config_path(name)
        async with self._retrying.deadline():
            while True:
                node = await self._retrying.get_or_none(path)
                before = {} if node is None else znodes.decode_broker_config(node.data)
                after = change(before)
                if after == before:
                    return after
                data = znodes.encode_broker_config(after)
                try:
                    if node is None:
                        await self._store.create(path, data)
                    else:
                        await self._store.set(path, data, node.stat.version)
                except (BadVersionError, NodeExistsError, NoNodeError):
                    await self._retrying.pause()
                else:
                    return after
