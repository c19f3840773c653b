"""The listeners of a broker and their advertised addresses (Kafka's listeners and advertised.listeners).

A client gets the brokers' addresses of the listener that it has connected to. A host name that only a container
network resolves is therefore sent only to clients inside that network.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from cluster.state import BrokerRegistration
from tidelog.errors import ConfigError
from tidelog.model import Endpoint
from tidelog.protocol.listeners import BROKERS, CLIENTS, Listener


@dataclass(frozen=True, slots=True)
class ListenerEndpoint:
    """One listener, bound to the IP address `bind`; clients and other brokers connect to `advertised`."""

    name: str
    bind: Endpoint
    advertised: Endpoint

    def __str__(self) -> str:
        advertised = "" if self.advertised == self.bind else f" as {self.advertised}"
        return f"{Listener(self.name, self.bind)}{advertised}"

    @property
    def between_brokers(self) -> bool:
        return self.name == BROKERS

    @property
    def beyond_this_machine(self) -> bool:
        """Return whether the bound address is no loopback address, so that other machines may reach the listener."""
        bound = _address(self.bind)
        return bound is None or not bound.is_loopback


def parse_listeners(listeners: Iterable[str], advertised_listeners: Iterable[str]) -> tuple[ListenerEndpoint, ...]:
    """Return the listeners in the order of `listeners`. The default advertised address is the bound address.

    Raise ConfigError with the name of the setting and the reason.
    """
    bound = _by_name("listeners", listeners)
    advertised = _by_name("advertised_listeners", advertised_listeners)
    for required in (CLIENTS, BROKERS):
        if required not in bound:
            raise ConfigError(f"listeners must have {required}://address:port")
    if unknown := sorted(advertised.keys() - bound.keys()):
        raise ConfigError(f"advertised_listeners: {unknown[0]} is not among the listeners")
    if len(set(bound.values())) < len(bound):
        raise ConfigError("listeners: two listeners have the same address")
    endpoints = []
    for name, bind in bound.items():
        if _address(bind) is None:
            raise ConfigError(f"listeners: {name} must be bound to an IP address, not {bind.host!r}")
        listener = ListenerEndpoint(name, bind, advertised.get(name, bind))
        if (address := _address(listener.advertised)) is not None and address.is_unspecified:
            raise ConfigError(f"advertised_listeners must have an address for {Listener(name, bind)}")
        endpoints.append(listener)
    return tuple(endpoints)


def with_changed_addresses(advertised_listeners: Iterable[str], changes: Iterable[str]) -> tuple[str, ...]:
    """Return the advertised listeners with those of `changes` added, or in place of earlier ones of the same name.

    Raise ConfigError with the name of the setting and the reason.
    """
    before = _by_name("advertised_listeners", advertised_listeners)
    after = before | _by_name("advertised_listeners", changes)
    return tuple(str(Listener(name, endpoint)) for name, endpoint in after.items())


def require_own_addresses(
    broker_id: int, listeners: Iterable[ListenerEndpoint], registered: Iterable[BrokerRegistration]
) -> None:
    """Raise ConfigError if another registered broker advertises one of these addresses.

    A copied settings file is the usual cause. Clients of one broker would send their requests to the other.
    """
    advertised = {listener.advertised: listener.name for listener in listeners}
    for other in registered:
        if other.broker_id != broker_id and (shared := advertised.keys() & set(other.listeners.values())):
            endpoint = min(shared, key=str)
            raise ConfigError(
                f"advertised_listeners: broker {other.broker_id} already has the address of"
                f" {Listener(advertised[endpoint], endpoint)}; give each broker its own"
            )


def _by_name(setting: str, texts: Iterable[str]) -> dict[str, Endpoint]:
    found: dict[str, Endpoint] = {}
    for text in texts:
        try:
            listener = Listener.parse(text)
        except ValueError as error:
            raise ConfigError(f"{setting}: {error}") from None
        if listener.name in found:
            raise ConfigError(f"{setting}: {listener.name} is listed twice")
        found[listener.name] = listener.endpoint
    return found


def _address(endpoint: Endpoint) -> IPv4Address | IPv6Address | None:
    """Return the endpoint's IP address, or None if its host is a name."""
    try:
        return ip_address(endpoint.host)
    except ValueError:
        return None
