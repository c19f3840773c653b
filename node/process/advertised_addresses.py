"""The addresses at which clients and brokers reach this broker, which can change while the broker runs."""

from __future__ import annotations

from collections.abc import Mapping

from cluster.zookeeper.client import ZkClient
from node.net.identity import Identity
from node.settings.broker_settings import BrokerSettings
from node.settings.dynamic_settings import DynamicSettings
from node.settings.listeners import require_own_addresses
from tidelog.errors import ConfigError, InvalidConfigError, TidelogError
from tidelog.model import Endpoint
from tidelog.protocol.listeners import BROKERS, CLIENTS, Listener


class AdvertisedAddresses:
    """The advertised addresses of one broker, as its settings have them now."""

    def __init__(self, settings: DynamicSettings, zk_client: ZkClient, identity: Identity) -> None:
        self._settings = settings
        self._zk_client = zk_client
        self._identity = identity

    @property
    def by_listener(self) -> Mapping[str, Endpoint]:
        """Return the address of each listener by its name."""
        return _by_listener(self._settings.current)

    @property
    def for_clients(self) -> str:
        """Return where clients reach this broker at the listener KAFKA."""
        return str(self.by_listener[CLIENTS])

    async def check(self, changed: BrokerSettings) -> None:
        """Check the addresses of changed settings against the other brokers and the network.

        Raise InvalidConfigError if another broker has one of them, or if a new address of REPLICATION does not lead to
        this broker. The controller fences a broker that refuses connections at that address, so the broker would stop
        leading. Clients' addresses are not tried, because this machine may not reach them.
        """
        wanted = _by_listener(changed)
        if wanted == self.by_listener:
            return
        try:
            registered = (await self._zk_client.read_brokers()).values()
            require_own_addresses(changed.broker_id, changed.listener_endpoints, registered)
        except ConfigError as error:
            raise InvalidConfigError(str(error).replace("advertised_listeners", "advertised.listeners")) from None
        if wanted[BROKERS] != self.by_listener[BROKERS]:
            await self._require_to_lead_here(wanted[BROKERS])

    async def _require_to_lead_here(self, endpoint: Endpoint) -> None:
        at = f"advertised.listeners: {Listener(BROKERS, endpoint)}"
        try:
            connection = await self._identity.connect(endpoint)
        except TidelogError as error:
            raise InvalidConfigError(f"{at}: this broker does not reach itself there: {error}") from None
        peer = connection.peer
        connection.close()
        if (peer.broker_id, peer.broker_epoch) != (self._identity.broker_id, self._identity.broker_epoch):
            raise InvalidConfigError(f"{at}: broker {peer.broker_id} answers there, not this broker")


def _by_listener(settings: BrokerSettings) -> Mapping[str, Endpoint]:
    return {each.name: each.advertised for each in settings.listener_endpoints}
