"""Which doors a broker opens, and which addresses it tells others for them: Kafka's listeners and advertised.listeners.

A client learns the brokers' addresses for the door through which it came, so that a name that only a container
network knows is told inside it alone.
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
    """Bound to `bind`, an IP address; others find it at `advertised`."""

    name: str
    bind: Endpoint
    advertised: Endpoint

    def __str__(self) -> str:
        told = "" if self.advertised == self.bind else f" as {self.advertised}"
        return f"{Listener(self.name, self.bind)}{told}"

    @property
    def between_brokers(self) -> bool:
        return self.name == BROKERS

    @property
    def beyond_this_machine(self) -> bool:
        """Whether other machines may reach it."""
        bound = _address(self.bind)
        return bound is None or not bound.is_loopback


def plan_doors(listeners: Iterable[str], advertised_listeners: Iterable[str]) -> tuple[ListenerEndpoint, ...]:
    """The doors in the order of `listeners`; what is not advertised otherwise is found where it is bound.

    ConfigError names the setting and what is wrong with it.
    """
    bound = _by_name("listeners", listeners)
    advertised = _by_name("advertised_listeners", advertised_listeners)
    for required in (CLIENTS, BROKERS):
        if required not in bound:
            raise ConfigError(f"listeners must have {required}://address:port")
    if unknown := sorted(advertised.keys() - bound.keys()):
        raise ConfigError(f"advertised_listeners: {unknown[0]} is not among the listeners")
    if len(set(bound.values())) < len(bound):
        raise ConfigError("listeners: two have the same address")
    doors = []
    for name, bind in bound.items():
        if _address(bind) is None:
            raise ConfigError(f"listeners: {name} must be bound to an IP address, not {bind.host!r}")
        listener = ListenerEndpoint(name, bind, advertised.get(name, bind))
        if (told := _address(listener.advertised)) is not None and told.is_unspecified:
            raise ConfigError(f"advertised_listeners must say where others find {Listener(name, bind)}")
        doors.append(listener)
    return tuple(doors)


def require_own_addresses(
    broker_id: int, doors: Iterable[ListenerEndpoint], registered: Iterable[BrokerRegistration]
) -> None:
    """ConfigError where another broker is found at one of these addresses: a settings file was copied, and clients of
    the one would ask the other."""
    told = {listener.advertised: listener.name for listener in doors}
    for other in registered:
        if other.broker_id != broker_id and (shared := told.keys() & set(other.listeners.values())):
            endpoint = min(shared, key=str)
            raise ConfigError(
                f"advertised_listeners: {Listener(told[endpoint], endpoint)} is where broker {other.broker_id} is found"
            )


def _by_name(setting: str, texts: Iterable[str]) -> dict[str, Endpoint]:
    found: dict[str, Endpoint] = {}
    for text in texts:
        try:
            listener = Listener.parse(text)
        except ValueError as error:
            raise ConfigError(f"{setting}: {error}") from None
        if listener.name in found:
            raise ConfigError(f"{setting}: {listener.name} stands there twice")
        found[listener.name] = listener.endpoint
    return found


def _address(endpoint: Endpoint) -> IPv4Address | IPv6Address | None:
    """None where it is a name."""
    try:
        return ip_address(endpoint.host)
    except ValueError:
        return None
